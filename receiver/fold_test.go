// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

func retransmitAt(seconds float64, cookie uint64, segments uint32) event.Event {
	ns := uint64(seconds * 1e9)
	return event.Event{Kind: event.KindSegmentRetransmitted, KTime: ns, Time: int64(ns), Cookie: cookie, Segments: segments,
		Retransmit: event.RetransmitTimeout}
}

func fastAt(seconds float64, cookie uint64, segments uint32) event.Event {
	e := retransmitAt(seconds, cookie, segments)
	e.Retransmit = event.RetransmitFast
	return e
}

func closedAt(seconds float64, cookie uint64) event.Event {
	return event.Event{Kind: event.KindSocketClosed, KTime: uint64(seconds * 1e9), Cookie: cookie}
}

// told is what a folder told, as "cookie/type segments@seconds of the latest".
type told []string

func (t *told) tell(e *event.Event) {
	if e.Kind != event.KindSegmentRetransmitted {
		*t = append(*t, e.Kind.String())
		return
	}
	*t = append(*t, fmt.Sprintf("%d/%s %d@%g", e.Cookie, e.Retransmit, e.Segments, float64(e.KTime)/1e9))
}

func TestRetransmitsOfAConnectionAreFolded(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		limit    int
		events   []event.Event
		until    float64 // then advance to here
		want     told
	}{
		{name: "the first is told at once", events: []event.Event{retransmitAt(1, 7, 2)}, want: told{"7/timeout 2@1"}},
		{name: "further ones wait for the interval's end",
			events: []event.Event{retransmitAt(1, 7, 2), retransmitAt(1.5, 7, 3)}, until: 1.9, want: told{"7/timeout 2@1"}},
		{name: "and are told as one, with the sum and the latest time",
			events: []event.Event{retransmitAt(1, 7, 2), retransmitAt(1.5, 7, 3), retransmitAt(1.75, 7, 1)}, until: 2,
			want: told{"7/timeout 2@1", "7/timeout 4@1.75"}},
		{name: "an event after the end ends the interval too, and belongs to the next",
			events: []event.Event{retransmitAt(1, 7, 2), retransmitAt(1.5, 7, 3), retransmitAt(2.5, 7, 1)}, until: 3.4,
			want: told{"7/timeout 2@1", "7/timeout 3@1.5"}},
		{name: "which is told in its turn",
			events: []event.Event{retransmitAt(1, 7, 2), retransmitAt(1.5, 7, 3), retransmitAt(2.5, 7, 1)}, until: 3.5,
			want: told{"7/timeout 2@1", "7/timeout 3@1.5", "7/timeout 1@2.5"}},
		{name: "after an interval without any the next is a first again",
			events: []event.Event{retransmitAt(1, 7, 2), retransmitAt(2, 7, 3)}, want: told{"7/timeout 2@1", "7/timeout 3@2"}},
		{name: "types are apart",
			events: []event.Event{retransmitAt(1, 7, 1), fastAt(1.25, 7, 1), fastAt(1.5, 7, 1), retransmitAt(1.75, 7, 1)}, until: 3,
			want: told{"7/timeout 1@1", "7/fast 1@1.25", "7/timeout 1@1.75", "7/fast 1@1.5"}},
		{name: "connections are apart",
			events: []event.Event{retransmitAt(1, 7, 1), retransmitAt(1.25, 8, 1)}, want: told{"7/timeout 1@1", "8/timeout 1@1.25"}},
		{name: "a close tells at once what is kept, of every type",
			events: []event.Event{retransmitAt(1, 7, 1), retransmitAt(1.25, 7, 1), fastAt(1.25, 7, 1), fastAt(1.5, 7, 5),
				closedAt(1.5, 7)},
			want: told{"7/timeout 1@1", "7/fast 1@1.25", "7/fast 5@1.5", "7/timeout 1@1.25"}},
		{name: "a close with nothing kept is no record",
			events: []event.Event{retransmitAt(1, 7, 1), closedAt(1.5, 7), closedAt(1.5, 8)}, until: 9, want: told{"7/timeout 1@1"}},
		{name: "without a cookie nothing is folded",
			events: []event.Event{retransmitAt(1, 0, 1), retransmitAt(1.25, 0, 1)}, want: told{"0/timeout 1@1", "0/timeout 1@1.25"}},
		{name: "a full table tells the oldest early",
			limit:  2,
			events: []event.Event{retransmitAt(1, 7, 1), retransmitAt(1.1, 8, 1), retransmitAt(1.2, 7, 3), retransmitAt(1.3, 9, 1)},
			want:   told{"7/timeout 1@1", "8/timeout 1@1.1", "7/timeout 3@1.2", "9/timeout 1@1.3"}},
		{name: "records slightly out of order end no interval",
			events: []event.Event{retransmitAt(1, 7, 1), retransmitAt(0.9, 7, 1)}, want: told{"7/timeout 1@1"}},
		{name: "other kinds pass",
			events: []event.Event{{Kind: event.KindResetSent, Cookie: 7}, {Kind: event.KindConnectFailed, Cookie: 7}},
			want:   told{"reset_sent", "connect_failed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got told
			limit := maxFolds
			if c.limit > 0 {
				limit = c.limit
			}
			f := newFolder(time.Second, limit, got.tell)
			for i := range c.events {
				f.add(&c.events[i])
			}
			f.advance(uint64(c.until * 1e9))
			assert.Equal(t, c.want, got)
		})
	}
}

func TestWithoutIntervalEveryRetransmitIsTold(t *testing.T) {
	var got told
	f := newFolder(0, maxFolds, got.tell)
	for _, e := range []event.Event{retransmitAt(1, 7, 1), retransmitAt(1, 7, 1), closedAt(1, 7)} {
		f.add(&e)
	}
	assert.Equal(t, told{"7/timeout 1@1", "7/timeout 1@1"}, got)
	assert.Empty(t, f.folds)
}

func TestFlushTellsWhatIsKeptAndForgets(t *testing.T) {
	var got told
	f := newFolder(time.Second, maxFolds, got.tell)
	for _, e := range []event.Event{retransmitAt(1, 7, 1), retransmitAt(1, 7, 4), retransmitAt(1, 8, 1)} {
		f.add(&e)
	}
	f.flush()
	assert.Equal(t, told{"7/timeout 1@1", "8/timeout 1@1", "7/timeout 4@1"}, got)
	assert.Empty(t, f.folds)
	f.flush()
	assert.Len(t, got, 3)
}

func TestFoldsNeitherLoseNorInventSegments(t *testing.T) {
	var in, out uint64
	f := newFolder(time.Second, 64, func(e *event.Event) { out += uint64(e.Segments) })
	e := retransmitAt(0, 0, 0)
	for i := range uint64(100_000) {
		e.KTime = i * 1_000_000
		e.Cookie = i * i % 151
		e.Retransmit = event.RetransmitType(i % uint64(event.RetransmitTypeCount))
		e.Segments = uint32(i % 7)
		e.Kind = event.KindSegmentRetransmitted
		if i%13 == 0 {
			e.Kind = event.KindSocketClosed
		} else {
			in += uint64(e.Segments)
		}
		f.add(&e)
		assert.LessOrEqual(t, len(f.folds), 64)
	}
	f.flush()
	assert.Equal(t, in, out)
}

func TestFoldingAllocatesNothingForAKnownConnection(t *testing.T) {
	f := newFolder(time.Second, maxFolds, func(*event.Event) {})
	e := retransmitAt(1, 7, 1)
	f.add(&e)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		e.KTime += 1_000_000
		f.add(&e)
	}))
}

func BenchmarkFold(b *testing.B) {
	f := newFolder(time.Second, maxFolds, func(*event.Event) {})
	e := retransmitAt(1, 7, 1)
	b.ReportAllocs()
	for i := range uint64(b.N) {
		e.KTime += 1_000_000
		e.Cookie = 1 + i%1000
		f.add(&e)
	}
}
