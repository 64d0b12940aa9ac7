// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

const (
	maxLimitedCgroups = 1024        // of each kind; one that is forgotten and comes again may have a whole burst again
	sayInterval       = time.Minute // what is left out is said at most this often,
	sayDelay          = time.Second // and first when a burst had the time to show its size
)

// ownerless is the cgroup of events whose cgroup is not known. No cgroup has the inode number 0.
const ownerless uint64 = 0

// limiter lets through so many records of each kind and leaves the others out, so that a storm costs what is behind the receiver
// a bounded amount. Within a kind no cgroup, nor all events without an owner together, takes more than half: one that goes wild
// leaves room for the others. It reads no clock: time is event.Event.KTime, so that what waited in the ring while a consumer
// refused is judged by when it happened, and what the caller passes. All but leftOutTotal is for one goroutine.
type limiter struct {
	unlimited bool
	kinds     [event.KindCount]kindLimiter
	latest    uint64 // of all events; records of different CPUs come slightly out of order, and folded ones late
	leftOut   [event.KindCount]atomic.Uint64

	say       func(leftOut *[event.KindCount]uint64) // the number of each kind since it was last called
	unsaid    [event.KindCount]uint64
	waits     bool   // there is something in unsaid, to be said from due on
	due       uint64 // nanoseconds of CLOCK_MONOTONIC, as all below
	quietTill uint64
}

func newLimiter(cfg RateLimitConfig, maxCgroups int, say func(leftOut *[event.KindCount]uint64)) (*limiter, error) {
	l := &limiter{unlimited: cfg.RecordsPerSecond == 0, say: say}
	for kind := range l.kinds {
		cgroups, err := simplelru.NewLRU[uint64, *rate.Limiter](maxCgroups, nil)
		if err != nil {
			return nil, fmt.Errorf("create table of cgroups: %w", err)
		}
		l.kinds[kind] = kindLimiter{
			all:     rate.NewLimiter(rate.Limit(cfg.RecordsPerSecond), cfg.Burst),
			cgroups: cgroups,
			rate:    rate.Limit(cfg.RecordsPerSecond / 2),
			burst:   (cfg.Burst + 1) / 2, // of a burst of 1, one
		}
	}
	return l, nil
}

// allow says whether an event may become a record. One that may not is counted.
func (l *limiter) allow(e *event.Event) bool {
	if l.unlimited || e.Kind >= event.KindCount {
		return true
	}
	// Time that runs backwards would let a token be earned twice.
	l.latest = max(l.latest, e.KTime)
	if l.kinds[e.Kind].take(cgroupOf(&e.Owner), time.Unix(0, int64(l.latest))) {
		return true
	}
	l.leftOut[e.Kind].Add(1)
	l.unsaid[e.Kind]++
	if !l.waits {
		l.waits = true
		l.due = max(l.latest+uint64(sayDelay), l.quietTill)
	}
	l.advance(l.latest)
	return false
}

func cgroupOf(owner *event.Owner) uint64 {
	if owner.Source == event.OwnerNone || owner.PID == 0 {
		return ownerless
	}
	return owner.CgroupID
}

// advance says what was left out when that is due at now.
func (l *limiter) advance(now uint64) {
	if l.waits && now >= l.due {
		l.flush()
		l.quietTill = now + uint64(sayInterval)
	}
}

// flush says what was left out and not said yet.
func (l *limiter) flush() {
	if l.waits {
		l.say(&l.unsaid)
		clear(l.unsaid[:])
		l.waits = false
	}
}

// leftOutTotal is how many records of each kind were left out since the start. Any goroutine may ask.
func (l *limiter) leftOutTotal() (total [event.KindCount]uint64) {
	for kind := range total {
		total[kind] = l.leftOut[kind].Load()
	}
	return total
}

// kindLimiter is the tokens of one kind, and of those each cgroup's share.
type kindLimiter struct {
	all     *rate.Limiter
	cgroups *simplelru.LRU[uint64, *rate.Limiter]
	rate    rate.Limit // of a cgroup
	burst   int
}

// take takes a token of the cgroup's share and one of all, or none.
func (k *kindLimiter) take(cgroup uint64, now time.Time) bool {
	if k.all.TokensAt(now) < 1 {
		return false
	}
	share, ok := k.cgroups.Get(cgroup)
	if !ok {
		share = rate.NewLimiter(k.rate, k.burst)
		k.cgroups.Add(cgroup, share)
	}
	return share.AllowN(now, 1) && k.all.AllowN(now, 1)
}
