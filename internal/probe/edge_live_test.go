// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

func TestRareConnectsAndResetsAreToldAndCounted(t *testing.T) {
	w := newWatch(t, everything())
	t.Run("all", func(t *testing.T) {
		runIn(t, w, []scenario{
			{"no port left on a socket that was refused", connectWithoutPortAfterRefusal},
			{"no port left on a socket that was disconnected", connectWithoutPortAfterDisconnect},
			{"deferred SYN that was never sent", connectDeferredForGood},
			{"refused with Fast Open", connectRefusedWithFastOpen},
			{"raw socket", connectRaw},
			{"wrong lengths of the address", connectWrongLength},
			{"restored", connectRestored},
			{"aborted in the middle of a simultaneous open", connectAbortedSimultaneously},
			{"aborted by the kernel's own thread", connectAbortedByGarbageCollector},
			{"disconnected with unsent data", resetDisconnectUnsent},
			{"received just after close", resetReceivedAfterClose},
			{"data after shutdown and close", resetDataAfterShutdown},
			{"killed with unread data", resetKilled},
		})
	})
	w.requireCountedAsTold(t)
}

// requireCountedAsTold holds all that was counted, of the whole host, against all that was told. Others on this host may go on
// making more meanwhile.
func (w *watch) requireCountedAsTold(t testing.TB) {
	t.Helper()
	var before, after event.Counters
	require.NoError(t, w.source.Counters(&before))
	w.flush(t)
	told := tallyOfEvents(w.everywhere(func(*event.Event) bool { return true }))
	require.NoError(t, w.source.Counters(&after))
	atLeast, atMost := tallyOfCounters(&before), tallyOfCounters(&after)
	for name, n := range atLeast {
		require.LessOrEqual(t, n, told[name], "%s: counted, but not told", name)
	}
	for name, n := range told {
		require.LessOrEqual(t, n, atMost[name], "%s: told, but not counted", name)
	}
}

// connects sees the ends of handshakes.
func (v view) connects() view {
	return v.where(func(e *event.Event) bool {
		return e.Kind == event.KindConnectCompleted || e.Kind == event.KindConnectFailed
	})
}

func (v view) resets() view {
	return v.where(func(e *event.Event) bool { return e.Kind == event.KindResetSent || e.Kind == event.KindResetReceived })
}

// exactly is the view of n events after everything that has happened so far was read.
func (v view) exactly(t testing.TB, n int) []event.Event {
	t.Helper()
	v.await(t, n)
	events := v.settled(t)
	require.Len(t, events, n, v.w.describe(events))
	return events
}

// usePorts takes all but two source ports away, and then these.
func usePorts(t testing.TB, n *nettest.Net, th *nettest.Thread, f nettest.Family, to netip.AddrPort) {
	t.Helper()
	for range 2 {
		_, _, _, err := dial(t, th, f, to)
		require.NoError(t, err)
	}
}

// requireNoPort holds the failure of a connect that found no source port against what is told of it.
func requireNoPort(t testing.TB, e *event.Event, th *nettest.Thread, to netip.AddrPort) {
	t.Helper()
	requireFailed(t, e, event.OutcomeAddressNotAvailable, unix.EADDRNOTAVAIL, to)
	require.False(t, e.HasDuration, "nothing was sent")
	require.Equal(t, event.StateSynSent, e.State)
	require.Zero(t, e.SynRetransmits)
	require.Zero(t, e.Flow.Local.Port(), "it had none: %s", describe(e))
	requireThread(t, e, event.OwnerCurrent, th)
}

// The kernel leaves the port of the connect before in the socket.
func connectWithoutPortAfterRefusal(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40001")
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	th := n.Client.Thread(t, "portless")
	closed := serverPort(n, f, 9)
	s, _, _, err := dial(t, th, f, closed)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	usePorts(t, n, th, f, l.Addr)
	before := n.Client.Counters(t)
	sp := timed(func() { th.Do(func() { err = s.Connect(l.Addr) }) })
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	counted := n.Client.Counters(t).Since(before)
	require.Zero(t, counted["Tcp.ActiveOpens"])
	require.Zero(t, counted["Tcp.OutSegs"])

	events := w.in(n.Client).exactly(t, 4)
	requireFailed(t, &events[0], event.OutcomeRefused, unix.ECONNREFUSED, closed)
	require.Equal(t, event.OutcomeOK, events[1].Outcome)
	require.Equal(t, event.OutcomeOK, events[2].Outcome)
	sp.requireWithin(t, &events[3])
	require.Equal(t, events[0].Cookie, events[3].Cookie)
	requireNoPort(t, &events[3], th, l.Addr)
}

// Disconnecting leaves an error in the socket as well.
func connectWithoutPortAfterDisconnect(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40001")
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	th := n.Client.Thread(t, "portless")
	s, _, _, err := dial(t, th, f, l.Addr)
	require.NoError(t, err)
	th.Do(func() { err = disconnect(s) })
	require.NoError(t, err)
	usePorts(t, n, th, f, l.Addr)
	before := n.Client.Counters(t)
	sp := timed(func() { th.Do(func() { err = s.Connect(l.Addr) }) })
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	require.Zero(t, n.Client.Counters(t).Since(before)["Tcp.ActiveOpens"])

	events := w.in(n.Client).exactly(t, 5)
	require.Equal(t, event.KindConnectCompleted, events[0].Kind)
	require.Equal(t, event.KindResetSent, events[1].Kind)
	require.Equal(t, event.KindConnectCompleted, events[2].Kind)
	require.Equal(t, event.KindConnectCompleted, events[3].Kind)
	sp.requireWithin(t, &events[4])
	require.Equal(t, events[0].Cookie, events[4].Cookie)
	requireNoPort(t, &events[4], th, l.Addr)
}

// dialFastOpen connects with TCP_FASTOPEN_CONNECT, which may put the SYN off.
func dialFastOpen(t testing.TB, th *nettest.Thread, f nettest.Family, to netip.AddrPort) (s *nettest.Socket, sp span, err error) {
	t.Helper()
	var prepare error
	th.Do(func() {
		if s, prepare = nettest.NewSocket(f); prepare == nil {
			prepare = s.SetOption(unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
		}
	})
	require.NoError(t, prepare)
	s.CloseAtEnd(t)
	sp = timed(func() { th.Do(func() { err = s.Connect(to) }) })
	return s, sp, err
}

func connectDeferredForGood(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_fastopen", "5") // client, also without a cookie
	l := n.Server.Listen(t, n.ServerAddr(f))
	th := n.Client.Thread(t, "irresolute")
	s, _, err := dialFastOpen(t, th, f, l.Addr)
	require.NoError(t, err)
	local, err := s.Local()
	require.NoError(t, err)
	sp := timed(func() { th.Do(func() { err = s.Close() }) })
	require.NoError(t, err)
	counted := n.Client.Counters(t)
	require.Zero(t, counted["Tcp.ActiveOpens"])
	require.Zero(t, counted["Tcp.OutSegs"])

	e := w.in(n.Client).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeAborted, 0, l.Addr)
	require.False(t, e.HasDuration, "nothing was sent")
	require.Equal(t, event.StateSynSent, e.State)
	require.Equal(t, local, e.Flow.Local)
	requireThread(t, &e, event.OwnerCurrent, th)
	w.in(n.Server).none(t)
}

// Without a cookie the SYN leaves at once, to ask for one.
func connectRefusedWithFastOpen(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	to := serverPort(n, f, 9)
	th := n.Client.Thread(t, "unwanted")
	_, sp, err := dialFastOpen(t, th, f, to)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.EqualValues(t, 1, n.Client.Counters(t)["Tcp.ActiveOpens"])

	e := w.in(n.Client).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeRefused, unix.ECONNREFUSED, to)
	require.True(t, e.HasDuration)
	require.Positive(t, e.Duration)
	require.Less(t, e.Duration, sp.length)
	require.NotZero(t, e.Flow.Local.Port())
	requireThread(t, &e, event.OwnerOpener, th)
}

func connectRaw(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	var s *nettest.Socket
	n.Client.Do(t, func() (err error) {
		s, err = nettest.NewRawSocket(f)
		return err
	})
	s.CloseAtEnd(t)
	var err error
	n.Client.Thread(t, "raw").Do(func() { err = s.Connect(elsewhere(f).addr) })
	require.ErrorIs(t, err, unix.ENETUNREACH)
	w.in(n.Client).none(t)
}

// rawAddress is the address as connect takes it.
func rawAddress(f nettest.Family, to netip.AddrPort) []byte {
	if f == nettest.V4 {
		b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
		b = binary.BigEndian.AppendUint16(b, to.Port())
		b = append(b, to.Addr().AsSlice()...)
		return append(b, make([]byte, 8)...)
	}
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = append(b, make([]byte, 4)...)
	addr := to.Addr().As16()
	b = append(b, addr[:]...)
	return append(b, make([]byte, 4)...)
}

// The address itself is one that the routing table refuses: only its length makes the call a wrong one.
func connectWrongLength(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	to := elsewhere(f).addr
	addr := rawAddress(f, to)
	long := append(addr[:len(addr):len(addr)], make([]byte, 200-len(addr))...)
	th := n.Client.Thread(t, "wrong")
	var s *nettest.Socket
	var err error
	var errs [4]error
	th.Do(func() {
		if s, err = nettest.NewSocket(f); err != nil {
			return
		}
		errs[0] = rawConnect(s.FD, long)
		errs[1] = rawConnectLength(s.FD, long, -5)
		errs[2] = rawConnectLength(s.FD, long, 0)
	})
	require.NoError(t, err)
	s.CloseAtEnd(t)
	require.ErrorIs(t, errs[0], unix.EINVAL)
	require.ErrorIs(t, errs[1], unix.EINVAL)
	require.ErrorIs(t, errs[2], unix.EINVAL)
	w.in(n.Client).none(t)

	th.Do(func() { err = rawConnect(s.FD, addr) })
	require.ErrorIs(t, err, unix.ENETUNREACH)
	e := w.in(n.Client).only(t)
	requireFailed(t, &e, event.OutcomeNetworkUnreachable, unix.ENETUNREACH, to)
}

// A connection that TCP_REPAIR brings back had its handshake elsewhere.
func connectRestored(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	th := n.Client.Thread(t, "restorer")
	restore := func(local, peer netip.AddrPort) (s *nettest.Socket) {
		t.Helper()
		var err error
		th.Do(func() {
			if s, err = nettest.NewSocket(f); err != nil {
				return
			}
			if err = s.SetOption(unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
				return
			}
			if err = s.Bind(local); err == nil {
				err = s.Connect(peer)
			}
		})
		require.NoError(t, err)
		s.CloseAtEnd(t)
		awaitState(t, s, event.StateEstablished)
		return s
	}
	local, peer := netip.AddrPortFrom(n.ClientAddr(f), 7500), serverPort(n, f, 7501)
	require.NoError(t, restore(netip.AddrPortFrom(local.Addr(), 7502), peer).Close()) // still under repair: silently
	s := restore(local, peer)
	require.NoError(t, s.SetOption(unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP))
	counted := n.Client.Counters(t)
	require.Zero(t, counted["Tcp.ActiveOpens"])
	require.Zero(t, counted["Tcp.OutSegs"])
	w.in(n.Client).none(t)

	require.NoError(t, s.Write([]byte("anybody there?")))
	e := w.in(n.Client).only(t)
	require.Equal(t, event.KindResetReceived, e.Kind, describe(&e))
	require.Equal(t, event.StateEstablished, e.State)
	require.Equal(t, event.Flow{Local: local, Peer: peer}, e.Flow)
	require.Negative(t, e.Snapshot.ConnectionAge, "nobody knows when it began")
	requireThread(t, &e, event.OwnerOpener, th)
}

func connectAbortedSimultaneously(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_orphan_retries", "1")
	n.Client.Filter(t, "deaf", "input", "tcp flags & ack == ack drop")
	s, _, th, _ := simultaneously(t, n, f)
	awaitState(t, s, event.StateSynRecv)
	cookie, err := s.Cookie()
	require.NoError(t, err)
	local, err := s.Local()
	require.NoError(t, err)
	sp := timed(func() { th.Do(func() { err = s.Close() }) })
	require.NoError(t, err)

	e := w.in(n.Client).connects().only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeAborted, 0, serverPort(n, f, 7002))
	require.Equal(t, local, e.Flow.Local)
	require.Equal(t, cookie, e.Cookie)
	require.Equal(t, event.StateSynRecv, e.State)
	require.True(t, e.HasDuration)
	require.Positive(t, e.Duration)
	requireThread(t, &e, event.OwnerCurrent, th)

	// Until the kernel has given up as well, with another change to CLOSE.
	eventually(t, "the end of the orphan", func() bool { return n.Client.TCPSockets(t) == 0 })
	w.in(n.Client).connects().only(t)
	w.in(n.Client).resets().none(t)
}

// A socket on its way inside a message to nobody is closed by the garbage collector of Unix sockets, on a thread of the kernel.
func connectAbortedByGarbageCollector(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	to := serverPort(n, f, 7005)
	th := n.Client.Thread(t, "forgetful")
	s := dialNonblock(t, th, f, to)
	local, err := s.Local()
	require.NoError(t, err)
	th.Do(func() { err = loseInCycle(s) })
	require.NoError(t, err)
	v := w.in(n.Client).connects()
	eventually(t, "a collection", func() bool {
		if closePair() != nil {
			return false
		}
		events, _ := v.now()
		return len(events) > 0
	})
	e := v.only(t)
	requireFailed(t, &e, event.OutcomeAborted, 0, to)
	require.Equal(t, local, e.Flow.Local)
	require.Equal(t, event.StateSynSent, e.State)
	require.True(t, e.HasDuration)
	requireThread(t, &e, event.OwnerOpener, th)
}

// loseInCycle sends the socket through a pair of Unix sockets, and each end through the other, and closes all three, the socket
// first: the pair is its last holder.
func loseInCycle(s *nettest.Socket) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(s.FD, pair[0]), nil, 0); err != nil {
		return err
	}
	if err := unix.Sendmsg(pair[1], []byte{0}, unix.UnixRights(pair[1]), nil, 0); err != nil {
		return err
	}
	return s.Close()
}

// closePair closes a pair of Unix sockets, at which the kernel looks for garbage. It may not find it the first time.
func closePair() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Close(pair[0]), unix.Close(pair[1]))
}

// listenOn makes a listener of the thread's own.
func listenOn(t testing.TB, th *nettest.Thread, f nettest.Family, addr netip.Addr) (*nettest.Socket, netip.AddrPort) {
	t.Helper()
	var l *nettest.Socket
	var err error
	th.Do(func() {
		if l, err = nettest.NewSocket(f); err != nil {
			return
		}
		if err = l.Bind(netip.AddrPortFrom(addr, 0)); err == nil {
			err = unix.Listen(l.FD, 16)
		}
	})
	require.NoError(t, err)
	l.CloseAtEnd(t)
	local, err := l.Local()
	require.NoError(t, err)
	return l, local
}

func acceptOn(t testing.TB, th *nettest.Thread, l *nettest.Socket) *nettest.Socket {
	t.Helper()
	var s *nettest.Socket
	var err error
	th.Do(func() { s, err = l.Accept() })
	require.NoError(t, err)
	return s.CloseAtEnd(t)
}

func resetDisconnectUnsent(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	th := n.Server.Thread(t, "acceptor")
	l, addr := listenOn(t, th, f, n.ServerAddr(f))
	c, local, _, err := dial(t, n.Client.Thread(t, "client"), f, addr)
	require.NoError(t, err)
	s := acceptOn(t, th, l)
	require.NoError(t, c.Shutdown())
	awaitState(t, s, event.StateCloseWait)
	require.NoError(t, s.Fill())
	require.NoError(t, s.Shutdown())
	awaitState(t, s, event.StateLastAck)
	info, err := s.Info()
	require.NoError(t, err)
	require.Positive(t, info.Notsent_bytes)
	cookie, err := s.Cookie()
	require.NoError(t, err)
	before := n.Server.Counters(t)
	sp := timed(func() { th.Do(func() { err = disconnect(s) }) })
	require.NoError(t, err)
	require.EqualValues(t, 1, n.Server.Counters(t).Since(before)["Tcp.OutRsts"])

	e := w.in(n.Server).resets().only(t)
	sp.requireWithin(t, &e)
	require.Equal(t, event.KindResetSent, e.Kind, describe(&e))
	require.Equal(t, "tcp_disconnect_with_data", e.Reason)
	require.Equal(t, event.StateLastAck, e.State)
	require.Equal(t, event.Flow{Local: addr, Peer: local}, e.Flow)
	require.Equal(t, cookie, e.Cookie)
	requireThread(t, &e, event.OwnerCurrent, th)
	r := w.in(n.Client).resets().only(t)
	require.Equal(t, event.KindResetReceived, r.Kind, describe(&r))
	require.Equal(t, event.StateFinWait2, r.State)
	require.Equal(t, event.Flow{Local: local, Peer: addr}, r.Flow)
}

// The peer throws away what it has not read, a moment after the server has closed in good order and within one tick of the last
// ACK: a RST that was received, not one that answers data.
func resetReceivedAfterClose(t testing.TB, w *watch, f nettest.Family) {
	const connections = 20
	ns := nettest.NewNamespace(t)
	ns.Sysctl(t, "net.ipv4.tcp_rmem", "4096 65536 65536") // far less than is sent: the FIN never arrives
	sth, cth := ns.Thread(t, "server"), ns.Thread(t, "client")
	l, addr := listenOn(t, sth, f, f.Loopback())
	locals := map[netip.AddrPort]bool{}
	for range connections {
		c, local, _, err := dial(t, cth, f, addr)
		require.NoError(t, err)
		locals[local] = true
		s := acceptOn(t, sth, l)
		require.NoError(t, s.SetOption(unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20))
		require.NoError(t, s.Fill())
		require.NoError(t, s.Close())
		cth.Do(func() {
			b := make([]byte, 64<<10)
			for range 4 {
				if _, err = c.Read(b); err != nil {
					return
				}
				if err = c.AwaitReadable(); err != nil { // it must be closed with unread data
					return
				}
			}
			err = c.Close()
		})
		require.NoError(t, err)
	}
	require.EqualValues(t, connections, ns.Counters(t)["Tcp.OutRsts"])
	received := w.in(ns).kind(event.KindResetReceived).exactly(t, connections)
	for _, e := range received {
		require.Equal(t, addr, e.Flow.Local, describe(&e))
		require.True(t, locals[e.Flow.Peer], describe(&e))
		delete(locals, e.Flow.Peer)
		require.Equal(t, event.StateFinWait1, e.State, describe(&e))
		requireThread(t, &e, event.OwnerOpener, sth)
	}
	for _, e := range w.in(ns).kind(event.KindResetSent).exactly(t, connections) {
		require.Equal(t, "tcp_abort_on_close", e.Reason, describe(&e))
		require.Equal(t, addr, e.Flow.Peer)
		require.Equal(t, event.StateEstablished, e.State, describe(&e))
		requireThread(t, &e, event.OwnerCurrent, cth)
	}
}

// A socket that was shut down first is in FIN_WAIT1 already when it is closed.
func resetDataAfterShutdown(t testing.TB, w *watch, f nettest.Family) {
	conn := connectTo(t, w, f, nettest.New(t))
	require.NoError(t, conn.Fill())
	require.NoError(t, conn.Shutdown())
	awaitState(t, conn.Socket, event.StateFinWait1)
	before := conn.net.Client.Counters(t)
	conn.close(t)
	sp := timed(func() {
		_, err := conn.server.Write([]byte("too late"))
		require.NoError(t, err)
	})

	client, server := conn.sides(w)
	e := client.resets().only(t) // none received
	require.GreaterOrEqual(t, e.KTime, sp.from)
	require.Equal(t, event.KindResetSent, e.Kind, describe(&e))
	require.Equal(t, "tcp_abort_on_data", e.Reason)
	require.Equal(t, event.StateFinWait1, e.State, describe(&e))
	require.Equal(t, conn.flow, e.Flow)
	requireThread(t, &e, event.OwnerOpener, conn.thread)
	counted := conn.net.Client.Counters(t).Since(before)
	require.EqualValues(t, 1, counted["TcpExt.TCPAbortOnData"])
	require.EqualValues(t, 1, counted["Tcp.OutRsts"])
	r := server.resets().only(t)
	require.Equal(t, event.KindResetReceived, r.Kind, describe(&r))
	require.Equal(t, reversed(conn.flow), r.Flow)
}

// By the time the kernel closes the descriptors of a dying process, its executable is gone; the one that opened the socket is known.
func resetKilled(t testing.TB, w *watch, f nettest.Family) {
	const unread = 99
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	child := n.Client.Child(t, false, "connect", f.String(), l.Addr.String(), "victim", "nonblock")
	_, _, port := parseChild(t, child.Line(t))
	server := l.Next(t)
	_, err := server.Write(make([]byte, unread))
	require.NoError(t, err)
	awaitAcknowledged(t, server)
	sp := timed(child.Kill)

	e := w.in(n.Client).resets().only(t)
	sp.requireWithin(t, &e)
	require.Equal(t, event.KindResetSent, e.Kind, describe(&e))
	require.Equal(t, "tcp_abort_on_close", e.Reason)
	require.Equal(t, event.StateEstablished, e.State)
	require.Equal(t, event.Flow{Local: netip.AddrPortFrom(n.ClientAddr(f), port), Peer: l.Addr}, e.Flow)
	require.EqualValues(t, unread, e.Snapshot.ReceiveQueue)
	require.Equal(t, event.OwnerCurrent, e.Owner.Source)
	require.EqualValues(t, child.PID, e.Owner.PID)
	require.Equal(t, executable(t), text(e.Owner.Executable[:]))
	r := w.in(n.Server).resets().only(t)
	require.Equal(t, event.KindResetReceived, r.Kind, describe(&r))
}

// awaitAcknowledged waits until the peer's kernel has all that was written.
func awaitAcknowledged(t testing.TB, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	require.NoError(t, err)
	eventually(t, "all acknowledged", func() bool {
		queued := -1
		err := raw.Control(func(fd uintptr) { queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		return err == nil && queued == 0
	})
}

// Of a connect that began earlier only the end is seen, and by two hooks if connect() waits for it.
func TestConnectBegunBeforeTheSourceIsToldOnce(t *testing.T) {
	tryScenario(t, func(t testing.TB) {
		type attempt struct {
			net     *nettest.Net
			to      netip.AddrPort
			outcome event.Outcome
			errno   unix.Errno
			err     error
			done    <-chan struct{}
			socket  *nettest.Socket
		}
		requireLive(t)
		var attempts []*attempt
		for _, f := range nettest.Families() {
			unreachable := "meta nfproto ipv4 tcp dport 7400 reject with icmp type host-unreachable"
			if f == nettest.V6 {
				unreachable = "meta nfproto ipv6 tcp dport 7400 reject with icmpv6 type addr-unreachable"
			}
			n := nettest.New(t)
			n.Server.Filter(t, "reject", "input", unreachable)
			n.Server.Filter(t, "hole", "prerouting", "tcp dport 7400-7401 drop")
			for i, a := range []*attempt{
				{outcome: event.OutcomeHostUnreachable, errno: unix.EHOSTUNREACH},
				{outcome: event.OutcomeRefused, errno: unix.ECONNREFUSED},
			} {
				a.net, a.to = n, serverPort(n, f, uint16(7400+i))
				th := n.Client.Thread(t, fmt.Sprint("early", i))
				th.Do(func() { a.socket, a.err = nettest.NewSocket(f) })
				require.NoError(t, a.err)
				a.socket.CloseAtEnd(t)
				a.done = th.Go(func() { a.err = a.socket.Connect(a.to) })
				eventually(t, "SYN", func() bool { return n.Client.Counters(t)["Tcp.ActiveOpens"] == uint64(i+1) })
				attempts = append(attempts, a)
			}
		}
		w := newWatch(t, everything())
		opened := nettest.Monotonic()
		for _, a := range attempts {
			if a.outcome == event.OutcomeRefused { // the last one of its network
				a.net.Server.RemoveTable(t, "hole")
			}
		}
		for _, a := range attempts {
			<-a.done
			require.ErrorIs(t, a.err, a.errno)
			e := w.in(a.net.Client).connects().where(func(e *event.Event) bool { return e.Flow.Peer == a.to }).only(t)
			requireFailed(t, &e, a.outcome, a.errno, a.to)
			require.Greater(t, e.KTime, opened)
			require.Equal(t, event.StateSynSent, e.State)
			require.False(t, e.HasDuration, "its beginning was not seen")
			require.NotZero(t, e.Flow.Local.Port())
			require.Equal(t, event.OwnerScan, e.Owner.Source, "which thread connects is not known, which process has it is")
			require.EqualValues(t, os.Getpid(), e.Owner.PID)
			t.Log(describe(&e))
		}
		w.requireCountedAsTold(t)
	})
}
