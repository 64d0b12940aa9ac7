// SPDX-License-Identifier: Apache-2.0

package event

import (
	"math"
	"time"
)

// MaxBounds is the most bounds that a kernel histogram takes (HISTOGRAM_BOUNDS in bpf/events.h).
const MaxBounds = 192

// ExponentialOffset is the index of the first bucket of ExponentialBounds in an OTLP exponential histogram of scale
// ExponentialScale: bucket i holds (2^(i/4), 2^((i+1)/4)] seconds.
const (
	ExponentialOffset = -120
	ExponentialScale  = 2
)

// ExponentialBounds are the inclusive upper bounds, in nanoseconds, of the buckets of an exponential histogram over seconds with
// four buckets a doubling, from just under one nanosecond to 2^18 s (three days). A duration is a whole number of nanoseconds, so
// cutting each bound down to one moves no value to another bucket.
func ExponentialBounds() []uint64 {
	bounds := make([]uint64, MaxBounds)
	for i := range bounds {
		bounds[i] = uint64(math.Exp2(float64(ExponentialOffset+i+1)/4) * 1e9)
	}
	return bounds
}

// ExplicitBounds are the 16 inclusive upper bounds, in nanoseconds, for stores without exponential histograms.
func ExplicitBounds() []uint64 {
	const us = uint64(time.Microsecond)
	return []uint64{500 * us, 1_000 * us, 2_500 * us, 5_000 * us, 10_000 * us, 25_000 * us, 50_000 * us, 100_000 * us, 250_000 * us,
		500_000 * us, 1_000_000 * us, 2_500_000 * us, 5_000_000 * us, 10_000_000 * us, 30_000_000 * us, 60_000_000 * us}
}

// Histogram counts durations. Buckets[i] holds those in (bounds[i-1], bounds[i]]; the last one those above the last bound.
type Histogram struct {
	Buckets [MaxBounds + 1]uint64
	Sum     uint64 // nanoseconds
}

// Count is the number of durations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// MaxReasons is how many reset reasons are counted apart; the last index takes those above (RESET_REASONS in bpf/events.h).
const MaxReasons = 64

// Counters is what the kernel side has counted since Start, before any threshold or limit. All are cumulative.
type Counters struct {
	Start       time.Time // when the counting began
	Handshakes  [RoleCount][OutcomeCount]Histogram
	Connections [RoleCount][OutcomeCount]uint64 // also those whose duration is not known
	AcceptWaits Histogram                       // in the accept queue
	Retransmits [SegmentTypeCount][RetransmitTypeCount]uint64
	Congestion  [CongestionStateCount]uint64       // states entered
	Resets      [DirectionCount][MaxReasons]uint64 // by the kernel's number of the reason; received ones have index 0
	Reasons     [MaxReasons]string                 // the names of those numbers on this kernel; empty: no reason known

	Seen           [KindCount]uint64 // events that were to become records
	RingFull       [KindCount]uint64 // of those, lost because the ring buffer was full
	SocketsAdded   uint64            // sockets whose owner began to be tracked
	SocketsRemoved uint64
	SocketsRefused uint64            // sockets not tracked because the table was full
	Recursion      map[string]uint64 // runs that the kernel skipped, by program
	DecodeErrors   uint64            // records that could not be decoded
}
