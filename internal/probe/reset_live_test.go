// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

func TestResetsAreTold(t *testing.T) {
	runAll(t, []scenario{
		{"unread data at close", resetUnread},
		{"linger 0", resetLinger},
		{"disconnect and connect again", resetDisconnect},
		{"data after close", resetDataAfterClose},
		{"no socket", resetNoSocket},
		{"TIME_WAIT", resetTimeWait},
		{"request socket", resetRequest},
		{"received", resetReceived},
		{"received by an accepted socket", resetReceivedAccepted},
		{"both ends on loopback", resetLoopback},
		{"keepalive", resetKeepalive},
		{"user timeout", resetUserTimeout},
	})
}

// connected is a connection of which the client is a socket used by one thread.
type connected struct {
	*nettest.Socket
	net    *nettest.Net
	thread *nettest.Thread
	cookie uint64
	flow   event.Flow // the client's
	server *net.TCPConn
	before event.Event // its completed handshake
}

func connectTo(t testing.TB, w *watch, f nettest.Family, n *nettest.Net) *connected {
	t.Helper()
	l := n.Server.Listen(t, n.ServerAddr(f))
	c := &connected{net: n, thread: n.Client.Thread(t, "client")}
	s, local, _, err := dial(t, c.thread, f, l.Addr)
	require.NoError(t, err)
	c.Socket, c.flow, c.server = s, event.Flow{Local: local, Peer: l.Addr}, l.Next(t)
	c.cookie, err = s.Cookie()
	require.NoError(t, err)
	c.before = w.in(n.Client).port(local.Port()).kind(event.KindConnectCompleted).only(t)
	return c
}

func (c *connected) close(t testing.TB) span {
	t.Helper()
	var err error
	sp := timed(func() { c.thread.Do(func() { err = c.Close() }) })
	require.NoError(t, err)
	return sp
}

// sides are the views of the two ends without their handshake.
func (c *connected) sides(w *watch) (client, server view) {
	later := func(e *event.Event) bool { return e.Kind != event.KindConnectCompleted }
	return w.in(c.net.Client).port(c.flow.Local.Port()).where(later), w.in(c.net.Server).port(c.flow.Peer.Port()).where(later)
}

func reversed(f event.Flow) event.Flow { return event.Flow{Local: f.Peer, Peer: f.Local} }

// requireResetSent holds a reset.sent of the client's thread against what is common to all.
func (c *connected) requireResetSent(t testing.TB, e *event.Event, reason string, before event.State) {
	t.Helper()
	require.Equal(t, event.KindResetSent, e.Kind, describe(e))
	require.Equal(t, reason, e.Reason, describe(e))
	require.False(t, e.ReasonIsDerived)
	require.Equal(t, before, e.State, describe(e))
	require.Equal(t, c.flow, e.Flow, "the local port was released and must be told all the same")
	require.Equal(t, c.cookie, e.Cookie)
	requireThread(t, e, event.OwnerCurrent, c.thread)
	require.True(t, e.HasSnapshot)
	require.Positive(t, e.Snapshot.SRTT)
}

func resetUnread(t testing.TB, w *watch, f nettest.Family) {
	const unread = 777
	for _, c := range []struct {
		before  event.State
		prepare func(testing.TB, *connected)
	}{
		{event.StateEstablished, func(t testing.TB, c *connected) {
			_, err := c.server.Write(make([]byte, unread))
			require.NoError(t, err)
		}},
		{event.StateCloseWait, func(t testing.TB, c *connected) {
			_, err := c.server.Write(make([]byte, unread))
			require.NoError(t, err)
			require.NoError(t, c.server.CloseWrite())
			awaitState(t, c.Socket, event.StateCloseWait)
		}},
		{event.StateFinWait2, func(t testing.TB, c *connected) {
			require.NoError(t, c.Shutdown())
			awaitState(t, c.Socket, event.StateFinWait2)
			_, err := c.server.Write(make([]byte, unread))
			require.NoError(t, err)
		}},
	} {
		conn := connectTo(t, w, f, nettest.New(t))
		before := conn.net.Client.Counters(t)
		c.prepare(t, conn)
		awaitUnread(t, conn.Socket, unread)
		age := time.Duration(nettest.Monotonic() - conn.before.KTime)
		sp := conn.close(t)

		client, server := conn.sides(w)
		e := client.only(t)
		sp.requireWithin(t, &e)
		conn.requireResetSent(t, &e, "tcp_abort_on_close", c.before)
		require.EqualValues(t, unread, e.Snapshot.ReceiveQueue)
		require.Zero(t, e.Snapshot.SendQueue)
		require.Negative(t, e.Snapshot.LastSendAge, "never sent data")
		require.GreaterOrEqual(t, e.Snapshot.LastReceiveAge, time.Duration(0))
		require.LessOrEqual(t, e.Snapshot.LastReceiveAge, sp.length+age+10*time.Millisecond)
		require.GreaterOrEqual(t, e.Snapshot.ConnectionAge, age)
		require.LessOrEqual(t, e.Snapshot.ConnectionAge, sp.length+age+10*time.Millisecond)
		counted := conn.net.Client.Counters(t).Since(before)
		require.EqualValues(t, 1, counted["TcpExt.TCPAbortOnClose"])
		require.EqualValues(t, 1, counted["Tcp.OutRsts"])

		r := server.only(t)
		require.Equal(t, event.KindResetReceived, r.Kind)
		require.Equal(t, reversed(conn.flow), r.Flow)
	}
}

func resetLinger(t testing.TB, w *watch, f nettest.Family) {
	conn := connectTo(t, w, f, nettest.New(t))
	require.NoError(t, conn.Write(make([]byte, 5)))
	require.NoError(t, conn.SetLinger0())
	sp := conn.close(t)
	client, server := conn.sides(w)
	e := client.only(t)
	sp.requireWithin(t, &e)
	conn.requireResetSent(t, &e, "tcp_state", event.StateEstablished)
	require.Zero(t, e.Snapshot.ReceiveQueue)
	require.GreaterOrEqual(t, e.Snapshot.LastSendAge, time.Duration(0))
	r := server.only(t)
	require.Equal(t, event.KindResetReceived, r.Kind)
	require.Equal(t, event.StateEstablished, r.State)
	require.EqualValues(t, 5, r.Snapshot.ReceiveQueue)
}

// One socket can have many connections; what is remembered of one must not be told of the next.
func resetDisconnect(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_early_retrans", "0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, toServer(conn)))
	conn.send(t, 1000) // so that the socket has retransmitted before it connects again
	var err error
	sp := timed(func() { conn.thread.Do(func() { err = disconnect(conn.Socket) }) })
	require.NoError(t, err)
	client, _ := conn.sides(w)
	e := client.kind(event.KindResetSent).only(t)
	sp.requireWithin(t, &e)
	conn.requireResetSent(t, &e, "tcp_state", event.StateEstablished)

	l := n.Server.Listen(t, n.ServerAddr(f))
	second := n.Client.Thread(t, "second")
	sp = timed(func() { second.Do(func() { err = conn.Connect(l.Addr) }) })
	require.NoError(t, err)
	e = w.in(n.Client).kind(event.KindConnectCompleted).where(func(e *event.Event) bool { return e.Flow.Peer == l.Addr }).only(t)
	sp.requireWithin(t, &e)
	require.Equal(t, conn.cookie, e.Cookie)
	require.Zero(t, e.SynRetransmits)
	require.Less(t, e.Duration, sp.length)
	requireThread(t, &e, event.OwnerOpener, second)
	nettest.Reset(l.Next(t))
	e = w.in(n.Client).kind(event.KindResetReceived).only(t)
	require.Equal(t, l.Addr, e.Flow.Peer)
	require.Less(t, e.Snapshot.ConnectionAge, time.Duration(nettest.Monotonic()-sp.from))
	requireThread(t, &e, event.OwnerOpener, second)
}

// The application closed in good order; the peer speaks on, to a socket that nobody holds any more.
func resetDataAfterClose(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_fin_timeout", "120") // above 60 s the socket stays a full one in FIN_WAIT2
	conn := connectTo(t, w, f, n)
	before := n.Client.Counters(t)
	conn.close(t)
	// The FIN's acknowledgement moves the orphan to FIN_WAIT2; the peer sees the FIN at that same moment.
	_, err := conn.server.Read(make([]byte, 1))
	require.Error(t, err)
	sp := timed(func() { _, err = conn.server.Write([]byte("too late")) })
	require.NoError(t, err)

	client, server := conn.sides(w)
	e := client.only(t) // the kernel also runs through its code for a received RST (tcp_reset), but none was received
	require.GreaterOrEqual(t, e.KTime, sp.from)
	require.Equal(t, "tcp_abort_on_data", e.Reason, describe(&e))
	require.Equal(t, conn.flow, e.Flow)
	require.Contains(t, []event.State{event.StateFinWait1, event.StateFinWait2}, e.State, describe(&e))
	require.Equal(t, event.OwnerOpener, e.Owner.Source, "softirq, or another thread's call: never the current one")
	requireThread(t, &e, event.OwnerOpener, conn.thread)
	require.EqualValues(t, 1, n.Client.Counters(t).Since(before)["Tcp.OutRsts"])
	r := server.only(t)
	require.Equal(t, event.KindResetReceived, r.Kind)
	require.Equal(t, event.StateCloseWait, r.State)
}

func resetNoSocket(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	from, to := netip.AddrPortFrom(n.ClientAddr(f), 7200), serverPort(n, f, 7201)
	before := n.Server.Counters(t)
	sp := timed(func() {
		n.Client.Do(t, nettest.Segment{From: from, To: to, Seq: 1000, Ack: 2000, Flags: nettest.ACK}.Send)
	})

	e := w.in(n.Server).only(t)
	sp.requireAfter(t, &e)
	require.Equal(t, event.KindResetSent, e.Kind)
	require.Equal(t, "no_socket", e.Reason)
	require.Equal(t, event.Flow{Local: to, Peer: from}, e.Flow)
	require.Equal(t, event.OwnerNone, e.Owner.Source)
	require.Zero(t, e.Owner)
	require.False(t, e.HasSnapshot)
	require.Zero(t, e.Cookie)
	require.Zero(t, e.State, "there is no socket to have one")
	require.EqualValues(t, 1, n.Server.Counters(t).Since(before)["Tcp.OutRsts"])
	w.in(n.Client).none(t) // nobody there either, and a RST is never answered
}

// A socket that was closed in FIN_WAIT2 is a mini-socket, and resets whoever sends data to it. One in real TIME_WAIT does not.
func resetTimeWait(t testing.TB, w *watch, f nettest.Family) {
	conn := connectTo(t, w, f, nettest.New(t))
	require.NoError(t, conn.Shutdown())
	awaitState(t, conn.Socket, event.StateFinWait2)
	conn.close(t)
	before := conn.net.Client.Counters(t)
	sp := timed(func() {
		_, err := conn.server.Write([]byte("too late"))
		require.NoError(t, err)
	})
	client, _ := conn.sides(w)
	e := client.only(t)
	require.GreaterOrEqual(t, e.KTime, sp.from)
	require.Equal(t, event.KindResetSent, e.Kind)
	require.Equal(t, "tcp_timewait_socket", e.Reason, describe(&e))
	require.Equal(t, event.StateTimeWait, e.State, describe(&e))
	require.Equal(t, conn.flow, e.Flow)
	require.False(t, e.HasSnapshot, "a mini-socket has none of it")
	require.NotEqual(t, event.OwnerCurrent, e.Owner.Source)
	require.EqualValues(t, 1, conn.net.Client.Counters(t).Since(before)["Tcp.OutRsts"])

	conn = connectTo(t, w, f, nettest.New(t))
	require.NoError(t, conn.Shutdown())
	awaitState(t, conn.Socket, event.StateFinWait2)
	require.NoError(t, conn.server.Close())
	awaitState(t, conn.Socket, event.StateClose) // the mini-socket has taken its place
	conn.close(t)
	conn.net.Server.Do(t, nettest.Segment{From: conn.flow.Peer, To: conn.flow.Local, Seq: 1, Ack: 1, Flags: nettest.ACK | nettest.PSH,
		Payload: []byte("stray")}.Send)
	client, _ = conn.sides(w)
	client.none(t)
}

// A final ACK with a wrong number is answered in the name of the listener, whose flow is not the packet's.
func resetRequest(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	from := netip.AddrPortFrom(n.ClientAddr(f), 7202)
	n.Client.Filter(t, "deaf", "input", "tcp dport 7202 drop") // the client's kernel would reset what it does not know
	n.Client.Do(t, nettest.Segment{From: from, To: l.Addr, Seq: 5000, Flags: nettest.SYN}.Send)
	before := n.Server.Counters(t)
	n.Client.Do(t, nettest.Segment{From: from, To: l.Addr, Seq: 5001, Ack: 1, Flags: nettest.ACK}.Send)

	e := w.in(n.Server).kind(event.KindResetSent).only(t)
	require.Equal(t, event.Flow{Local: l.Addr, Peer: from}, e.Flow)
	require.False(t, e.HasSnapshot, "the listener's numbers are not the connection's")
	require.NotEqual(t, event.OwnerCurrent, e.Owner.Source)
	require.EqualValues(t, 1, n.Server.Counters(t).Since(before)["Tcp.OutRsts"])
	t.Log(describe(&e))
}

func resetReceived(t testing.TB, w *watch, f nettest.Family) {
	for _, closeWait := range []bool{false, true} {
		conn := connectTo(t, w, f, nettest.New(t))
		before := event.StateEstablished
		if closeWait {
			require.NoError(t, conn.server.CloseWrite())
			awaitState(t, conn.Socket, event.StateCloseWait)
			before = event.StateCloseWait
		}
		require.NoError(t, conn.Write(make([]byte, 33)))
		sp := timed(func() { nettest.Reset(conn.server) })

		client, server := conn.sides(w)
		e := client.only(t)
		sp.requireAfter(t, &e)
		require.Equal(t, event.KindResetReceived, e.Kind)
		require.Equal(t, before, e.State)
		require.Equal(t, conn.flow, e.Flow)
		require.Equal(t, conn.cookie, e.Cookie)
		requireThread(t, &e, event.OwnerOpener, conn.thread)
		require.True(t, e.HasSnapshot)
		require.Positive(t, e.Snapshot.SRTT)
		require.Positive(t, e.Snapshot.ConnectionAge)
		require.Empty(t, e.Reason)
		r := server.only(t)
		require.Equal(t, event.KindResetSent, r.Kind)
		require.Equal(t, reversed(conn.flow), r.Flow)
	}
}

// A socket that was accepted has no opener known yet; nothing may be claimed.
func resetReceivedAccepted(t testing.TB, w *watch, f nettest.Family) {
	conn := connectTo(t, w, f, nettest.New(t))
	require.NoError(t, conn.SetLinger0())
	conn.close(t)
	_, server := conn.sides(w)
	e := server.only(t)
	require.Equal(t, event.KindResetReceived, e.Kind)
	require.Equal(t, reversed(conn.flow), e.Flow)
	require.Equal(t, event.StateEstablished, e.State)
	require.NotEqual(t, event.OwnerCurrent, e.Owner.Source)
	require.True(t, e.HasSnapshot)
}

func resetLoopback(t testing.TB, w *watch, f nettest.Family) {
	ns := nettest.NewNamespace(t)
	l := ns.Listen(t, f.Loopback())
	th := ns.Thread(t, "local")
	s, local, _, err := dial(t, th, f, l.Addr)
	require.NoError(t, err)
	server := l.Next(t)
	_, err = server.Write([]byte("unread"))
	require.NoError(t, err)
	awaitUnread(t, s, 6)
	th.Do(func() { err = s.Close() })
	require.NoError(t, err)

	sent := w.in(ns).kind(event.KindResetSent).only(t)
	received := w.in(ns).kind(event.KindResetReceived).only(t)
	require.Equal(t, event.Flow{Local: local, Peer: l.Addr}, sent.Flow)
	require.Equal(t, reversed(sent.Flow), received.Flow)
	require.Equal(t, event.StateEstablished, sent.State)
	require.Equal(t, event.StateEstablished, received.State)
	requireThread(t, &sent, event.OwnerCurrent, th)
	require.NotEqual(t, event.OwnerCurrent, received.Owner.Source, "the closer's thread is not the receiver's")
	require.EqualValues(t, 6, sent.Snapshot.ReceiveQueue)
}

func resetKeepalive(t testing.TB, w *watch, f nettest.Family) {
	conn := connectTo(t, w, f, nettest.New(t))
	resetByTimer(t, w, conn, [][3]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 1},
	})
}

func resetUserTimeout(t testing.TB, w *watch, f nettest.Family) {
	conn := connectTo(t, w, f, nettest.New(t))
	resetByTimer(t, w, conn, [][3]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 100},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1500},
	})
}

func resetByTimer(t testing.TB, w *watch, conn *connected, options [][3]int) {
	t.Helper()
	conn.net.Server.Filter(t, "hole", "input", fmt.Sprintf("tcp dport %d drop", conn.flow.Peer.Port()))
	sp := timed(func() {
		for _, o := range options {
			require.NoError(t, conn.SetOption(o[0], o[1], o[2]))
		}
		require.NoError(t, conn.AwaitReadable())
	})
	require.ErrorIs(t, conn.Error(), unix.ETIMEDOUT)

	client, _ := conn.sides(w)
	e := client.only(t)
	sp.requireWithin(t, &e)
	require.Equal(t, event.KindResetSent, e.Kind)
	require.Equal(t, "tcp_keepalive_timeout", e.Reason, describe(&e))
	require.Equal(t, event.StateEstablished, e.State)
	require.Equal(t, conn.flow, e.Flow)
	requireThread(t, &e, event.OwnerOpener, conn.thread)
	require.True(t, e.HasSnapshot)
}
