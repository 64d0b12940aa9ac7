// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// kernel is what the receiver needs of the system it runs on; tests have their own.
type kernel struct {
	open func(probe.Settings) (source, error)
	now  func() uint64 // CLOCK_MONOTONIC in nanoseconds, as event.Event.KTime
}

// source is what is used of probe.Source.
type source interface {
	Read(*event.Event) error
	SetDeadline(time.Time)
	Counters(*event.Counters) error
	Signals() []probe.Signal
	Close() error
}

// sourceHandle is the source in use. The reading goroutine replaces it after a failure, while others ask it for counters.
type sourceHandle struct {
	mu       sync.Mutex
	source   source         // nil: none
	signals  []probe.Signal // of the last one
	counters event.Counters // too large for a stack
}

func (h *sourceHandle) set(src source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.signals = src, src.Signals()
}

// close closes the source if there is one.
func (h *sourceHandle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.source == nil {
		return nil
	}
	src := h.source
	h.source = nil
	if err := src.Close(); err != nil {
		return fmt.Errorf("close event source: %w", err)
	}
	return nil
}

// count calls use with what was counted up to now; not at all while there is no source.
func (h *sourceHandle) count(use func(*event.Counters)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.source == nil {
		return nil
	}
	if err := h.source.Counters(&h.counters); err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	use(&h.counters)
	return nil
}

// observe fills in what the source knows for the receiver's own telemetry. What cannot be read is told as it was last.
func (h *sourceHandle) observe(o *metadata.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &h.counters
	if h.source != nil {
		_ = h.source.Counters(c) // the metrics pipeline, or the reader, tells of a source that fails
	}
	o.Seen, o.RingFull, o.DecodeErrors, o.Recursion = c.Seen, c.RingFull, c.DecodeErrors, c.Recursion
	o.SocketsTracked, o.SocketsRefused = int64(c.SocketsAdded)-int64(c.SocketsRemoved), c.SocketsRefused
	for _, s := range h.signals {
		o.Signals = append(o.Signals, metadata.Signal{Name: s.Name, Hook: s.Hook})
	}
}

// openSource opens the source and keeps it. With on_unavailable: fail a single signal that is off is an error.
func (r *instance) openSource() (source, error) {
	src, err := r.kernel.open(r.cfg.probeSettings(r.logs != nil))
	if err != nil {
		return nil, err
	}
	none, err := signalsOff(src.Signals())
	if none || err != nil && r.cfg.OnUnavailable == onUnavailableFail {
		if closeErr := src.Close(); closeErr != nil {
			err = fmt.Errorf("%w; close event source: %w", err, closeErr)
		}
		return nil, err
	}
	r.source.set(src)
	return src, nil
}

// read runs the reader until the instance is stopped. When a source fails, another is opened, as often as it takes.
func (r *instance) read(to *reader, src source) {
	for wait := r.tuning.reopen; ; {
		opened := time.Now()
		err := to.run(r.stop, src)
		if r.stop.Err() != nil {
			return
		}
		if time.Since(opened) > wait.longest {
			wait = r.tuning.reopen
		}
		for {
			if closeErr := r.source.close(); closeErr != nil {
				err = fmt.Errorf("%w; %w", err, closeErr)
			}
			err = fmt.Errorf("observe TCP: %w", err)
			r.settings.Logger.Warn("Events cannot be read; trying again", zap.Error(err))
			r.status.report(componentstatus.NewRecoverableErrorEvent(err))
			if !pause(r.stop, wait.next()) {
				return
			}
			if src, err = r.openSource(); err == nil {
				break
			}
		}
		r.reportSignals(src.Signals())
	}
}
