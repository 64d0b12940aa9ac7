// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// Source is a set of loaded and attached programs. Read is for one goroutine; the other methods are for any.
type Source struct {
	decoder
	reader       *ringbuf.Reader
	record       ringbuf.Record
	start        time.Time
	reasons      [event.MaxReasons]string
	signals      []Signal
	shared       map[string]*ebpf.Map
	programs     map[string]*ebpf.Program
	closers      []io.Closer // in the order in which they were made
	decodeErrors atomic.Uint64

	closing sync.RWMutex // held for reading while maps and programs are in use
	closed  bool
}

// Open loads and attaches what the settings ask for. A signal that the kernel refuses is off and says so in Signals; Open fails
// only if no signal at all works, and leaves nothing behind then. The caller closes the Source.
func Open(settings Settings) (*Source, error) {
	s := &Source{shared: map[string]*ebpf.Map{}, programs: map[string]*ebpf.Program{}}
	if err := s.open(settings); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Source) open(settings Settings) error {
	l := &loader{source: s, cache: btf.NewCache()}
	// Only kernels before 5.11 charge maps to this limit; if it cannot be lifted there, creating a map says so.
	memlock := rlimit.RemoveMemlock()
	if err := l.kernelTypes(settings.BTFPath); err != nil {
		return err
	}
	t, err := startTicks()
	if err != nil {
		return explain(err)
	}
	defer func() { _ = t.close() }() // nothing is lost with it
	s.reasons = l.resetReasons()
	if l.config.Self, err = ownPID(); err != nil {
		return explain(err)
	}
	if err := l.configure(settings); err != nil {
		return err
	}
	if err := l.createShared(settings.RingBufferSize); err != nil {
		return explain(errors.Join(err, memlock))
	}
	if s.reader, err = ringbuf.NewReader(s.shared[handshakeMapEvents]); err != nil {
		return fmt.Errorf("open ring buffer: %w", err)
	}
	s.start = time.Now()
	var refusals []error
	works := false
	for _, f := range families {
		if !f.enabled(settings) {
			continue
		}
		signal, err := l.attach(&f)
		s.signals = append(s.signals, signal)
		works = works || (signal.Hook != "" && !f.aid)
		refusals = append(refusals, err)
	}
	if !works {
		return fmt.Errorf("no signal works: %w", oneLine(refusals))
	}
	jiffy, err := t.jiffy()
	if err != nil {
		return err
	}
	s.decoder = decoder{clock: newClock(jiffy), reasons: &s.reasons}
	return nil
}

// Read waits for the next event and overwrites e with it. It returns os.ErrDeadlineExceeded when the deadline has passed and all
// events are read, ErrClosed after Close, and any other error when the ring buffer cannot be read any more. Records that cannot
// be decoded are counted and skipped.
func (s *Source) Read(e *event.Event) error {
	for {
		if err := s.reader.ReadInto(&s.record); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return ErrClosed
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return os.ErrDeadlineExceeded
			}
			return fmt.Errorf("read ring buffer: %w", err)
		}
		if s.decode(s.record.RawSample, e) == nil {
			return nil
		}
		s.decodeErrors.Add(1)
	}
}

// SetDeadline sets until when Read waits. The kernel does not wake the reader for single events, so a deadline of some
// milliseconds, set anew for each wait, bounds the delay.
func (s *Source) SetDeadline(t time.Time) { s.reader.SetDeadline(t) }

// Signals tells what works and by which hooks.
func (s *Source) Signals() []Signal { return s.signals }

// Close detaches and unloads everything, in the reverse order. It interrupts Read. A second call does nothing.
func (s *Source) Close() error {
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i].Close())
	}
	return errors.Join(errs...)
}
