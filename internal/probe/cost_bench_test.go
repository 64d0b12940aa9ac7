// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// The limits that these benchmarks are held against.
const (
	limitSilentRun  = 250 * time.Nanosecond  // a run of a program that emits no record
	limitEmitRun    = time.Microsecond       // a run that emits one
	limitConnection = 4000 * time.Nanosecond // what a connection over loopback may take longer, both its ends included
	fewestRuns      = 10_000                 // of a program, for its mean to count
)

// rounds is how often a benchmark goes through all its windows: often enough for a median by itself, whatever -benchtime says, but
// once with -benchtime 1x.
func rounds(full int) int {
	if flag.Lookup("test.benchtime").Value.String() == "1x" {
		return 1
	}
	return full
}

// BenchmarkConnection opens and closes connections over loopback with and without programs attached, in alternating windows of
// 60 ms, since the machine's speed changes from second to second. What is told is the processor time of the loop's thread; it
// includes both ends' softirqs. The limit of what any tracer can reach is empty programs on the same hooks.
func BenchmarkConnection(b *testing.B) {
	load := newLoad(b)
	source := openForBenchmark(b, defaults())
	ended := readInBackground(b, source)
	ours := hooksOf(b, source)
	none := hooksOf(b, openEmpty(b, slices.Collect(maps.Keys(source.programs))))
	runtime.GC() // what was read of the kernel's types goes now, not in a window
	window := func(h hooks) float64 {
		detach := h.attach(b)
		defer detach()
		return load.window(b, load.connect)
	}
	var untraced, addedByNone, added samples // nanoseconds a connection
	for range rounds(100) {
		// Each traced window lies between two untraced ones.
		first, traced, second, empty, third := window(nil), window(ours), window(nil), window(none), window(nil)
		untraced.add((first + 2*second + third) / 4)
		added.add(traced - (first+second)/2)
		addedByNone.add(empty - (second+third)/2)
	}
	require.NoError(b, source.Close())
	<-ended
	b.ReportMetric(untraced.median(), "ns/conn-untraced")
	b.ReportMetric(added.median(), "ns/conn-added")
	b.ReportMetric(added.quantile(0.1), "ns/conn-added-p10")
	b.ReportMetric(added.quantile(0.9), "ns/conn-added-p90")
	b.ReportMetric(addedByNone.median(), "ns/conn-added-empty")
	b.ReportMetric(float64(limitConnection), "ns/conn-added-wanted")
	b.ReportMetric(0, "ns/op")
	var r report
	r.line("%-44s %s", "ns a connection over loopback", "median [p10 … p90]")
	r.line("%-44s %v", "untraced", untraced)
	r.line("%-44s %v", "added by empty programs on the same hooks", addedByNone)
	r.line("%-44s %v (limit %d)", "added by ours", added, limitConnection)
	b.Log(r.String())
}

// hooks are loaded programs to attach and detach at will, which takes no time in comparison with loading.
type hooks []hook

type hook struct {
	program    *ebpf.Program
	tracepoint string // of a classic one; empty: the program knows its hook
}

// hooksOf detaches a Source and takes its programs.
func hooksOf(b *testing.B, s *Source) hooks {
	b.Helper()
	s.closers = slices.DeleteFunc(s.closers, func(c io.Closer) bool {
		switch c.(type) {
		case link.Link, *tracepoint:
			require.NoError(b, c.Close())
			return true
		}
		return false
	})
	var h hooks
	for name, p := range programSpecs(b) {
		if s.programs[name] == nil {
			continue
		}
		one := hook{program: s.programs[name]}
		if p.Type == ebpf.TracePoint {
			one.tracepoint = p.AttachTo
		}
		h = append(h, one)
	}
	require.Len(b, h, len(s.programs))
	return h
}

func (h hooks) attach(b *testing.B) (detach func()) {
	var attached []io.Closer
	for _, one := range h {
		var c io.Closer
		var err error
		if one.tracepoint != "" {
			c, err = attachTracepoint(one.program, one.tracepoint)
		} else {
			c, err = link.AttachTracing(link.TracingOptions{Program: one.program})
		}
		require.NoError(b, err)
		attached = append(attached, c)
	}
	return func() {
		for _, c := range attached {
			require.NoError(b, c.Close())
		}
	}
}

// BenchmarkConnectionBesideOtherTools does the same with tools that an engineer would otherwise use. They take seconds to start, so
// each has its windows in a row between untraced ones.
func BenchmarkConnectionBesideOtherTools(b *testing.B) {
	load := newLoad(b)
	n := 3
	if rounds(2) > 1 {
		n = 30
	}
	windows := func(wall *samples) {
		for range n {
			load.window(b, load.connect)
			wall.add(load.lastWall)
		}
	}
	var r report
	r.line("%-44s %s", "share of the untraced rate that is left", "median (ns a connection, median [p10 … p90])")
	tell := func(name string, with, without samples) {
		left := without.median() / with.median()
		b.ReportMetric(left, name+"-rate-left")
		r.line("%-44s %.2f (%v; untraced %v)", name, left, with, without)
	}

	var without, with samples
	windows(&without)
	s := openForBenchmark(b, defaults())
	ended := readInBackground(b, s)
	windows(&with)
	require.NoError(b, s.Close())
	<-ended
	windows(&without)
	tell("ours", with, without)

	for _, t := range otherTools() {
		var without, with samples
		windows(&without)
		stop, err := t.start(b, func() { load.window(b, load.connect) })
		if err != nil {
			r.line("%-44s left out: %v", t.name, err)
			continue
		}
		windows(&with)
		stop()
		windows(&without)
		tell(t.name, with, without)
	}
	b.ReportMetric(0, "ns/op")
	b.Log(r.String())
}

// BenchmarkPrograms takes each program's mean run time from the kernel's own statistics, beside that of an empty program on the same
// hook. One load's windows alternate between three ways: no handshake becomes a record, all that can become one do, empty programs.
func BenchmarkPrograms(b *testing.B) {
	connections, segments := fewestRuns*11/10, uint64(fewestRuns*11/10) // a program that runs once for each has run often enough
	if rounds(2) == 1 {
		connections, segments = connections/10, segments/10
	}
	many := func(one func(*load) func()) func(*testing.B) func() {
		return func(b *testing.B) func() {
			l := newLoad(b)
			return func() {
				l.thread.Do(func() {
					for range connections {
						one(l)()
					}
				})
				require.NoError(b, l.failed)
			}
		}
	}
	for _, l := range []struct {
		name  string
		load  func(*testing.B) func()
		emits map[string]event.Kind // by program: over loopback what answers a connect waits for its thread
	}{
		{"connect-accept-close", many(func(l *load) func() { return l.connect }), map[string]event.Kind{
			handshakeProgStateInCall: event.KindConnectCompleted}},
		{"refused-connect", many(func(l *load) func() { return l.refuse }), map[string]event.Kind{
			handshakeProgStateInCall: event.KindConnectFailed, resetProgResetByKernel: event.KindResetSent}},
		{"close-with-unread-data", many(func(l *load) func() { return l.abort }), map[string]event.Kind{
			handshakeProgStateInCall: event.KindConnectCompleted, resetProgResetByThread: event.KindResetSent,
			resetProgResetReceivedInSoftirq: event.KindResetReceived}},
		{"transfer-with-loss", func(b *testing.B) func() { return newLossyTransfer(b, segments).run }, map[string]event.Kind{
			retransmitProgRetransmitInSoftirq: event.KindSegmentRetransmitted}},
	} {
		b.Run(l.name, func(b *testing.B) { benchmarkPrograms(b, l.load(b), l.emits) })
	}
}

func benchmarkPrograms(b *testing.B, run func(), emits map[string]event.Kind) {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if errors.Is(err, os.ErrPermission) {
		nettest.Unavailable(b, "run statistics take root: "+err.Error())
	}
	require.NoError(b, err)
	b.Cleanup(func() { statistics.Close() })
	silent := defaults()
	silent.CountOnly = true
	loud := defaults()
	loud.HandshakeReport, loud.ResetNoSocket = ReportAll, true

	measured := map[string]*programCost{}
	for range rounds(8) {
		quiet := measurePrograms(b, silent, run, emits)
		full := measurePrograms(b, loud, run, emits)
		none := measureEmptyPrograms(b, slices.Sorted(maps.Keys(full)), run)
		for name := range full {
			if measured[name] == nil {
				measured[name] = &programCost{}
			}
			measured[name].add(quiet[name], full[name], none[name])
		}
	}
	var r report
	r.line("%-34s %-24s %-24s %-24s %s", "program (runs a window)", "ns a run, no records", "empty program", "more with a record",
		"with a record, at most (records)")
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		c := measured[name]
		if c.runs.median() < fewestRuns {
			continue
		}
		more, most := "", ""
		b.ReportMetric(c.silent.median(), name+"-ns/run")
		if c.emitted.median() >= fewestRuns {
			more, most = c.more.String(), fmt.Sprintf("%v (%.0f)", c.emitting, c.emitted.median())
			b.ReportMetric(c.emitting.median(), name+"-ns/record")
		}
		r.line("%-34s %-24v %-24v %-24s %s", fmt.Sprintf("%s (%.0f)", name, c.runs.median()), c.silent, c.empty, more, most)
	}
	b.ReportMetric(float64(limitSilentRun), "ns/run-wanted")
	b.ReportMetric(float64(limitEmitRun), "ns/record-wanted")
	b.ReportMetric(0, "ns/op")
	b.Log(r.String())
}

// programCost collects the mean run times of one program over the rounds.
type programCost struct{ runs, emitted, silent, empty, more, emitting samples }

func (c *programCost) add(quiet, full, none programRuns) {
	c.runs.add(float64(full.runs))
	c.emitted.add(float64(full.emitted))
	if quiet.runs == 0 || full.runs == 0 || none.runs == 0 {
		return
	}
	c.silent.add(quiet.mean())
	c.empty.add(none.mean())
	if full.emitted == 0 {
		return
	}
	// The statistics hold no single runs. No other run is shorter than that of an empty program, so this is the most that the runs
	// which emitted can have taken on average; that other runs work too is in it.
	others := float64(full.runs-min(full.emitted, full.runs)) * none.mean()
	c.emitting.add((float64(full.time) - others) / float64(full.emitted))
	c.more.add((full.mean() - quiet.mean()) * float64(full.runs) / float64(full.emitted))
}

// programRuns are the kernel's statistics of one program over one window.
type programRuns struct {
	runs, emitted uint64
	time          time.Duration
}

func (p programRuns) mean() float64 { return float64(p.time) / float64(p.runs) }

func statsOf(b *testing.B, s *Source) map[string]programRuns {
	all := map[string]programRuns{}
	for name, prog := range s.programs {
		stats, err := prog.Stats()
		require.NoError(b, err)
		all[name] = programRuns{runs: stats.RunCount, time: stats.Runtime}
	}
	return all
}

func measurePrograms(b *testing.B, settings Settings, run func(), emits map[string]event.Kind) map[string]programRuns {
	s := openForBenchmark(b, settings)
	ended := readInBackground(b, s)
	run()
	all := statsOf(b, s)
	var c event.Counters
	require.NoError(b, s.Counters(&c))
	require.NoError(b, s.Close())
	<-ended
	for name, kind := range emits {
		p := all[name]
		p.emitted = c.Seen[kind] - c.RingFull[kind]
		all[name] = p
	}
	return all
}

func measureEmptyPrograms(b *testing.B, names []string, run func()) map[string]programRuns {
	s := openEmpty(b, names)
	run()
	all := statsOf(b, s)
	require.NoError(b, s.Close())
	return all
}

// defaults are the receiver's own.
func defaults() Settings {
	return Settings{HandshakeReport: ReportSlow, HandshakeSlowThreshold: 250 * time.Millisecond, ResetEnabled: true,
		RetransmitEnabled: true, HistogramBounds: event.ExponentialBounds(), RingBufferSize: 8 << 20}
}

func openForBenchmark(b *testing.B, settings Settings) *Source {
	b.Helper()
	s, err := Open(settings)
	if errors.Is(err, os.ErrPermission) {
		nettest.Unavailable(b, err.Error())
	}
	require.NoError(b, err)
	b.Cleanup(func() { s.Close() })
	return s
}

// programSpecs are all programs by name.
func programSpecs(b *testing.B) map[string]*ebpf.ProgramSpec {
	b.Helper()
	specs := map[string]*ebpf.ProgramSpec{}
	for _, f := range families {
		for _, p := range f.parts {
			spec, err := p.load()
			require.NoError(b, err)
			maps.Copy(specs, spec.Programs)
		}
	}
	return specs
}

// openEmpty attaches programs that do nothing to the hooks of the named ones.
func openEmpty(b *testing.B, names []string) *Source {
	b.Helper()
	l := &loader{source: &Source{shared: map[string]*ebpf.Map{}, programs: map[string]*ebpf.Program{}}}
	b.Cleanup(func() { l.source.Close() })
	specs := programSpecs(b)
	for _, name := range names {
		p := specs[name]
		p.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
		prog, err := ebpf.NewProgram(p)
		require.NoError(b, err)
		require.NoError(b, l.attachProgram(prog, name, p))
	}
	require.Len(b, l.source.programs, len(names))
	return l.source
}

// readInBackground reads as the receiver does, on the other processor. The channel is closed when the Source was closed.
func readInBackground(b *testing.B, s *Source) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // ends with the goroutine, and its processor set with it
		var set unix.CPUSet
		set.Set(0)
		_ = unix.SchedSetaffinity(0, &set)
		var e event.Event
		for {
			s.SetDeadline(time.Now().Add(20 * time.Millisecond))
			for {
				err := s.Read(&e)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						b.Error(err)
					}
					return
				}
			}
		}
	}()
	return ended
}

// load is a thread on the last processor, in a network of its own, with a listener and a port where nobody listens.
type load struct {
	namespace *nettest.Namespace
	thread    *nettest.Thread
	listener  int
	server    unix.RawSockaddrInet4
	nobody    unix.RawSockaddrInet4
	octet     byte
	failed    error   // of the first call that went wrong
	lastWall  float64 // nanoseconds a connection of the last window by the clock on the wall
}

func newLoad(b *testing.B) *load {
	b.Helper()
	n := nettest.NewNamespace(b)
	// Few client ports: after as many connections each one hits a TIME_WAIT of the server, so the windows are alike.
	n.Sysctl(b, "net.ipv4.ip_local_port_range", "32768 40767")
	l := &load{namespace: n, thread: n.Thread(b, "load")}
	var err error
	l.thread.Do(func() {
		var set unix.CPUSet
		set.Set(runtime.NumCPU() - 1)
		if err = unix.SchedSetaffinity(0, &set); err != nil {
			return
		}
		l.listener, l.server, err = bound()
		if err == nil {
			err = unix.Listen(l.listener, 64)
		}
		if err == nil {
			var fd int
			fd, l.nobody, err = bound()
			unix.Close(fd)
		}
	})
	require.NoError(b, err)
	b.Cleanup(func() { unix.Close(l.listener) })
	l.thread.Do(func() {
		for range 10_000 {
			l.connect()
		}
	})
	require.NoError(b, l.failed)
	return l
}

// bound is a socket that has a port of loopback.
func bound() (int, unix.RawSockaddrInet4, error) {
	raw := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: [4]byte{127, 0, 0, 1}}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, raw, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: raw.Addr}); err != nil {
		return fd, raw, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fd, raw, err
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&raw.Port))[:], uint16(name.(*unix.SockaddrInet4).Port))
	return fd, raw, nil
}

// window repeats one for some 60 ms and returns the thread's nanoseconds for each.
func (l *load) window(b *testing.B, one func()) float64 {
	const length = 60 * time.Millisecond
	var each float64
	l.thread.Do(func() {
		for range 100 { // what was just attached or detached comes into the caches
			one()
		}
		wall, cpu, n := time.Now(), threadTime(), 0
		for time.Since(wall) < length {
			for range 20 {
				one()
			}
			n += 20
		}
		each = float64(threadTime()-cpu) / float64(n)
		l.lastWall = float64(time.Since(wall)) / float64(n)
	})
	require.NoError(b, l.failed)
	return each
}

// connect makes a connection and ends it in order, the server first.
func (l *load) connect() {
	client, server := l.pair()
	l.end(server)
	l.end(client)
}

// abort closes the server's end with a byte unread: it resets the connection.
func (l *load) abort() {
	client, server := l.pair()
	l.call(unix.SYS_WRITE, client, uintptr(unsafe.Pointer(&l.octet)), 1)
	l.end(server)
	l.end(client)
}

// refuse connects to where nobody listens.
func (l *load) refuse() {
	client := l.socket()
	_, _, err := unix.RawSyscall(unix.SYS_CONNECT, client, uintptr(unsafe.Pointer(&l.nobody)), unsafe.Sizeof(l.nobody))
	if err != unix.ECONNREFUSED && l.failed == nil {
		l.failed = fmt.Errorf("connect to a port without a listener: %w", err)
	}
	l.end(client)
}

func (l *load) pair() (client, server uintptr) {
	client = l.socket()
	l.call(unix.SYS_CONNECT, client, uintptr(unsafe.Pointer(&l.server)), unsafe.Sizeof(l.server))
	return client, l.call(unix.SYS_ACCEPT4, uintptr(l.listener), 0, 0)
}

func (l *load) socket() uintptr {
	return l.call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP)
}

func (l *load) end(fd uintptr) { l.call(unix.SYS_CLOSE, fd, 0, 0) }

// call makes a system call as a C program would: without a word to Go's scheduler and without an allocation.
func (l *load) call(number, a, b, c uintptr) uintptr {
	result, _, err := unix.RawSyscall6(number, a, b, c, 0, 0, 0)
	if err != 0 && l.failed == nil {
		l.failed = fmt.Errorf("system call %d: %w", number, err)
	}
	return result
}

// lossyTransfer sends over connections whose packets are lost now and then.
type lossyTransfer struct {
	b         *testing.B
	namespace *nettest.Namespace
	segments  uint64 // that a run has to send again
	written   []net.Conn
}

func newLossyTransfer(b *testing.B, segments uint64) *lossyTransfer {
	b.Helper()
	const connections = 24
	t := &lossyTransfer{b: b, namespace: nettest.NewNamespace(b), segments: segments}
	t.namespace.SingleSegments(b, "lo")
	var listener net.Listener
	t.namespace.Do(b, func() (err error) {
		listener, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	b.Cleanup(func() { listener.Close() })
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	t.namespace.Filter(b, "loss", "input", fmt.Sprintf("tcp dport %d numgen random mod 100 < 4 drop", port))
	var drained sync.WaitGroup
	drained.Add(connections)
	b.Cleanup(drained.Wait)
	for range connections {
		var conn net.Conn
		t.namespace.Do(b, func() (err error) {
			conn, err = net.Dial("tcp4", listener.Addr().String())
			return err
		})
		b.Cleanup(func() { conn.Close() })
		t.written = append(t.written, conn)
		peer, err := listener.Accept()
		require.NoError(b, err)
		b.Cleanup(func() { peer.Close() })
		go func() {
			defer drained.Done()
			_, _ = io.Copy(io.Discard, peer)
		}()
	}
	return t
}

// run sends until enough was sent again, but at most for some seconds.
func (t *lossyTransfer) run() {
	before := t.namespace.Counters(t.b)
	deadline := time.Now().Add(5 * time.Second)
	var stop atomic.Bool
	var done sync.WaitGroup
	for _, conn := range t.written {
		done.Go(func() {
			chunk := make([]byte, 64<<10)
			for !stop.Load() {
				if _, err := conn.Write(chunk); err != nil {
					return
				}
			}
		})
	}
	for time.Now().Before(deadline) && t.namespace.Counters(t.b).Since(before)["Tcp.RetransSegs"] < t.segments {
		<-time.After(10 * time.Millisecond)
	}
	stop.Store(true)
	done.Wait()
}

// tool is another tracer of TCP connections.
type tool struct {
	name     string
	command  []string
	attached string // what it prints, given connections, once it traces
	needs    string // kernel headers, if it compiles C against them
}

func otherTools() []tool {
	return []tool{
		{name: "tcplife", command: []string{"tcplife-bpfcc"}, attached: `127\.0\.0\.1`, needs: "headers"},
		{name: "tcpstates", command: []string{"tcpstates-bpfcc"}, attached: `127\.0\.0\.1`, needs: "headers"},
		{name: "bpftrace", command: []string{"bpftrace", "-e",
			"tracepoint:sock:inet_sock_set_state { @[args->newstate] = count(); } interval:ms:100 { print(@); }"}, attached: `^@\[`},
	}
}

// start runs the tool until stop is called, with connections made by drive until it tells that it sees them.
func (t *tool) start(b *testing.B, drive func()) (stop func(), err error) {
	path, err := exec.LookPath(t.command[0])
	if err != nil {
		return nil, err
	}
	// tracefs is mounted for the tool alone.
	script := "mount -t tracefs tracefs /sys/kernel/tracing\nmount -t debugfs debugfs /sys/kernel/debug\n"
	if t.needs == "headers" {
		more, err := headers(b.TempDir())
		if err != nil {
			return nil, err
		}
		script += more
	}
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-e", "-c", script + `exec "$@"`, "sh", path}, t.command[1:]...)...)
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	var errorOutput strings.Builder
	cmd.Stderr = &errorOutput
	output, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	attached := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		match := regexp.MustCompile(t.attached)
		lines := bufio.NewScanner(output)
		for found := false; lines.Scan(); {
			if !found && match.Match(lines.Bytes()) {
				found = true
				close(attached)
			}
		}
		ended <- cmd.Wait()
	}()
	stop = func() {
		_ = cmd.Process.Signal(unix.SIGINT)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		select {
		case <-attached:
			return stop, nil
		case err := <-ended:
			return nil, fmt.Errorf("%s ended: %w: %s", t.name, err, lastLine(errorOutput.String()))
		default:
			drive()
		}
	}
	stop()
	return nil, fmt.Errorf("%s did not see a connection within a minute", t.name)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// headers is what makes bcc's compiler find kernel headers. Where those of the running kernel are not installed, any of Debian's do:
// these tools then read wrong fields, at the same cost.
func headers(scratch string) (script string, err error) {
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return "", err
	}
	for _, own := range []string{"/lib/modules/" + unix.ByteSliceToString(uname.Release[:]) + "/build", "/sys/kernel/kheaders.tar.xz"} {
		if _, err := os.Stat(own); err == nil {
			return "", nil
		}
	}
	const pattern = "/usr/src/linux-headers-*-common"
	common, err := filepath.Glob(pattern)
	if err != nil || len(common) == 0 {
		return "", fmt.Errorf("no kernel headers: neither the running kernel's nor %s (Debian's linux-headers-amd64)", pattern)
	}
	arch, err := filepath.Glob(strings.TrimSuffix(common[0], "common") + "*")
	if err != nil || len(arch) < 2 {
		return "", fmt.Errorf("no kernel headers: only %s", common[0])
	}
	slices.SortFunc(arch, func(x, y string) int { // the common part below
		return strings.Compare(strings.TrimSuffix(y, "common"), strings.TrimSuffix(x, "common"))
	})
	return fmt.Sprintf("mount -t overlay overlay -o lowerdir=%s %s\nexport BCC_KERNEL_SOURCE=%s\n", strings.Join(arch, ":"), scratch,
		scratch), nil
}
