// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestClockTellsWallTimeOfMonotonicTime(t *testing.T) {
	c := newClock(time.Millisecond)
	require.InDelta(t, time.Now().UnixNano(), c.wall(monotonic()), float64(5*time.Millisecond))
	require.InDelta(t, time.Now().UnixNano(), c.started(uint64(now(unix.CLOCK_BOOTTIME))), float64(5*time.Millisecond))
	require.Zero(t, c.started(0))
}

func TestClockFollowsAStepOfTheWallClockAfterTheRefresh(t *testing.T) {
	c := newClock(time.Millisecond)
	c.offset += int64(time.Hour) // as if the wall clock had been set back since
	boot := c.bootOffset
	require.Greater(t, c.wall(monotonic()), time.Now().Add(30*time.Minute).UnixNano(), "before the refresh")
	require.InDelta(t, time.Now().UnixNano()+int64(refreshInterval), c.wall(monotonic()+refreshInterval+1), float64(time.Second))
	require.Equal(t, boot, c.bootOffset, "one process never has two start times")
}

func TestJiffyIsThatOfTheNearestRate(t *testing.T) {
	for _, test := range []struct {
		ticks   uint32
		elapsed time.Duration
		want    time.Duration
	}{
		{15, 60 * time.Millisecond, 4 * time.Millisecond}, {16, 60 * time.Millisecond, 4 * time.Millisecond},
		{14, 60 * time.Millisecond, 4 * time.Millisecond}, {6, 60 * time.Millisecond, 10 * time.Millisecond},
		{18, 60 * time.Millisecond, time.Second / 300}, {60, 60 * time.Millisecond, time.Millisecond},
		{61, 60 * time.Millisecond, time.Millisecond}, {0, 0, 0}, {500, 60 * time.Millisecond, 0},
	} {
		require.Equal(t, test.want, jiffyOf(test.ticks, test.elapsed), "%d ticks in %s", test.ticks, test.elapsed)
	}
}

func TestRingSizeIsAPowerOfTwoOfPages(t *testing.T) {
	for size, want := range map[int]int{0: 4096, 1: 4096, 4096: 4096, 4097: 8192, 8 << 20: 8 << 20, 8<<20 + 1: 16 << 20} {
		require.Equal(t, want, ringSize(size), size)
	}
}
