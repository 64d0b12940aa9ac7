// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"context"
	"errors"
	"os"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

const (
	// The kernel submits records without waking the reader, which would cost more than the record: the reader looks by itself.
	pollInterval = 20 * time.Millisecond
	// Looking 50 times a second costs more than all else while nothing happens, so after a quiet second it looks less often.
	quietAfter       = time.Second
	idlePollInterval = 200 * time.Millisecond // when no records are asked for
	maxBatch         = 512
	maxBatchAge      = 200 * time.Millisecond
	drainLimit       = time.Second
)

// batch collects records; emit.Logs is one.
type batch interface {
	Append(e *event.Event, observed int64)
	Len() int
	Take() plog.Logs
}

// reader takes events from the ring buffer to the next consumer, on one goroutine. There is no queue but the ring: while a
// delivery waits nothing is read, and the kernel counts what no longer fits.
type reader struct {
	now       func() uint64   // CLOCK_MONOTONIC in nanoseconds, as event.Event.KTime
	batch     batch           // nil: events are discarded
	deliver   func(plog.Logs) // returns when the records are delivered or given up
	fold      *folder         // between events and limit
	limit     *limiter        // between fold and batch
	current   event.Event     // reused for every event
	observed  time.Time       // when current was read
	lastEvent time.Time       // when the last one was read
	oldest    time.Time       // the same for the first record of batch
}

func newReader(
	now func() uint64, b batch, foldInterval time.Duration, limit *limiter, deliver func(plog.Logs),
) *reader {
	r := &reader{now: now, batch: b, limit: limit, deliver: deliver}
	r.fold = newFolder(foldInterval, maxFolds, r.append)
	return r
}

// run reads until stop is done, then what is left in the ring, and returns nil; or until the source fails, and says how. Either way
// it leaves nothing undelivered behind.
func (r *reader) run(stop context.Context, src source) error {
	err := error(nil)
	for err == nil && stop.Err() == nil {
		interval := pollInterval
		if r.batch == nil || time.Since(r.lastEvent) >= quietAfter {
			interval = idlePollInterval
		}
		src.SetDeadline(time.Now().Add(interval))
		err = r.readUntilEmpty(src, stop.Done())
		r.observed = time.Now()
		now := r.now()
		r.fold.advance(now)
		r.limit.advance(now)
		r.flush()
	}
	if err == nil {
		limit, cancel := context.WithTimeout(context.Background(), drainLimit)
		defer cancel()
		src.SetDeadline(time.Now())
		err = r.readUntilEmpty(src, limit.Done())
	}
	r.fold.flush()
	r.flush()
	if stop.Err() != nil {
		r.limit.flush()
	}
	return err
}

// readUntilEmpty returns nil when the ring is empty at the source's deadline, or when until is closed.
func (r *reader) readUntilEmpty(src source, until <-chan struct{}) error {
	for {
		select {
		case <-until:
			return nil
		default:
		}
		switch err := src.Read(&r.current); {
		case err == nil:
			r.observed = time.Now()
			if r.batch != nil && r.observed.Sub(r.lastEvent) >= quietAfter {
				src.SetDeadline(r.observed.Add(pollInterval)) // it is quiet no more
			}
			r.lastEvent = r.observed
			r.fold.add(&r.current)
			r.flushIfOld()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return err
		}
	}
}

// append takes an event from fold.
func (r *reader) append(e *event.Event) {
	if r.batch == nil || !r.limit.allow(e) {
		return
	}
	if r.batch.Len() == 0 {
		r.oldest = r.observed
	}
	r.batch.Append(e, r.observed.UnixNano())
	if r.batch.Len() >= maxBatch {
		r.flush()
	}
}

// flushIfOld matters only while the ring does not run empty.
func (r *reader) flushIfOld() {
	if r.batch != nil && r.batch.Len() > 0 && r.observed.Sub(r.oldest) >= maxBatchAge {
		r.flush()
	}
}

func (r *reader) flush() {
	if r.batch != nil && r.batch.Len() > 0 {
		r.deliver(r.batch.Take())
	}
}
