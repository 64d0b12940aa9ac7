// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource is a source whose ring holds what a test puts there.
type fakeSource struct {
	ring     chan event.Event
	failure  chan error
	closed   chan struct{}
	signals  []probe.Signal
	closeErr error
	deadline time.Time

	mu       sync.Mutex
	counters event.Counters
}

func (s *fakeSource) Read(e *event.Event) error {
	select {
	case <-s.closed:
		return probe.ErrClosed
	case *e = <-s.ring:
		return nil
	default:
	}
	deadline := time.NewTimer(time.Until(s.deadline))
	defer deadline.Stop()
	select {
	case <-s.closed:
		return probe.ErrClosed
	case err := <-s.failure:
		return err
	case *e = <-s.ring:
		return nil
	case <-deadline.C:
		return os.ErrDeadlineExceeded
	}
}

func (s *fakeSource) SetDeadline(t time.Time) { s.deadline = t }

func (s *fakeSource) Counters(c *event.Counters) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*c = s.counters
	return nil
}

func (s *fakeSource) Signals() []probe.Signal { return s.signals }

func (s *fakeSource) Close() error {
	select {
	case <-s.closed:
		return errors.New("closed twice")
	default:
		close(s.closed)
		return s.closeErr
	}
}

func (s *fakeSource) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// fakeKernel opens fake sources. What is set on it holds for those opened later.
type fakeKernel struct {
	mu       sync.Mutex
	err      error
	signals  []probe.Signal
	opened   []*fakeSource
	settings []probe.Settings
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{signals: []probe.Signal{{Name: "handshake", Hook: "tp_btf/a"}, {Name: "reset", Hook: "tp_btf/b"}}}
}

func (k *fakeKernel) kernel() kernel {
	return kernel{open: k.open, now: func() uint64 { return uint64(time.Now().UnixNano()) }}
}

func (k *fakeKernel) open(settings probe.Settings) (source, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settings = append(k.settings, settings)
	if k.err != nil {
		return nil, k.err
	}
	s := &fakeSource{ring: make(chan event.Event, 100_000), failure: make(chan error, 1), closed: make(chan struct{}),
		signals: k.signals}
	s.counters.Start = time.Now()
	s.counters.Connections[event.RoleClient][event.OutcomeOK] = 1
	k.opened = append(k.opened, s)
	return s, nil
}

func (k *fakeKernel) refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *fakeKernel) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.settings)
}

// last is the source opened last.
func (k *fakeKernel) last() *fakeSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opened[len(k.opened)-1]
}

func (k *fakeKernel) allClosed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.opened {
		if !s.isClosed() {
			return false
		}
	}
	return true
}

// fakeHost remembers the status it is told.
type fakeHost struct {
	mu     sync.Mutex
	events []*componentstatus.Event
}

func (h *fakeHost) GetExtensions() map[component.ID]component.Component { return nil }

func (h *fakeHost) Report(ev *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, ev)
}

func (h *fakeHost) statuses() []componentstatus.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []componentstatus.Status
	for _, ev := range h.events {
		all = append(all, ev.Status())
	}
	return all
}

func (h *fakeHost) last() *componentstatus.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[len(h.events)-1]
}

// logsSink keeps the cookies of the records it takes. answer, if set, decides what to say to a batch.
type logsSink struct {
	answer  func(context.Context, plog.Logs) error
	mutates bool
	mu      sync.Mutex
	cookies []int64
	batches []int // records of each
	calls   atomic.Int64
}

func (s *logsSink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: s.mutates}
}

func (s *logsSink) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	s.calls.Add(1)
	if s.answer != nil {
		if err := s.answer(ctx, ld); err != nil {
			return err
		}
	}
	s.take(ld)
	return nil
}

func (s *logsSink) take(ld plog.Logs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, ld.LogRecordCount())
	for _, record := range allRecords(ld) {
		cookie, _ := record.Attributes().Get("ebpfnet.socket.cookie")
		s.cookies = append(s.cookies, cookie.Int())
	}
}

func (s *logsSink) taken() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64(nil), s.cookies...)
}

func allRecords(ld plog.Logs) []plog.LogRecord {
	var all []plog.LogRecord
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				all = append(all, record)
			}
		}
	}
	return all
}

// metricsSink counts what it takes.
type metricsSink struct {
	consumertest.MetricsSink
}

func (s *metricsSink) taken() []pmetric.Metrics { return s.AllMetrics() }

func failed(cookie uint64) event.Event {
	return event.Event{Kind: event.KindConnectFailed, Cookie: cookie, Time: time.Now().UnixNano(),
		KTime: uint64(time.Now().UnixNano()), Outcome: event.OutcomeRefused}
}

func cookies(from, to int64) []int64 {
	var all []int64
	for c := from; c <= to; c++ {
		all = append(all, c)
	}
	return all
}

// asked are the settings of all openings.
func (k *fakeKernel) asked() []probe.Settings {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.settings
}
