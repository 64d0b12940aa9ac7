// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// clock converts the kernel's monotonic time to wall time by an offset that is sampled now and then, never per event: a step of the
// wall clock shows after at most refreshInterval.
type clock struct {
	offset     int64  // wall minus monotonic, nanoseconds
	refreshAt  uint64 // monotonic
	bootOffset int64  // wall minus boottime, frozen: a process that started once has one start time
	jiffy      int64  // nanoseconds a tick of the kernel
}

const refreshInterval = 10 * uint64(time.Second)

func newClock(jiffy time.Duration) *clock {
	c := &clock{jiffy: int64(jiffy), bootOffset: offsetTo(unix.CLOCK_BOOTTIME)}
	c.refresh(monotonic())
	return c
}

// wall is the wall time, in Unix nanoseconds, of a time of CLOCK_MONOTONIC.
func (c *clock) wall(ktime uint64) int64 {
	if ktime >= c.refreshAt {
		c.refresh(ktime)
	}
	return int64(ktime) + c.offset
}

// started is the wall time, in Unix nanoseconds, of a time of CLOCK_BOOTTIME; 0 stays 0.
func (c *clock) started(boottime uint64) int64 {
	if boottime == 0 {
		return 0
	}
	return int64(boottime) + c.bootOffset
}

func (c *clock) refresh(ktime uint64) {
	c.offset = offsetTo(unix.CLOCK_MONOTONIC)
	c.refreshAt = ktime + refreshInterval
}

// offsetTo is the wall clock minus another. Of several readings, each framed by two of the other clock, the tightest counts: the
// thread may be interrupted between any two.
func offsetTo(id int32) int64 {
	best, offset := int64(math.MaxInt64), int64(0)
	for range 5 {
		before, wall, after := now(id), now(unix.CLOCK_REALTIME), now(id)
		if after-before < best {
			best, offset = after-before, wall-(before+(after-before)/2)
		}
	}
	return offset
}

func now(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // these clocks exist on every Linux
	}
	return ts.Nano()
}

func monotonic() uint64 { return uint64(now(unix.CLOCK_MONOTONIC)) }

// tickRates are the values that CONFIG_HZ takes (kernel/Kconfig.hz), and one of patched kernels.
var tickRates = []float64{100, 250, 300, 500, 1000}

// jiffyOf is the length of a tick, given how far the tick counter moved in the time: the nearest known rate.
func jiffyOf(ticks uint32, elapsed time.Duration) time.Duration {
	if elapsed <= 0 {
		return 0
	}
	rate, best := 0.0, math.MaxFloat64
	measured := float64(ticks) / elapsed.Seconds()
	for _, r := range tickRates {
		// a tick may just have been missed or caught at either end
		if d := math.Abs(measured - r); d < best && d <= 1.5/elapsed.Seconds() {
			rate, best = r, d
		}
	}
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / rate)
}
