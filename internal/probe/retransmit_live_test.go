// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

func TestRetransmitsAreTold(t *testing.T) {
	runAll(t, []scenario{
		{"after a timeout", retransmitAfterTimeout},
		{"fast", retransmitFast},
		{"tail-loss probe", retransmitTailLossProbe},
		{"FIN", retransmitFIN},
		{"SYN-ACK", retransmitSYNACK},
		{"many segments in one packet", retransmitManySegments},
		{"that never leave this host", retransmitFailing},
		{"SYNs that never leave this host", retransmitSYNFailing},
	})
}

// toServer matches the packets of the connection that carry data towards the server.
func toServer(c *connected) string {
	return fmt.Sprintf("tcp dport %d meta length > 100", c.flow.Peer.Port())
}

// send writes and waits until the peer has it all.
func (c *connected) send(t testing.TB, size int) span {
	t.Helper()
	return timed(func() {
		require.NoError(t, c.Write(make([]byte, size)))
		require.NoError(t, c.server.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err := io.CopyN(io.Discard, c.server, int64(size))
		require.NoError(t, err)
	})
}

// segments is the sum of what the events tell.
func segments(events []event.Event) uint64 {
	var n uint64
	for i := range events {
		n += uint64(events[i].Segments)
	}
	return n
}

// requireRetransmit holds a segment.retransmitted of the client against what is common to all.
func (c *connected) requireRetransmit(t testing.TB, e *event.Event, segment event.SegmentType, why event.RetransmitType) {
	t.Helper()
	require.Equal(t, event.KindSegmentRetransmitted, e.Kind, describe(e))
	require.Equal(t, segment, e.Segment, describe(e))
	require.Equal(t, why, e.Retransmit, describe(e))
	require.Equal(t, c.flow, e.Flow)
	require.Equal(t, c.cookie, e.Cookie)
	require.True(t, e.HasSnapshot)
	requireThread(t, e, event.OwnerOpener, c.thread)
}

// requireClosing closes the connection and waits for the word that its socket, which has retransmitted, is gone.
func (c *connected) requireClosing(t testing.TB, w *watch) {
	t.Helper()
	_ = c.server.Close()
	c.close(t)
	require.Len(t, w.closings(c.cookie).await(t, 1), 1)
}

func retransmitAfterTimeout(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_early_retrans", "0") // no tail-loss probe
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(2, toServer(conn)))
	before := n.Client.Counters(t)
	sp := conn.send(t, 1000)

	client, server := conn.sides(w)
	client.await(t, 2)
	events := client.settled(t)
	require.Len(t, events, 2, w.describe(events))
	for i := range events {
		sp.requireAfter(t, &events[i])
		conn.requireRetransmit(t, &events[i], event.SegmentData, event.RetransmitTimeout)
		require.Equal(t, event.StateEstablished, events[i].State)
		require.EqualValues(t, 1, events[i].Segments)
		require.EqualValues(t, 1000, events[i].Snapshot.SendQueue)
		require.EqualValues(t, 1, events[i].Snapshot.SegmentsOut)
	}
	require.Greater(t, events[1].Snapshot.RTO, 200*time.Millisecond, "backed off")
	require.EqualValues(t, 2, n.Client.Counters(t).Since(before)["Tcp.RetransSegs"])
	server.none(t)
	conn.requireClosing(t, w)
}

func retransmitFast(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.SingleSegments(t, "eth0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropNth(1, toServer(conn)))
	before := n.Client.Counters(t)
	conn.send(t, 10*1400)

	client, _ := conn.sides(w)
	e := client.only(t)
	conn.requireRetransmit(t, &e, event.SegmentData, event.RetransmitFast)
	require.EqualValues(t, 1, e.Segments)
	counted := n.Client.Counters(t).Since(before)
	require.EqualValues(t, 1, counted["Tcp.RetransSegs"])
	require.EqualValues(t, 1, counted["TcpExt.TCPFastRetrans"])
	conn.requireClosing(t, w)
}

func retransmitTailLossProbe(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.SingleSegments(t, "eth0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropNth(3, toServer(conn)))
	before := n.Client.Counters(t)
	conn.send(t, 3*1400+700) // four segments, of which the last is lost

	client, _ := conn.sides(w)
	e := client.only(t)
	conn.requireRetransmit(t, &e, event.SegmentData, event.RetransmitTailLossProbe)
	require.EqualValues(t, 1, e.Segments)
	counted := n.Client.Counters(t).Since(before)
	require.EqualValues(t, 1, counted["Tcp.RetransSegs"])
	require.EqualValues(t, 1, counted["TcpExt.TCPLossProbes"])
	conn.requireClosing(t, w)
}

func retransmitFIN(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_early_retrans", "0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchFIN))
	conn.close(t) // nobody holds the socket any more
	require.NoError(t, conn.server.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := conn.server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	client, _ := conn.sides(w)
	e := client.kind(event.KindSegmentRetransmitted).only(t)
	conn.requireRetransmit(t, &e, event.SegmentFIN, event.RetransmitTimeout)
	require.Equal(t, event.StateFinWait1, e.State)
	require.EqualValues(t, 1, e.Segments)
	require.NoError(t, conn.server.Close())
	w.closings(conn.cookie).await(t, 1)
}

func retransmitSYNACK(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	n.Client.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchSYNACK))
	before := n.Server.Counters(t)
	_, local, sp, err := dial(t, n.Client.Thread(t, "client"), f, l.Addr)
	require.NoError(t, err)

	counted := n.Server.Counters(t).Since(before)
	v := w.in(n.Server).kind(event.KindSynRetransmitted)
	v.await(t, int(counted["Tcp.RetransSegs"]))
	events := v.settled(t)
	// Timer and second SYN may each bring one
	require.EqualValues(t, counted["Tcp.RetransSegs"], len(events), w.describe(events))
	for i, e := range events {
		sp.requireAfter(t, &e)
		require.Equal(t, event.RoleServer, e.Role)
		require.EqualValues(t, i+1, e.Attempt)
		require.Equal(t, event.StateNewSynRecv, e.State)
		require.Equal(t, event.Flow{Local: l.Addr, Peer: local}, e.Flow)
		require.NotEqual(t, event.OwnerCurrent, e.Owner.Source)
		require.False(t, e.HasSnapshot)
	}
}

// The kernel hands many segments to the interface in one packet and counts each.
func retransmitManySegments(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropNth(1, toServer(conn)), nettest.DropNth(3, toServer(conn)),
		nettest.DropNth(20, toServer(conn)))
	before := n.Client.Counters(t)
	done := conn.thread.Go(func() { _ = conn.Write(make([]byte, 4<<20)) })
	require.NoError(t, conn.server.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := io.CopyN(io.Discard, conn.server, 4<<20)
	require.NoError(t, err)
	<-done

	client, _ := conn.sides(w)
	client.await(t, 1)
	events := client.settled(t)
	counted := n.Client.Counters(t).Since(before)
	require.Equal(t, counted["Tcp.RetransSegs"], segments(events), w.describe(events))
	require.Greater(t, segments(events), uint64(len(events)), "no packet had more than one segment")
	for i := range events {
		require.Equal(t, event.SegmentData, events[i].Segment)
		requireThread(t, &events[i], event.OwnerOpener, conn.thread)
	}
	conn.requireClosing(t, w)
}

// What the sender's own packet filter drops is no loss on the network: the kernel counts it in RetransSegs, and as failed.
func retransmitFailing(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_early_retrans", "0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, toServer(conn)))
	// The first one leaves, the next two do not, and then all do.
	n.Client.Filter(t, "local", "output", toServer(conn)+" numgen inc mod 1000000000 1-2 drop")
	before := n.Client.Counters(t)
	conn.send(t, 1000)

	client, _ := conn.sides(w)
	client.await(t, 1)
	events := client.settled(t)
	counted := n.Client.Counters(t).Since(before)
	require.EqualValues(t, 2, counted["TcpExt.TCPRetransFail"])
	require.Equal(t, counted["Tcp.RetransSegs"]-counted["TcpExt.TCPRetransFail"], segments(events), w.describe(events))
	require.Len(t, events, 1, w.describe(events))
	conn.requireRetransmit(t, &events[0], event.SegmentData, event.RetransmitTimeout)
	conn.requireClosing(t, w)
}

func retransmitSYNFailing(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchSYN))
	n.Client.Filter(t, "local", "output", nettest.MatchSYN+" numgen inc mod 1000000000 1 drop")
	before := n.Client.Counters(t)
	th := n.Client.Thread(t, "client")
	_, _, _, err := dial(t, th, f, l.Addr)
	require.NoError(t, err)
	counted := n.Client.Counters(t).Since(before)
	require.EqualValues(t, 1, counted["TcpExt.TCPRetransFail"])

	sent := counted["Tcp.RetransSegs"] - counted["TcpExt.TCPRetransFail"]
	e := w.in(n.Client).kind(event.KindConnectCompleted).only(t)
	require.EqualValues(t, sent, e.SynRetransmits, describe(&e))
	w.in(n.Client).kind(event.KindSynRetransmitted).await(t, int(sent))
	events := w.in(n.Client).kind(event.KindSynRetransmitted).settled(t)
	require.Len(t, events, int(sent), w.describe(events))
	require.EqualValues(t, 1, events[0].Attempt)
}
