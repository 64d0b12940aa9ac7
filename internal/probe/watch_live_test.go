// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

func TestMain(m *testing.M) {
	// The tests mostly wait for the kernel's timers. The command line still overrides it.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	nettest.RunChild(map[string]func([]string) error{"connect": connectChild, "trace": traceChild})
	goleak.VerifyTestMain(m)
}

// requireLive skips the test where BPF programs cannot be loaded at all, or fails it where skipping is forbidden.
func requireLive(t testing.TB) {
	t.Helper()
	nettest.Require(t)
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		nettest.Unavailable(t, "this kernel carries no BTF")
	}
}

// everything asks for every event there is.
func everything() probe.Settings {
	return probe.Settings{
		HandshakeReport:   probe.ReportAll,
		ResetEnabled:      true,
		ResetNoSocket:     true,
		RetransmitEnabled: true,
		HistogramBounds:   event.ExponentialBounds(),
		RingBufferSize:    8 << 20,
	}
}

func open(t testing.TB, s probe.Settings) *probe.Source {
	t.Helper()
	requireLive(t)
	source, err := probe.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// watch collects what a Source tells, of the whole host. Tests look only at their own namespaces.
type watch struct {
	source *probe.Source
	marker *nettest.Namespace
	goal   *nettest.Listener

	keep match // nil: all

	mu     sync.Mutex
	spaces map[uint32]*space // by network namespace; others on this host may do a lot in theirs
	failed error
}

// space is what is told of one network namespace.
type space struct {
	events []event.Event
	news   chan struct{} // closed and replaced when events are added
}

func newWatch(t testing.TB, s probe.Settings) *watch { return newWatchOf(t, s, nil) }

// newWatchOf keeps only the events that match.
func newWatchOf(t testing.TB, s probe.Settings, keep match) *watch {
	t.Helper()
	w := &watch{source: open(t, s), spaces: map[uint32]*space{}, keep: keep}
	w.marker = nettest.NewNamespace(t)
	w.goal = w.marker.Listen(t, nettest.V4.Loopback())
	w.goal.Serve(t, nettest.Drain)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.collect()
	}()
	t.Cleanup(func() {
		w.requireNothingLost(t)
		_ = w.source.Close()
		<-done
		if w.failed != nil {
			t.Errorf("read: %v", w.failed)
		}
	})
	return w
}

// requireNothingLost fails for what the Source itself says that it has not told.
func (w *watch) requireNothingLost(t testing.TB) {
	t.Helper()
	var c event.Counters
	err := w.source.Counters(&c)
	if errors.Is(err, probe.ErrClosed) {
		return // the test has closed it
	}
	if err != nil {
		t.Errorf("read counters: %v", err)
		return
	}
	if c.RingFull != [event.KindCount]uint64{} {
		t.Errorf("ring buffer was full: %v", c.RingFull)
	}
	for program, runs := range c.Recursion {
		if runs != 0 {
			t.Logf("the kernel skipped %d runs of %s", runs, program) // it may have been one that had nothing to do
		}
	}
}

func (w *watch) collect() {
	for {
		var e event.Event
		w.source.SetDeadline(time.Now().Add(10 * time.Millisecond)) // events come without a wake-up
		err := w.source.Read(&e)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			if w.keep == nil || w.keep(&e) {
				w.add(&e)
			}
			continue
		}
		if !errors.Is(err, probe.ErrClosed) {
			w.failed = err
		}
		return
	}
}

func (w *watch) add(e *event.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.space(e.NetNS)
	s.events = append(s.events, *e)
	close(s.news)
	s.news = make(chan struct{})
}

// space is to be called with the lock held.
func (w *watch) space(netns uint32) *space {
	s := w.spaces[netns]
	if s == nil {
		s = &space{news: make(chan struct{})}
		w.spaces[netns] = s
	}
	return s
}

// attempt is one try of a scenario. It keeps its failure to itself, for tryScenario to judge.
//
// On some machines no program at all runs in softirqs that interrupt certain guarded tasks, for some milliseconds a second, and the
// kernel counts no skipped run; timers and packets from elsewhere hit them at random. An event that is missing, and nothing else,
// is a reason to try again.
type attempt struct {
	testing.TB
	missing  bool // an awaited event did not come
	mu       sync.Mutex
	failed   bool
	said     strings.Builder
	cleanups []func()
}

func (a *attempt) Helper() {}

func (a *attempt) Log(args ...any) { a.Logf("%s", fmt.Sprintln(args...)) }

func (a *attempt) Logf(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(&a.said, format+"\n", args...)
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *attempt) Error(args ...any) {
	a.Log(args...)
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) {
	a.Logf(format, args...)
	a.Fail()
}

func (a *attempt) Fatal(args ...any) {
	a.Log(args...)
	a.FailNow()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.Logf(format, args...)
	a.FailNow()
}

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

// run returns when the scenario has, be it by FailNow, and everything is cleaned up.
func (a *attempt) run(scenario func(testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(a.cleanups) - 1; i >= 0; i-- {
				a.cleanups[i]()
			}
		}()
		scenario(a)
	}()
	<-done
}

func tryScenario(t *testing.T, scenario func(testing.TB)) {
	const attempts = 3
	for n := 1; ; n++ {
		a := &attempt{TB: t}
		a.run(scenario)
		switch {
		case !a.failed:
			t.Log(a.said.String())
			return
		case !a.missing || n == attempts:
			t.Fatal(a.said.String())
		}
		t.Logf("AN EVENT WAS MISSING in attempt %d of %d: %s", n, attempts, a.said.String())
	}
}

type match func(*event.Event) bool

// in sees the events of one namespace.
func (w *watch) in(n *nettest.Namespace) view {
	m := func(e *event.Event) bool { return e.NetNS == n.Inode && e.KTime >= n.Made }
	return view{w: w, netns: n.Inode, match: m, whole: m}
}

// view is a part of what a watch collects.
type view struct {
	w     *watch
	netns uint32
	match match
	whole match // what a failure shows beside it
}

// where is the part of the view that matches too.
func (v view) where(m match) view {
	return view{w: v.w, netns: v.netns, match: func(e *event.Event) bool { return v.match(e) && m(e) }, whole: v.whole}
}

func (v view) kind(k event.Kind) view {
	return v.where(func(e *event.Event) bool { return e.Kind == k })
}

// port sees the events of one local port.
func (v view) port(local uint16) view {
	return v.where(func(e *event.Event) bool { return e.Flow.Local.Port() == local })
}

// closings sees the ends of sockets, which tell nothing but a cookie.
func (w *watch) closings(cookie uint64) view {
	return view{w: w, match: func(e *event.Event) bool { return e.Kind == event.KindSocketClosed && e.Cookie == cookie },
		whole: func(e *event.Event) bool { return e.Cookie == cookie }}
}

func (v view) now() (events []event.Event, news <-chan struct{}) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	s := v.w.space(v.netns)
	for i := range s.events {
		if v.match(&s.events[i]) {
			events = append(events, s.events[i])
		}
	}
	return events, s.news
}

// everywhere is what has been told of all namespaces, in no order.
func (w *watch) everywhere(m match) (events []event.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.spaces {
		for i := range s.events {
			if m(&s.events[i]) {
				events = append(events, s.events[i])
			}
		}
	}
	return events
}

// await waits until the view has at least n events and returns them.
func (v view) await(t testing.TB, n int) []event.Event {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		events, news := v.now()
		if len(events) >= n {
			return events
		}
		select {
		case <-news:
		case <-timeout:
			whole, _ := view{w: v.w, netns: v.netns, match: v.whole}.now()
			if a, ok := t.(*attempt); ok {
				a.missing = true
			}
			t.Fatalf("%d events instead of %d:%s\nof these:%s", len(events), n, v.w.describe(events), v.w.describe(whole))
		}
	}
}

// settled is the view after everything that has happened so far was read.
func (v view) settled(t testing.TB) []event.Event {
	t.Helper()
	v.w.flush(t)
	events, _ := v.now()
	return events
}

// only is the one event of the view after everything that has happened so far was read.
func (v view) only(t testing.TB) event.Event {
	t.Helper()
	v.await(t, 1)
	events := v.settled(t)
	if len(events) != 1 {
		t.Fatalf("%d events instead of one:%s", len(events), v.w.describe(events))
	}
	return events[0]
}

// none fails if anything is in the view after everything that has happened so far was read.
func (v view) none(t testing.TB) {
	t.Helper()
	if events := v.settled(t); len(events) != 0 {
		t.Errorf("%d events instead of none:%s", len(events), v.w.describe(events))
	}
}

// flush makes a connection of its own and waits for its record: the ring buffer keeps the order, so all before has been read.
func (w *watch) flush(t testing.TB) {
	t.Helper()
	var local netip.AddrPort
	w.marker.Do(t, func() error {
		s, err := nettest.NewSocket(nettest.V4)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Connect(w.goal.Addr); err != nil {
			return fmt.Errorf("connect marker: %w", err)
		}
		local, err = s.Local()
		return err
	})
	w.in(w.marker).kind(event.KindConnectCompleted).port(local.Port()).await(t, 1)
}

func (w *watch) describe(events []event.Event) string {
	var b strings.Builder
	for i := range events {
		b.WriteString("\n  " + describe(&events[i]))
	}
	return b.String()
}

func describe(e *event.Event) string {
	return fmt.Sprintf("%s %s→%s state=%s role=%s outcome=%q errno=%d dur=%s(%t) syn_retransmits=%d attempt=%d segment=%s "+
		"retransmit=%q segments=%d reason=%q owner=%s %d/%d %q cookie=%d netns=%d", e.Kind, e.Flow.Local, e.Flow.Peer, e.State, e.Role,
		e.Outcome, e.Errno, e.Duration, e.HasDuration, e.SynRetransmits, e.Attempt, e.Segment, e.Retransmit, e.Segments, e.Reason,
		e.Owner.Source, e.Owner.PID, e.Owner.TID, text(e.Owner.Comm[:]), e.Cookie, e.NetNS)
}

func text(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// span is when something happened, by both clocks.
type span struct {
	from, to         uint64
	wallFrom, wallTo time.Time
	length           time.Duration
}

func timed(f func()) span {
	s := span{wallFrom: time.Now(), from: nettest.Monotonic()}
	f()
	s.to = nettest.Monotonic()
	s.wallTo = time.Now()
	s.length = time.Duration(s.to - s.from)
	return s
}

// requireWithin holds the event's clocks against the span in which it must have happened.
func (s span) requireWithin(t testing.TB, e *event.Event) {
	t.Helper()
	require.GreaterOrEqual(t, e.KTime, s.from, "event before it could happen")
	require.LessOrEqual(t, e.KTime, s.to, "event after it must have happened")
	const slack = 5 * time.Millisecond // the offset between the clocks is sampled
	require.WithinRange(t, time.Unix(0, e.Time), s.wallFrom.Add(-slack), s.wallTo.Add(slack), "wall clock")
}

// requireAfter is for what a packet brings about: it may be on its way still when the call that sent it has returned.
func (s span) requireAfter(t testing.TB, e *event.Event) {
	t.Helper()
	s.to, s.wallTo = nettest.Monotonic(), time.Now()
	s.requireWithin(t, e)
}

// requireThread holds the event's owner against a thread of this process.
func requireThread(t testing.TB, e *event.Event, source event.OwnerSource, th *nettest.Thread) {
	t.Helper()
	require.Equal(t, source, e.Owner.Source, describe(e))
	require.EqualValues(t, os.Getpid(), e.Owner.PID, "pid")
	require.EqualValues(t, th.TID, e.Owner.TID, "tid")
	require.Equal(t, th.Comm, text(e.Owner.Comm[:]), "comm")
}

// eventually waits until the kernel, which tells nobody of this, meets the condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, 2*time.Millisecond, what)
}

// awaitState waits until the kernel shows the client's socket in the TCP state.
func awaitState(t testing.TB, s *nettest.Socket, state event.State) {
	t.Helper()
	eventually(t, "state "+state.String(), func() bool {
		info, err := s.Info()
		return err == nil && info.State == uint8(state)
	})
}

func awaitUnread(t testing.TB, s *nettest.Socket, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d unread bytes", n), func() bool {
		unread, err := s.Unread()
		return err == nil && unread == n
	})
}

// rawConnect calls connect with the bytes of an address that x/sys would not make.
func rawConnect(fd int, addr []byte) error { return rawConnectLength(fd, addr, len(addr)) }

// rawConnectLength also lies about their number.
func rawConnectLength(fd int, addr []byte, length int) error {
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr[0])), uintptr(length))
	if errno != 0 {
		return errno
	}
	return nil
}
