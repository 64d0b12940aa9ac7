// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

type scenario struct {
	name string
	run  func(testing.TB, *watch, nettest.Family)
}

// runAll runs the scenarios at once, each in each family, all watched by one Source.
func runAll(t *testing.T, scenarios []scenario) {
	runAllWith(t, everything(), scenarios)
}

func runAllWith(t *testing.T, settings probe.Settings, scenarios []scenario) {
	w := newWatch(t, settings)
	for _, s := range scenarios {
		for _, f := range nettest.Families() {
			t.Run(s.name+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				tryScenario(t, func(t testing.TB) { s.run(t, w, f) })
			})
		}
	}
}

func TestConnectsAreTold(t *testing.T) {
	runAll(t, []scenario{
		{"completed", connectCompletes},
		{"completed by a process with pids of its own", connectInPIDNamespace},
		{"completed after SYN loss", connectAfterLoss},
		{"completed with a deferred SYN", connectWithDeferredSYN},
		{"completed by a simultaneous open", connectSimultaneously},
		{"completed over MPTCP", connectMPTCP},
		{"refused", connectRefused},
		{"refused over MPTCP", connectRefusedMPTCP},
		{"timed out", connectTimesOut},
		{"refused by ICMP", connectRefusedByICMP},
		{"no such neighbour", connectWithoutNeighbour},
		{"refused by the routing table", connectRefusedByRoute},
		{"reset during a simultaneous open", connectReset},
		{"no port left", connectWithoutPort},
		{"aborted by the opener", connectAborted},
		{"aborted by another thread", connectAbortedByOther},
		{"aborted by shutdown and disconnect", connectDisconnected},
		{"aborted by a kill", connectKilled},
		{"aborted by the administrator", connectDestroyed},
		{"told once however often asked", connectAskedAgain},
		{"again on the same socket", connectAgain},
		{"wrong calls and UDP not at all", connectNothing},
	})
}

// dial connects on the thread, blocking, and closes the socket with the test.
func dial(t testing.TB, th *nettest.Thread, f nettest.Family, to netip.AddrPort) (s *nettest.Socket, local netip.AddrPort, sp span, err error) {
	t.Helper()
	var prepare error
	th.Do(func() { s, prepare = nettest.NewSocket(f) })
	require.NoError(t, prepare)
	s.CloseAtEnd(t)
	sp = timed(func() { th.Do(func() { err = s.Connect(to) }) })
	local, prepare = s.Local()
	require.NoError(t, prepare)
	return s, local, sp, err
}

// dialNonblock begins to connect on the thread and does not wait.
func dialNonblock(t testing.TB, th *nettest.Thread, f nettest.Family, to netip.AddrPort) *nettest.Socket {
	t.Helper()
	var s *nettest.Socket
	var err error
	th.Do(func() {
		if s, err = nettest.NewSocket(f); err != nil {
			return
		}
		if err = s.SetNonblock(); err == nil {
			err = s.Connect(to)
		}
	})
	require.ErrorIs(t, err, unix.EINPROGRESS)
	return s.CloseAtEnd(t)
}

func serverPort(n *nettest.Net, f nettest.Family, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(n.ServerAddr(f), port)
}

// requireFailed holds a connect.failed against what is common to all.
func requireFailed(t testing.TB, e *event.Event, outcome event.Outcome, errno unix.Errno, to netip.AddrPort) {
	t.Helper()
	require.Equal(t, event.KindConnectFailed, e.Kind, describe(e))
	require.Equal(t, outcome, e.Outcome, describe(e))
	require.EqualValues(t, errno, e.Errno, describe(e))
	require.Equal(t, event.RoleClient, e.Role)
	require.Equal(t, to, e.Flow.Peer)
}

func connectCompletes(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	th := n.Client.Thread(t, "op\x1b[31m\n\xffen") // bytes of a stranger, which are not the probe's to judge
	s, local, sp, err := dial(t, th, f, l.Addr)
	require.NoError(t, err)

	e := w.in(n.Client).only(t)
	sp.requireWithin(t, &e)
	require.Equal(t, event.KindConnectCompleted, e.Kind)
	require.Equal(t, event.OutcomeOK, e.Outcome)
	require.Zero(t, e.Errno)
	require.Equal(t, event.RoleClient, e.Role)
	require.Equal(t, event.StateSynSent, e.State)
	require.Equal(t, event.Flow{Local: local, Peer: l.Addr}, e.Flow)
	cookie, err := s.Cookie()
	require.NoError(t, err)
	require.Equal(t, cookie, e.Cookie)
	require.True(t, e.HasDuration)
	require.Positive(t, e.Duration)
	require.Less(t, e.Duration, sp.length)
	require.Zero(t, e.SynRetransmits)

	require.True(t, e.HasSnapshot)
	require.Positive(t, e.Snapshot.SRTT)
	require.Less(t, e.Snapshot.SRTT, sp.length)
	require.Positive(t, e.Snapshot.RTO)
	require.Positive(t, e.Snapshot.Cwnd)
	require.Zero(t, e.Snapshot.ReceiveQueue)
	require.Zero(t, e.Snapshot.SendQueue)
	require.Zero(t, e.Snapshot.RetransmitsTotal)

	requireThread(t, &e, event.OwnerOpener, th)
	require.EqualValues(t, os.Getpid(), e.Owner.VPID)
	require.EqualValues(t, th.TID, e.Owner.VTID)
	require.Equal(t, executable(t), text(e.Owner.Executable[:]))
	requireStartTime(t, &e, os.Getpid())
	requireCgroup(t, &e, os.Getpid())
	w.in(n.Server).none(t)
}

func executable(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	name := filepath.Base(exe)
	return name[:min(len(name), 47)]
}

// requireStartTime holds the owner's start time against /proc, whose unit is 10 ms since boot.
func requireStartTime(t testing.TB, e *event.Event, pid int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks, err := strconv.ParseInt(fields[19], 10, 64) // field 22 of the file
	require.NoError(t, err)
	var boottime unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &boottime))
	want := time.Now().Add(-time.Duration(boottime.Nano())).Add(time.Duration(ticks) * 10 * time.Millisecond)
	require.WithinDuration(t, want, time.Unix(0, e.Owner.StartTime), 30*time.Millisecond, "start of the process")
}

// requireCgroup finds the owner's cgroup among those that the process is in.
func requireCgroup(t testing.TB, e *event.Event, pid int) {
	t.Helper()
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for mount := range strings.Lines(string(mounts)) {
		m := strings.Fields(mount)
		if m[2] != "cgroup" && m[2] != "cgroup2" {
			continue
		}
		for line := range strings.Lines(string(own)) {
			_, path, _ := strings.Cut(strings.TrimSpace(line), ":")
			_, path, _ = strings.Cut(path, ":")
			var st unix.Stat_t
			if unix.Stat(filepath.Join(m[1], path), &st) == nil && st.Ino == e.Owner.CgroupID {
				return
			}
		}
	}
	t.Errorf("cgroup %d is none of process %d:\n%s", e.Owner.CgroupID, pid, own)
}

// connectChild is a process that connects from a thread of its own and prints its pid, the thread's id, the local port, all as
// seen by itself. Arguments: IPv6 or not, address, thread name, block or nonblock. It ends when its standard input does.
func connectChild(args []string) error {
	var f nettest.Family
	for _, candidate := range nettest.Families() {
		if candidate.String() == args[0] {
			f = candidate
		}
	}
	to, err := netip.ParseAddrPort(args[1])
	if err != nil {
		return err
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			if err := nettest.SetComm(args[2]); err != nil {
				return err
			}
			s, err := nettest.NewSocket(f)
			if err != nil {
				return err
			}
			if args[3] == "block" { // said before, since it may never return
				fmt.Printf("%d %d 0\n", unix.Getpid(), unix.Gettid())
			} else if err := s.SetNonblock(); err != nil {
				return err
			}
			if err := s.Connect(to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
				return err
			}
			local, err := s.Local()
			if err != nil {
				return err
			}
			fmt.Printf("%d %d %d\n", unix.Getpid(), unix.Gettid(), local.Port())
			return nil
		}()
		select {} // the thread stays
	}()
	if err := <-result; err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return err
}

func parseChild(t testing.TB, line string) (vpid, vtid int, port uint16) {
	t.Helper()
	_, err := fmt.Sscan(line, &vpid, &vtid, &port)
	require.NoError(t, err)
	return vpid, vtid, port
}

func connectInPIDNamespace(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	child := n.Client.Child(t, true, "connect", f.String(), l.Addr.String(), "inner", "nonblock")
	vpid, vtid, port := parseChild(t, child.Line(t))
	require.Equal(t, 1, vpid, "the child is the first of its pid namespace")

	e := w.in(n.Client).only(t)
	require.Equal(t, event.KindConnectCompleted, e.Kind)
	require.Equal(t, port, e.Flow.Local.Port())
	require.Equal(t, event.OwnerOpener, e.Owner.Source)
	require.EqualValues(t, child.PID, e.Owner.PID)
	require.EqualValues(t, child.TIDOf(t, vtid), e.Owner.TID)
	require.EqualValues(t, vpid, e.Owner.VPID)
	require.EqualValues(t, vtid, e.Owner.VTID)
	require.Equal(t, "inner", text(e.Owner.Comm[:]))
	require.Equal(t, executable(t), text(e.Owner.Executable[:]))
	requireStartTime(t, &e, child.PID)
}

func connectAfterLoss(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	const lost = 2
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(lost, nettest.MatchSYN))
	th := n.Client.Thread(t, "patient")
	before := n.Client.Counters(t)
	s, local, sp, err := dial(t, th, f, l.Addr)
	require.NoError(t, err)
	retransmitted := n.Client.Counters(t).Since(before)

	e := w.in(n.Client).kind(event.KindConnectCompleted).only(t)
	sp.requireWithin(t, &e)
	require.EqualValues(t, lost, e.SynRetransmits)
	require.EqualValues(t, lost, retransmitted["TcpExt.TCPSynRetrans"])
	require.Less(t, e.Duration, sp.length)
	require.Greater(t, e.Duration, lost*900*time.Millisecond) // the timer's grain is a jiffy, its first timeout 1 s
	require.InDelta(t, sp.length, e.Duration, float64(500*time.Millisecond))
	requireThread(t, &e, event.OwnerOpener, th)

	cookie, err := s.Cookie()
	require.NoError(t, err)
	w.in(n.Client).await(t, lost+1)
	events := w.in(n.Client).settled(t)
	require.Len(t, events, lost+1, w.describe(events))
	for i, e := range events[:lost] {
		require.Equal(t, event.KindSynRetransmitted, e.Kind)
		require.EqualValues(t, i+1, e.Attempt)
		require.Equal(t, event.RoleClient, e.Role)
		require.Equal(t, event.StateSynSent, e.State)
		require.Equal(t, event.Flow{Local: local, Peer: l.Addr}, e.Flow)
		require.Equal(t, cookie, e.Cookie)
		sp.requireWithin(t, &e)
		requireThread(t, &e, event.OwnerOpener, th)
	}
	w.in(n.Server).none(t)
}

// TCP Fast Open can put off the SYN until the first write: the time before it is the application's, not the network's.
func connectWithDeferredSYN(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_fastopen", "5")   // client, also without a cookie
	n.Server.Sysctl(t, "net.ipv4.tcp_fastopen", "514") // server, also without a cookie
	var s *nettest.Socket
	var listener *nettest.Socket
	var err error
	n.Server.Do(t, func() error {
		if listener, err = nettest.NewSocket(f); err != nil {
			return err
		}
		if err = listener.SetOption(unix.IPPROTO_TCP, unix.TCP_FASTOPEN, 10); err != nil {
			return err
		}
		if err = listener.Bind(serverPort(n, f, 7001)); err != nil {
			return err
		}
		return unix.Listen(listener.FD, 10)
	})
	listener.CloseAtEnd(t)
	th := n.Client.Thread(t, "deferrer")
	var connected, written error
	const idle = 300 * time.Millisecond
	th.Do(func() {
		if s, err = nettest.NewSocket(f); err != nil {
			return
		}
		if err = s.SetOption(unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
			return
		}
		connected = s.Connect(serverPort(n, f, 7001))
	})
	require.NoError(t, err)
	s.CloseAtEnd(t)
	require.NoError(t, connected)
	require.Zero(t, n.Client.Counters(t)["Tcp.OutSegs"], "the SYN was not put off")
	time.Sleep(idle) // the application's pause itself is what is tested
	sp := timed(func() { th.Do(func() { written = s.Write([]byte("GET")) }) })
	require.NoError(t, written)

	e := w.in(n.Client).only(t)
	require.Equal(t, event.KindConnectCompleted, e.Kind, describe(&e))
	require.Less(t, e.Duration, idle, describe(&e))
	require.LessOrEqual(t, e.Duration, sp.length+time.Millisecond)
	requireThread(t, &e, event.OwnerOpener, th)
}

// simultaneously makes client and server connect to each other: the client's SYN is lost and the server's own SYN meets the
// client in SYN_SENT.
func simultaneously(t testing.TB, n *nettest.Net, f nettest.Family) (client, server *nettest.Socket, cth, sth *nettest.Thread) {
	t.Helper()
	to, from := serverPort(n, f, 7002), netip.AddrPortFrom(n.ClientAddr(f), 7003)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchSYN))
	begin := func(th *nettest.Thread, local, peer netip.AddrPort) *nettest.Socket {
		var s *nettest.Socket
		var err error
		th.Do(func() {
			if s, err = nettest.NewSocket(f); err != nil {
				return
			}
			if err = s.SetNonblock(); err != nil {
				return
			}
			if err = s.Bind(local); err != nil {
				return
			}
			err = s.Connect(peer)
		})
		require.ErrorIs(t, err, unix.EINPROGRESS)
		return s.CloseAtEnd(t)
	}
	cth, sth = n.Client.Thread(t, "first"), n.Server.Thread(t, "second")
	client = begin(cth, from, to)
	server = begin(sth, to, from)
	return client, server, cth, sth
}

func connectSimultaneously(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	client, server, cth, sth := simultaneously(t, n, f)
	require.NoError(t, client.AwaitWritable())
	require.NoError(t, client.Error())
	require.NoError(t, server.AwaitWritable())
	require.NoError(t, server.Error())

	e := w.in(n.Client).kind(event.KindConnectCompleted).only(t)
	require.Equal(t, event.StateSynRecv, e.State, "the client's side of it was not simultaneous")
	require.Equal(t, event.RoleClient, e.Role)
	require.True(t, e.HasDuration)
	requireThread(t, &e, event.OwnerOpener, cth)
	e = w.in(n.Server).kind(event.KindConnectCompleted).only(t)
	require.Equal(t, event.RoleClient, e.Role)
	requireThread(t, &e, event.OwnerOpener, sth)
	w.in(n.Client).kind(event.KindConnectFailed).none(t)
	w.in(n.Server).kind(event.KindConnectFailed).none(t)
}

func connectReset(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "reject", "input", nettest.MatchSYNACK+" reject with tcp reset")
	client, _, cth, _ := simultaneously(t, n, f)
	require.NoError(t, client.AwaitWritable())
	require.ErrorIs(t, client.Error(), unix.ECONNRESET)

	e := w.in(n.Client).kind(event.KindConnectFailed).only(t)
	requireFailed(t, &e, event.OutcomeReset, unix.ECONNRESET, serverPort(n, f, 7002))
	require.Equal(t, event.StateSynRecv, e.State)
	require.EqualValues(t, 7003, e.Flow.Local.Port())
	requireThread(t, &e, event.OwnerOpener, cth)
	w.in(n.Client).kind(event.KindResetReceived).none(t) // it is the handshake's failure, told once
}

func connectMPTCP(t testing.TB, w *watch, f nettest.Family) {
	for _, multipath := range []bool{true, false} {
		n := nettest.New(t)
		var l *nettest.Listener
		if multipath {
			l = n.Server.ListenMPTCP(t, n.ServerAddr(f))
		} else {
			l = n.Server.Listen(t, n.ServerAddr(f))
		}
		l.Serve(t, nettest.Drain)
		th := n.Client.Thread(t, "multipath")
		var s *nettest.Socket
		var err error
		th.Do(func() {
			if s, err = nettest.NewMPTCPSocket(f); err == nil {
				err = s.Connect(l.Addr)
			}
		})
		require.NoError(t, err)
		s.CloseAtEnd(t)
		local, err := s.Local()
		require.NoError(t, err)

		e := w.in(n.Client).only(t)
		require.Equal(t, event.KindConnectCompleted, e.Kind)
		require.Equal(t, event.Flow{Local: local, Peer: l.Addr}, e.Flow)
		requireThread(t, &e, event.OwnerOpener, th)
		require.NoError(t, s.Close())
		for _, e := range w.in(n.Client).kind(event.KindConnectFailed).settled(t) {
			t.Errorf("closing an MPTCP connection told %s", describe(&e))
		}
	}
}

func connectRefusedMPTCP(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	to := serverPort(n, f, 9)
	th := n.Client.Thread(t, "multipath")
	var s *nettest.Socket
	var err error
	connect := func(to netip.AddrPort) {
		th.Do(func() {
			if s, err = nettest.NewMPTCPSocket(f); err == nil {
				err = s.Connect(to)
				_ = s.Close()
			}
		})
	}
	connect(to)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	e := w.in(n.Client).only(t)
	requireFailed(t, &e, event.OutcomeRefused, unix.ECONNREFUSED, to)
	requireThread(t, &e, event.OwnerOpener, th)

	away := elsewhere(f)
	n.Client.Route(t, unix.RTN_UNREACHABLE, away.prefix, netip.Addr{})
	connect(away.addr)
	require.ErrorIs(t, err, unix.EHOSTUNREACH)
	e = w.in(n.Client).where(func(e *event.Event) bool { return e.Flow.Peer == away.addr }).only(t)
	requireFailed(t, &e, event.OutcomeHostUnreachable, unix.EHOSTUNREACH, away.addr)
	requireThread(t, &e, event.OwnerCurrent, th)
}

func connectRefused(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	to := serverPort(n, f, 9)
	th := n.Client.Thread(t, "unwanted")
	_, _, sp, err := dial(t, th, f, to)
	require.ErrorIs(t, err, unix.ECONNREFUSED)

	e := w.in(n.Client).only(t) // and no reset received: it is one fact
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeRefused, unix.ECONNREFUSED, to)
	require.Equal(t, event.StateSynSent, e.State)
	require.NotZero(t, e.Flow.Local.Port())
	require.Equal(t, n.ClientAddr(f), e.Flow.Local.Addr())
	require.True(t, e.HasDuration)
	require.Positive(t, e.Duration)
	require.Less(t, e.Duration, sp.length)
	require.Zero(t, e.SynRetransmits)
	requireThread(t, &e, event.OwnerOpener, th)

	r := w.in(n.Server).only(t)
	require.Equal(t, event.KindResetSent, r.Kind)
	require.Equal(t, "no_socket", r.Reason)
	require.Equal(t, event.OwnerNone, r.Owner.Source)
	require.Equal(t, event.Flow{Local: e.Flow.Peer, Peer: e.Flow.Local}, r.Flow)
	require.False(t, r.HasSnapshot)
}

func connectTimesOut(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_syn_retries", "1")
	n.Client.Sysctl(t, "net.ipv4.tcp_syn_linear_timeouts", "0")
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	to := serverPort(n, f, 7004)
	th := n.Client.Thread(t, "ignored")
	before := n.Client.Counters(t)
	_, _, sp, err := dial(t, th, f, to)
	require.ErrorIs(t, err, unix.ETIMEDOUT)
	sent := n.Client.Counters(t).Since(before)["TcpExt.TCPSynRetrans"]
	require.Positive(t, sent)

	e := w.in(n.Client).kind(event.KindConnectFailed).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeTimedOut, unix.ETIMEDOUT, to)
	require.Equal(t, sent, uint64(e.SynRetransmits))
	require.Less(t, e.Duration, sp.length)
	require.InDelta(t, sp.length, e.Duration, float64(500*time.Millisecond))
	requireThread(t, &e, event.OwnerOpener, th)
	w.in(n.Client).kind(event.KindSynRetransmitted).await(t, int(sent))
	events := w.in(n.Client).kind(event.KindSynRetransmitted).settled(t)
	require.Len(t, events, int(sent), w.describe(events))
	for i, r := range events {
		require.EqualValues(t, i+1, r.Attempt)
		require.NotZero(t, r.Flow.Local.Port())
		require.Equal(t, r.Flow, e.Flow, "the port at the end, when it is released, is that of the beginning")
	}
}

func connectRefusedByICMP(t testing.TB, w *watch, f nettest.Family) {
	type refusal struct {
		with    string
		outcome event.Outcome
		errno   unix.Errno
	}
	refusals := []refusal{
		{"icmp type host-unreachable", event.OutcomeHostUnreachable, unix.EHOSTUNREACH},
		{"icmp type net-unreachable", event.OutcomeNetworkUnreachable, unix.ENETUNREACH},
		{"icmp type admin-prohibited", event.OutcomeHostUnreachable, unix.EHOSTUNREACH},
		{"icmp type port-unreachable", event.OutcomeRefused, unix.ECONNREFUSED},
		{"icmp type prot-unreachable", event.OutcomeOther, unix.ENOPROTOOPT},
	}
	if f == nettest.V6 {
		refusals = []refusal{
			{"icmpv6 type addr-unreachable", event.OutcomeHostUnreachable, unix.EHOSTUNREACH},
			{"icmpv6 type no-route", event.OutcomeNetworkUnreachable, unix.ENETUNREACH},
			{"icmpv6 type admin-prohibited", event.OutcomeOther, unix.EACCES},
			{"icmpv6 type port-unreachable", event.OutcomeRefused, unix.ECONNREFUSED},
		}
	}
	n := nettest.NewRouted(t)
	proto := map[bool]string{true: "ipv6", false: "ipv4"}[f == nettest.V6]
	for i, r := range refusals {
		n.Router.Filter(t, fmt.Sprint("reject", i), "forward",
			fmt.Sprintf("meta nfproto %s tcp dport %d reject with %s", proto, 7100+i, r.with))
	}
	for i, r := range refusals {
		th := n.Client.Thread(t, fmt.Sprint("refused", i))
		to := serverPort(n, f, uint16(7100+i))
		_, _, sp, err := dial(t, th, f, to)
		require.ErrorIs(t, err, r.errno, r.with)
		// The first ICMP error may arrive inside the very call of connect, where the kernel ignores it (sock_owned_by_user in
		// tcp_v4_err); the second SYN's does not.
		e := w.in(n.Client).kind(event.KindConnectFailed).where(func(e *event.Event) bool { return e.Flow.Peer == to }).only(t)
		sp.requireWithin(t, &e)
		requireFailed(t, &e, r.outcome, r.errno, to)
		require.LessOrEqual(t, e.SynRetransmits, uint32(1))
		require.Equal(t, event.StateSynSent, e.State)
		require.True(t, e.HasDuration)
		require.Less(t, e.Duration, sp.length)
		require.NotZero(t, e.Flow.Local.Port())
		requireThread(t, &e, event.OwnerOpener, th)
	}
}

// A host that is gone from its own network: nobody answers for the address.
func connectWithoutNeighbour(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	to := netip.AddrPortFrom(n.ServerAddr(f).Next(), 80)
	th := n.Client.Thread(t, "lonely")
	before := n.Client.Counters(t)
	_, _, sp, err := dial(t, th, f, to)
	require.ErrorIs(t, err, unix.EHOSTUNREACH)
	counted := n.Client.Counters(t).Since(before)
	e := w.in(n.Client).kind(event.KindConnectFailed).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeHostUnreachable, unix.EHOSTUNREACH, to)
	require.InDelta(t, sp.length, e.Duration, float64(500*time.Millisecond))
	requireThread(t, &e, event.OwnerOpener, th)
	// The SYN waits for the neighbour's address, so it cannot be sent again: the kernel tries, fails, and counts neither
	// (EBUSY in __tcp_retransmit_skb).
	require.Equal(t, counted["Tcp.RetransSegs"]-counted["TcpExt.TCPRetransFail"], uint64(e.SynRetransmits), describe(&e))
	require.Len(t, w.in(n.Client).kind(event.KindSynRetransmitted).settled(t), int(e.SynRetransmits))
}

type place struct {
	prefix netip.Prefix
	addr   netip.AddrPort
}

// elsewhere is an address outside of the networks of the test, and its own network.
func elsewhere(f nettest.Family) place {
	addr := netip.MustParseAddr("10.88.0.1")
	bits := 24
	if f == nettest.V6 {
		addr, bits = netip.MustParseAddr("fd88::1"), 64
	}
	return place{netip.PrefixFrom(addr, bits).Masked(), netip.AddrPortFrom(addr, 80)}
}

func connectRefusedByRoute(t testing.TB, w *watch, f nettest.Family) {
	const noRoute = -1
	for _, r := range []struct {
		kind    int
		outcome event.Outcome
		errno   unix.Errno
	}{
		{unix.RTN_UNREACHABLE, event.OutcomeHostUnreachable, unix.EHOSTUNREACH},
		{unix.RTN_PROHIBIT, event.OutcomeOther, unix.EACCES},
		{unix.RTN_BLACKHOLE, event.OutcomeOther, unix.EINVAL},
		{noRoute, event.OutcomeNetworkUnreachable, unix.ENETUNREACH},
	} {
		n := nettest.New(t)
		to := elsewhere(f)
		if r.kind != noRoute {
			n.Client.Route(t, r.kind, to.prefix, netip.Addr{})
		}
		th := n.Client.Thread(t, "nowhere")
		before := n.Client.Counters(t)
		_, _, sp, err := dial(t, th, f, to.addr)
		require.ErrorIs(t, err, r.errno)

		e := w.in(n.Client).only(t)
		sp.requireWithin(t, &e)
		requireFailed(t, &e, r.outcome, r.errno, to.addr)
		require.False(t, e.HasDuration, "nothing was sent")
		require.Equal(t, event.StateClose, e.State)
		requireThread(t, &e, event.OwnerCurrent, th)
		require.EqualValues(t, os.Getpid(), e.Owner.VPID)
		require.EqualValues(t, th.TID, e.Owner.VTID)
		require.Zero(t, n.Client.Counters(t).Since(before)["Tcp.OutSegs"])
	}
}

func connectWithoutPort(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	n.Client.Sysctl(t, "net.ipv4.ip_local_port_range", "40000 40001")
	th := n.Client.Thread(t, "portless")
	for range 2 {
		_, _, _, err := dial(t, th, f, l.Addr)
		require.NoError(t, err)
	}
	before := n.Client.Counters(t)
	_, _, sp, err := dial(t, th, f, l.Addr)
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	require.Zero(t, n.Client.Counters(t).Since(before)["Tcp.ActiveOpens"])
	require.Zero(t, n.Client.Counters(t).Since(before)["Tcp.OutSegs"])

	e := w.in(n.Client).kind(event.KindConnectFailed).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeAddressNotAvailable, unix.EADDRNOTAVAIL, l.Addr)
	require.Zero(t, e.Flow.Local.Port())
	require.False(t, e.HasDuration, "nothing was sent")
	require.Equal(t, event.Owner{Source: e.Owner.Source, PID: uint32(os.Getpid()), TID: uint32(th.TID), VPID: uint32(os.Getpid()),
		VTID: uint32(th.TID), StartTime: e.Owner.StartTime, CgroupID: e.Owner.CgroupID, Comm: e.Owner.Comm,
		Executable: e.Owner.Executable}, e.Owner)
	require.NotEqual(t, event.OwnerNone, e.Owner.Source)
	w.in(n.Client).kind(event.KindConnectCompleted).await(t, 2)
}

func connectAborted(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	to := serverPort(n, f, 7005)
	th := n.Client.Thread(t, "hasty")
	s := dialNonblock(t, th, f, to)
	local, err := s.Local()
	require.NoError(t, err)
	sp := timed(func() { th.Do(func() { err = s.Close() }) })
	require.NoError(t, err)

	e := w.in(n.Client).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeAborted, 0, to)
	require.Equal(t, local, e.Flow.Local)
	require.Equal(t, event.StateSynSent, e.State)
	require.True(t, e.HasDuration)
	require.Positive(t, e.Duration)
	requireThread(t, &e, event.OwnerCurrent, th)
}

func connectAbortedByOther(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	to := serverPort(n, f, 7005)
	s := dialNonblock(t, n.Client.Thread(t, "opener"), f, to)
	w.in(n.Client).kind(event.KindSynRetransmitted).await(t, 1)
	closer := n.Client.Thread(t, "closer")
	var err error
	sp := timed(func() { closer.Do(func() { err = s.Close() }) })
	require.NoError(t, err)

	e := w.in(n.Client).kind(event.KindConnectFailed).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeAborted, 0, to)
	require.EqualValues(t, 1, e.SynRetransmits)
	require.Greater(t, e.Duration, 900*time.Millisecond)
	requireThread(t, &e, event.OwnerCurrent, closer)
}

func connectDisconnected(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	th := n.Client.Thread(t, "fickle")
	for i, giveUp := range []func(*nettest.Socket) error{
		func(s *nettest.Socket) error { return unix.Shutdown(s.FD, unix.SHUT_RDWR) },
		disconnect,
	} {
		to := serverPort(n, f, uint16(7010+i))
		s := dialNonblock(t, th, f, to)
		var err error
		th.Do(func() { err = giveUp(s) })
		require.NoError(t, err)
		require.NoError(t, s.Close())
		e := w.in(n.Client).where(func(e *event.Event) bool { return e.Flow.Peer == to }).only(t)
		requireFailed(t, &e, event.OutcomeAborted, 0, to)
		requireThread(t, &e, event.OwnerCurrent, th)
	}
}

// disconnect dissolves the association, as connect(2) says of AF_UNSPEC.
func disconnect(s *nettest.Socket) error {
	addr := make([]byte, 16)
	binary.NativeEndian.PutUint16(addr, unix.AF_UNSPEC)
	return rawConnect(s.FD, addr)
}

func connectKilled(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	to := serverPort(n, f, 7006)
	for _, mode := range []string{"block", "nonblock"} {
		child := n.Client.Child(t, false, "connect", f.String(), to.String(), "victim", mode)
		parseChild(t, child.Line(t))
		w.in(n.Client).kind(event.KindSynRetransmitted).where(func(e *event.Event) bool { return e.Owner.PID == uint32(child.PID) }).
			await(t, 1)
		sp := timed(child.Kill)
		e := w.in(n.Client).kind(event.KindConnectFailed).where(func(e *event.Event) bool { return e.Owner.PID == uint32(child.PID) }).
			only(t)
		sp.requireWithin(t, &e)
		requireFailed(t, &e, event.OutcomeAborted, 0, to)
		require.NotEqual(t, event.OwnerNone, e.Owner.Source)
	}
	w.in(n.Client).kind(event.KindConnectFailed).await(t, 2)
	events := w.in(n.Client).kind(event.KindConnectFailed).settled(t)
	require.Len(t, events, 2, w.describe(events))
}

// ss -K ends a connection as an administrator does.
func connectDestroyed(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Server.Filter(t, "hole", "input", nettest.MatchSYN+" drop")
	to := serverPort(n, f, 7008)
	th := n.Client.Thread(t, "doomed")
	s := dialNonblock(t, th, f, to)
	sp := timed(func() {
		n.Client.Do(t, exec.Command("ss", "-K", "dport", "=", "7008").Run)
	})
	require.ErrorIs(t, s.Error(), unix.ECONNABORTED)
	e := w.in(n.Client).only(t)
	sp.requireWithin(t, &e)
	requireFailed(t, &e, event.OutcomeOther, unix.ECONNABORTED, to)
	require.NotZero(t, e.Flow.Local.Port())
	requireThread(t, &e, event.OwnerOpener, th)
}

// The result of a non-blocking connect can be asked for in several ways; each may look like a failure of its own.
func connectAskedAgain(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.NewRouted(t)
	unreachable := "icmp type host-unreachable"
	if f == nettest.V6 {
		unreachable = "icmpv6 type addr-unreachable"
	}
	proto := map[bool]string{true: "ipv6", false: "ipv4"}[f == nettest.V6]
	n.Router.Filter(t, "reject", "forward",
		fmt.Sprintf("meta nfproto %s tcp dport 7020-7029 reject with %s", proto, unreachable))
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	th := n.Client.Thread(t, "asker")
	for i, c := range []struct {
		port  uint16
		errno unix.Errno
	}{{9, unix.ECONNREFUSED}, {7020, unix.EHOSTUNREACH}, {l.Addr.Port(), 0}} {
		to := serverPort(n, f, c.port)
		for _, ask := range []string{"SO_ERROR", "connect"} {
			s := dialNonblock(t, th, f, to)
			cookie, err := s.Cookie()
			require.NoError(t, err)
			v := w.in(n.Client).where(func(e *event.Event) bool {
				return e.Cookie == cookie && e.Kind != event.KindSynRetransmitted
			})
			v.await(t, 1)
			th.Do(func() {
				if ask == "SO_ERROR" {
					err = s.Error()
				} else {
					err = s.Connect(to)
				}
			})
			if c.errno == 0 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.errno)
			}
			e := v.only(t)
			require.EqualValues(t, c.errno, e.Errno, "case %d: %s", i, describe(&e))
			requireThread(t, &e, event.OwnerOpener, th)
		}
	}
}

func connectAgain(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	th := n.Client.Thread(t, "persistent")
	to := serverPort(n, f, 7007)
	var s *nettest.Socket
	var err error
	th.Do(func() { s, err = nettest.NewSocket(f) })
	require.NoError(t, err)
	s.CloseAtEnd(t)
	connect := func(to netip.AddrPort) error {
		th.Do(func() { err = s.Connect(to) })
		return err
	}
	require.ErrorIs(t, connect(to), unix.ECONNREFUSED)
	require.ErrorIs(t, connect(to), unix.ECONNREFUSED)
	away := elsewhere(f)
	n.Client.Route(t, unix.RTN_UNREACHABLE, away.prefix, netip.Addr{})
	require.ErrorIs(t, connect(away.addr), unix.EHOSTUNREACH)
	require.ErrorIs(t, connect(away.addr), unix.EHOSTUNREACH)
	l := n.Server.ListenPort(t, to)
	l.Serve(t, nettest.Drain)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchSYN))
	require.NoError(t, connect(to))

	v := w.in(n.Client).where(func(e *event.Event) bool { return e.Kind != event.KindSynRetransmitted })
	v.await(t, 5)
	events := v.settled(t)
	require.Len(t, events, 5, w.describe(events))
	for i, outcome := range []event.Outcome{event.OutcomeRefused, event.OutcomeRefused, event.OutcomeHostUnreachable,
		event.OutcomeHostUnreachable, event.OutcomeOK} {
		assert.Equal(t, outcome, events[i].Outcome, "connect %d", i)
		assert.Equal(t, events[0].Cookie, events[i].Cookie)
	}
	require.EqualValues(t, 1, events[4].SynRetransmits)

	// An error that ICMP brought and the application read, then the same one from the routing table: two facts.
	unreachable := "icmp type host-unreachable"
	if f == nettest.V6 {
		unreachable = "icmpv6 type addr-unreachable"
	}
	proto := map[bool]string{true: "ipv6", false: "ipv4"}[f == nettest.V6]
	n.Server.Filter(t, "reject", "input", fmt.Sprintf("meta nfproto %s tcp dport 7030 reject with %s", proto, unreachable))
	s = dialNonblock(t, th, f, serverPort(n, f, 7030))
	v = w.in(n.Client).kind(event.KindConnectFailed).where(func(e *event.Event) bool { return e.KTime > events[4].KTime })
	v.await(t, 1)
	require.ErrorIs(t, s.Error(), unix.EHOSTUNREACH)
	require.ErrorIs(t, connect(away.addr), unix.ECONNABORTED) // makes it a fresh socket again
	require.ErrorIs(t, connect(away.addr), unix.EHOSTUNREACH)
	again := v.settled(t)
	require.Len(t, again, 2, w.describe(again))
}

func connectNothing(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	away := elsewhere(f)
	n.Client.Route(t, unix.RTN_UNREACHABLE, away.prefix, netip.Addr{})
	th := n.Client.Thread(t, "wrong")
	var udp, tcp *nettest.Socket
	var errs [5]error
	th.Do(func() {
		if udp, errs[0] = nettest.NewUDPSocket(f); errs[0] != nil {
			return
		}
		errs[1] = udp.Connect(away.addr) // how resolvers test a route
		if tcp, errs[0] = nettest.NewSocket(f); errs[0] != nil {
			return
		}
		errs[2] = rawConnect(tcp.FD, []byte{unix.AF_INET, 0, 0, 80, 10}) // too short
		errs[3] = rawConnect(tcp.FD, append([]byte{unix.AF_UNIX, 0}, make([]byte, 26)...))
		errs[4] = unix.Connect(9999, &unix.SockaddrInet4{Port: 80})
	})
	require.NoError(t, errs[0])
	udp.CloseAtEnd(t)
	tcp.CloseAtEnd(t)
	require.ErrorIs(t, errs[1], unix.EHOSTUNREACH)
	require.ErrorIs(t, errs[2], unix.EINVAL)
	require.ErrorIs(t, errs[3], unix.EAFNOSUPPORT)
	require.ErrorIs(t, errs[4], unix.EBADF)
	w.in(n.Client).none(t)
}
