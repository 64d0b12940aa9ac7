// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

func TestAcceptsAreTold(t *testing.T) {
	settings := everything()
	settings.AcceptReport = probe.ReportAll
	runIn(t, newWatch(t, settings), []scenario{
		{"after a wait in the queue", acceptAfterWait},
		{"after the SYN-ACK was lost", acceptAfterLoss},
		{"by another thread than the one that listens", acceptByOther},
		{"from an MPTCP listener", acceptMPTCP},
		{"after the client has gone", acceptClosed},
	})
}

// listen makes a listener of raw system calls on the thread.
func listen(t testing.TB, th *nettest.Thread, f nettest.Family, addr netip.Addr) (s *nettest.Socket, at netip.AddrPort) {
	t.Helper()
	var err error
	th.Do(func() {
		if s, err = nettest.NewSocket(f); err != nil {
			return
		}
		if err = s.Bind(netip.AddrPortFrom(addr, 0)); err == nil {
			err = unix.Listen(s.FD, 16)
		}
	})
	require.NoError(t, err)
	s.CloseAtEnd(t)
	at, err = s.Local()
	require.NoError(t, err)
	return s, at
}

func accept(t testing.TB, th *nettest.Thread, l *nettest.Socket) (s *nettest.Socket, sp span) {
	t.Helper()
	var err error
	sp = timed(func() { th.Do(func() { s, err = l.Accept() }) })
	require.NoError(t, err)
	return s.CloseAtEnd(t), sp
}

func acceptAfterWait(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	listening, accepting := n.Server.Thread(t, "listening"), n.Server.Thread(t, "accepting")
	l, at := listen(t, listening, f, n.ServerAddr(f))
	before := n.Server.Counters(t)
	client, local, dialled, err := dial(t, n.Client.Thread(t, "client"), f, at)
	require.NoError(t, err)
	time.Sleep(150 * time.Millisecond) // the wait itself
	s, accepted := accept(t, accepting, l)

	e := w.in(n.Server).kind(event.KindAcceptCompleted).only(t)
	accepted.requireWithin(t, &e)
	require.Equal(t, event.RoleServer, e.Role)
	require.Equal(t, event.StateEstablished, e.State)
	require.Equal(t, event.Flow{Local: at, Peer: local}, e.Flow)
	require.True(t, e.HasWait)
	require.GreaterOrEqual(t, e.Wait, time.Duration(accepted.from-dialled.to)) // connect() returns before the last ACK arrives
	require.LessOrEqual(t, e.Wait, time.Duration(accepted.to-dialled.from))
	require.True(t, e.HasDuration)
	require.Positive(t, e.Duration)
	require.Less(t, e.Duration, dialled.length+time.Millisecond)
	require.Zero(t, e.SynRetransmits)
	cookie, err := s.Cookie()
	require.NoError(t, err)
	require.Equal(t, cookie, e.Cookie)
	require.True(t, e.HasSnapshot)
	require.Positive(t, e.Snapshot.SRTT)
	require.Equal(t, e.Wait, e.Snapshot.ConnectionAge)
	requireThread(t, &e, event.OwnerCurrent, accepting)
	require.Equal(t, executable(t), text(e.Owner.Executable[:]))
	requireStartTime(t, &e, os.Getpid())
	require.EqualValues(t, 1, n.Server.Counters(t).Since(before)["Tcp.PassiveOpens"])

	// From now on what happens to the connection is told of the thread that accepted it.
	require.NoError(t, client.SetLinger0())
	require.NoError(t, client.Close())
	e = w.in(n.Server).kind(event.KindResetReceived).only(t)
	requireThread(t, &e, event.OwnerOpener, accepting)
}

func acceptAfterLoss(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	th := n.Server.Thread(t, "server")
	l, at := listen(t, th, f, n.ServerAddr(f))
	n.Client.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchSYNACK))
	_, _, dialled, err := dial(t, n.Client.Thread(t, "client"), f, at)
	require.NoError(t, err)
	accept(t, th, l)

	e := w.in(n.Server).kind(event.KindAcceptCompleted).only(t)
	require.NotZero(t, e.SynRetransmits)
	require.True(t, e.HasDuration)
	require.InDelta(t, dialled.length.Seconds(), e.Duration.Seconds(), 0.1)
	require.Greater(t, e.Duration, 900*time.Millisecond)
}

func acceptByOther(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l, at := listen(t, n.Server.Thread(t, "listener"), f, n.ServerAddr(f))
	for _, comm := range []string{"first", "second"} {
		th := n.Server.Thread(t, comm)
		_, local, _, err := dial(t, n.Client.Thread(t, "client"), f, at)
		require.NoError(t, err)
		accept(t, th, l)
		e := w.in(n.Server).kind(event.KindAcceptCompleted).where(func(e *event.Event) bool { return e.Flow.Peer == local }).only(t)
		requireThread(t, &e, event.OwnerCurrent, th)
	}
}

// With a plain TCP client accept() on an MPTCP listener returns a TCP socket.
func acceptMPTCP(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.ListenMPTCP(t, n.ServerAddr(f))
	_, local, _, err := dial(t, n.Client.Thread(t, "client"), f, l.Addr)
	require.NoError(t, err)
	l.Next(t)
	e := w.in(n.Server).kind(event.KindAcceptCompleted).only(t)
	require.Equal(t, event.Flow{Local: l.Addr, Peer: local}, e.Flow)
	require.EqualValues(t, os.Getpid(), e.Owner.PID)
}

func acceptClosed(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	th := n.Server.Thread(t, "server")
	l, at := listen(t, th, f, n.ServerAddr(f))
	client, _, _, err := dial(t, n.Client.Thread(t, "client"), f, at)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	accept(t, th, l)
	e := w.in(n.Server).kind(event.KindAcceptCompleted).only(t)
	require.Contains(t, []event.State{event.StateEstablished, event.StateCloseWait}, e.State)
	requireThread(t, &e, event.OwnerCurrent, th)
}

func TestAcceptThresholdDecidesWhatIsTold(t *testing.T) {
	s := everything()
	s.AcceptReport, s.AcceptSlowThreshold = probe.ReportSlow, 100*time.Millisecond
	w := newWatch(t, s)
	n := nettest.New(t)
	th := n.Server.Thread(t, "server")
	l, at := listen(t, th, nettest.V4, n.ServerAddr(nettest.V4))
	var before, after event.Counters
	require.NoError(t, w.source.Counters(&before))
	for range 5 {
		_, _, _, err := dial(t, n.Client.Thread(t, "quick"), nettest.V4, at)
		require.NoError(t, err)
		accept(t, th, l)
	}
	_, slow, _, err := dial(t, n.Client.Thread(t, "slow"), nettest.V4, at)
	require.NoError(t, err)
	time.Sleep(120 * time.Millisecond) // the wait itself
	accept(t, th, l)
	e := w.in(n.Server).kind(event.KindAcceptCompleted).only(t)
	require.Equal(t, slow, e.Flow.Peer)
	require.NoError(t, w.source.Counters(&after))
	require.GreaterOrEqual(t, after.AcceptWaits.Count()-before.AcceptWaits.Count(), uint64(6), "all count")
	require.GreaterOrEqual(t, after.Connections[event.RoleServer][event.OutcomeOK]-before.Connections[event.RoleServer][event.OutcomeOK],
		uint64(6))
}
