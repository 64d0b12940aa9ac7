// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

type leftOut = [event.KindCount]uint64

func newTestLimiter(t testing.TB, perSecond float64, burst, maxCgroups int, say func(*leftOut)) *limiter {
	if say == nil {
		say = func(*leftOut) {}
	}
	l, err := newLimiter(RateLimitConfig{RecordsPerSecond: perSecond, Burst: burst}, maxCgroups, say)
	require.NoError(t, err)
	return l
}

// ofCgroup is a failed connect of a process in that cgroup; 0: without an owner.
func ofCgroup(cgroup uint64, seconds float64) event.Event {
	e := event.Event{Kind: event.KindConnectFailed, KTime: uint64(seconds * 1e9)}
	if cgroup != 0 {
		e.Owner = event.Owner{Source: event.OwnerOpener, PID: 7, CgroupID: cgroup}
	}
	return e
}

func TestRecordsOfAKindAreLimited(t *testing.T) {
	type burst struct {
		at     float64 // seconds
		kind   event.Kind
		cgroup uint64
		events int
		pass   int
	}
	const failed, reset = event.KindConnectFailed, event.KindResetSent
	for _, c := range []struct {
		name      string
		perSecond float64
		burst     int
		bursts    []burst
	}{
		{"all that fit into half a burst pass", 100, 1000, []burst{{1, failed, 5, 500, 500}}},
		{"a cgroup takes at most half of a burst", 100, 1000, []burst{{1, failed, 5, 5000, 500}, {1, failed, 6, 5000, 500}}},
		{"and two take it all", 100, 1000,
			[]burst{{1, failed, 5, 5000, 500}, {1, failed, 6, 5000, 500}, {1, failed, 7, 10, 0}}},
		{"a storm leaves another cgroup the other half", 100, 1000,
			[]burst{{1, failed, 5, 5000, 500}, {2, failed, 5, 5000, 50}, {2, failed, 6, 400, 400}}},
		{"a cgroup takes at most half of what is earned", 100, 1000,
			[]burst{{1, failed, 5, 5000, 500}, {2, failed, 5, 5000, 50}, {3, failed, 5, 5000, 50}, {3.5, failed, 5, 5000, 25}}},
		{"what has no owner counts as one", 100, 1000, []burst{{1, failed, 0, 5000, 500}, {1, failed, 6, 5000, 500}}},
		{"no more is saved than a burst", 100, 1000,
			[]burst{{1, failed, 5, 5000, 500}, {1, failed, 6, 5000, 500}, {1000, failed, 5, 5000, 500}, {1000, failed, 6, 5000, 500}}},
		{"kinds are apart", 100, 1000,
			[]burst{{1, failed, 5, 5000, 500}, {1, failed, 6, 5000, 500}, {1, reset, 5, 5000, 500}, {1, reset, 6, 5000, 500}}},
		{"a burst of one is not halved", 2, 1, []burst{{1, failed, 5, 9, 1}, {1.5, failed, 5, 9, 0}, {2, failed, 5, 9, 1}}},
		{"less than one a second", 0.5, 1, []burst{{1, failed, 5, 9, 1}, {2, failed, 6, 9, 0}, {3, failed, 6, 9, 1}}},
		{"time that runs backwards earns nothing", 100, 10,
			[]burst{{2, failed, 5, 9, 5}, {1, failed, 5, 9, 0}, {2, failed, 5, 9, 0}, {1, failed, 5, 9, 0}, {2.02, failed, 5, 9, 1}}},
		{"a refusal for want of tokens of all costs the cgroup none of its share", 10, 10,
			[]burst{{1, failed, 5, 9, 5}, {1, failed, 6, 9, 5}, {1, failed, 7, 9, 0}, {1.5, failed, 7, 9, 5}}},
		{"0 is no limit", 0, 1, []burst{{1, failed, 5, 100_000, 100_000}}},
		{"an unknown kind is not its business", 1, 1, []burst{{1, event.KindCount, 5, 9, 9}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTestLimiter(t, c.perSecond, c.burst, maxLimitedCgroups, nil)
			var want leftOut
			for i, b := range c.bursts {
				e := ofCgroup(b.cgroup, b.at)
				e.Kind = b.kind
				passed := 0
				for range b.events {
					if l.allow(&e) {
						passed++
					}
				}
				assert.Equal(t, b.pass, passed, "burst %d", i)
				if b.kind < event.KindCount {
					want[b.kind] += uint64(b.events - b.pass)
				}
			}
			assert.Equal(t, want, l.leftOutTotal())
		})
	}
}

func TestNeitherAKindNorACgroupPassesMoreThanItsPart(t *testing.T) {
	const perSecond, burst, cgroups = 50.0, 40, 5
	l := newTestLimiter(t, perSecond, burst, maxLimitedCgroups, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var all []float64
	of := map[uint64][]float64{}
	total := uint64(0)
	for now := 0.0; now < 60; now += random.ExpFloat64() / 400 {
		// Out of order by up to 10 ms; cgroup 1 makes half of all.
		e := ofCgroup(uint64(max(1, int(random.Int64N(2*cgroups))-cgroups)), max(0, now-random.Float64()/100))
		total++
		if l.allow(&e) {
			all = append(all, now)
			of[e.Owner.CgroupID] = append(of[e.Owner.CgroupID], now)
		}
	}
	bounded := func(what string, passed []float64, perSecond, burst float64) {
		t.Helper()
		for from := 0; from < len(passed); from += 50 {
			for to := from; to < len(passed); to += 10 {
				assert.LessOrEqual(t, float64(to-from+1), burst+perSecond*(passed[to]-passed[from]+0.01)+1, what)
			}
		}
	}
	bounded("kind", all, perSecond, burst)
	for cgroup, passed := range of {
		bounded(fmt.Sprintf("cgroup %d", cgroup), passed, perSecond/2, burst/2)
		assert.Greater(t, len(passed), 100, "cgroup %d starves", cgroup)
	}
	assert.InDelta(t, burst+60*perSecond, len(all), 2, "nothing is left out that might pass")
	assert.Equal(t, total-uint64(len(all)), l.leftOutTotal()[event.KindConnectFailed])
}

func TestEventsWithoutAnOwnerShareOnePart(t *testing.T) {
	for _, c := range []struct {
		owner event.Owner
		want  uint64
	}{
		{event.Owner{Source: event.OwnerCurrent, PID: 7, CgroupID: 5}, 5},
		{event.Owner{Source: event.OwnerCurrent, PID: 7}, ownerless},
		{event.Owner{Source: event.OwnerOpener, CgroupID: 5}, ownerless},
		{event.Owner{Source: event.OwnerNone, PID: 7, CgroupID: 5}, ownerless},
	} {
		assert.Equal(t, c.want, cgroupOf(&c.owner))
	}
}

func TestTheTableOfCgroupsIsBounded(t *testing.T) {
	l := newTestLimiter(t, 1e6, 1e6, 8, nil)
	for cgroup := range uint64(1000) {
		e := ofCgroup(1+cgroup, 1)
		assert.True(t, l.allow(&e))
		assert.LessOrEqual(t, l.kinds[event.KindConnectFailed].cgroups.Len(), 8)
	}
}

func TestWhatIsLeftOutIsSaidAfterASecondThenOnceAMinuteAndAtTheEnd(t *testing.T) {
	var said []uint64
	l := newTestLimiter(t, 1, 1, maxLimitedCgroups, func(n *leftOut) { said = append(said, n[event.KindConnectFailed]) })
	// What passes is one at 0 s, and one each two seconds thereafter.
	storm := func(seconds float64, events int) {
		for range events {
			e := ofCgroup(5, seconds)
			l.allow(&e)
		}
	}
	at := func(seconds float64) { l.advance(uint64(seconds * 1e9)) }
	storm(0, 11)
	at(0.999)
	assert.Empty(t, said)
	at(1)
	assert.Equal(t, []uint64{10}, said)
	at(100)
	assert.Len(t, said, 1, "nothing more was left out")

	storm(200, 4)
	storm(201, 1) // is left out, and says so itself: the ring need not run empty
	assert.Equal(t, []uint64{10, 4}, said)
	storm(201, 5)
	storm(260.5, 1) // passes
	storm(260.5, 2)
	at(260.9)
	assert.Len(t, said, 2, "within the minute")
	at(261)
	assert.Equal(t, []uint64{10, 4, 7}, said)

	storm(262, 1)
	storm(262.1, 3)
	l.flush()
	l.flush()
	assert.Equal(t, []uint64{10, 4, 7, 4}, said)
	assert.Equal(t, uint64(25), l.leftOutTotal()[event.KindConnectFailed])
}

func TestLimitingAllocatesNothingForAKnownCgroup(t *testing.T) {
	l := newTestLimiter(t, 100, 1000, maxLimitedCgroups, nil)
	e := ofCgroup(5, 1)
	l.allow(&e)
	allocated := testing.AllocsPerRun(10_000, func() { // some pass, most do not
		e.KTime += uint64(time.Millisecond)
		l.allow(&e)
	})
	assert.Zero(t, allocated)
	assert.NotZero(t, l.leftOutTotal()[event.KindConnectFailed])
}

func BenchmarkLimit(b *testing.B) {
	for name, step := range map[string]time.Duration{"passing": 100 * time.Millisecond, "left out": 10 * time.Microsecond} {
		b.Run(name, func(b *testing.B) {
			l := newTestLimiter(b, 100, 1000, maxLimitedCgroups, nil)
			e := ofCgroup(5, 1)
			b.ReportAllocs()
			for i := range uint64(b.N) {
				e.KTime += uint64(step)
				e.Owner.CgroupID = 1 + i%200
				l.allow(&e)
			}
		})
	}
}
