// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// open opens the owner's directory in /proc; nil if that process is gone. An open directory stays that process's: when the pid is
// another's, reading through it fails with ESRCH (get_proc_task in fs/proc/internal.h, Linux 6.18). So one look at the start time,
// after opening, is enough.
func (c *Cache) open(owner *event.Owner) *os.Root {
	if owner.StartTime <= 0 {
		return nil
	}
	dir, err := os.OpenRoot(filepath.Join(c.proc, strconv.FormatUint(uint64(owner.PID), 10)))
	if err != nil {
		return nil
	}
	text, err := readFile(dir, "stat", 4096)
	if err == nil {
		if started, ok := startOf(text); ok && c.boot.agrees(started, owner.StartTime) {
			return dir
		}
	}
	dir.Close()
	return nil
}

// readFile reads at most limit bytes of a file.
func readFile(dir *os.Root, name string, limit int64) ([]byte, error) {
	file, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// startOf is when a process started, since the boot, by its stat: field 22, in hundredths of a second (proc(5)). The thread's name
// in field 2 may contain anything, so counting begins at the last parenthesis.
func startOf(stat []byte) (time.Duration, bool) {
	const (
		afterName = 22 - 3
		tick      = time.Second / 100 // USER_HZ is 100 on x86-64 and arm64
	)
	name := bytes.LastIndexByte(stat, ')')
	if name < 0 {
		return 0, false
	}
	index := 0
	for field := range bytes.FieldsSeq(stat[name+1:]) {
		if index == afterName {
			ticks, err := strconv.ParseInt(string(field), 10, 64)
			if err != nil || ticks < 0 || ticks > int64(1<<62)/int64(tick) {
				return 0, false
			}
			return time.Duration(ticks) * tick, true
		}
		index++
	}
	return 0, false
}

const (
	// bootTolerance is more than uptime and start times are rounded by (both to hundredths of a second), and much less than it takes
	// until a pid is used again.
	bootTolerance = 100 * time.Millisecond
	// bootInterval is how often at most the boot time is determined anew.
	bootInterval = 10 * time.Second
)

// bootClock compares start times that the kernel tells since the boot with those of event owners, which are wall time by an offset
// that was frozen at some moment. When the wall clock has been set meanwhile the offset differs: then either the first reading here
// or the newest is right.
type bootClock struct {
	uptime string
	now    func() time.Time
	mu     sync.Mutex
	boot   [2]time.Time // the first reading, the newest
	next   time.Time
}

func newBootClock(uptime string, now func() time.Time) *bootClock {
	b := &bootClock{uptime: uptime, now: now}
	b.boot[0] = b.read()
	b.boot[1], b.next = b.boot[0], now().Add(bootInterval)
	return b
}

// agrees says whether a start since the boot and one in Unix nanoseconds are the same.
func (b *bootClock) agrees(sinceBoot time.Duration, started int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.near(sinceBoot, started) {
		return true
	}
	if now := b.now(); now.After(b.next) {
		b.boot[1], b.next = b.read(), now.Add(bootInterval)
		return b.near(sinceBoot, started)
	}
	return false
}

func (b *bootClock) near(sinceBoot time.Duration, started int64) bool {
	for _, boot := range b.boot {
		if !boot.IsZero() && boot.Add(sinceBoot).Sub(time.Unix(0, started)).Abs() <= bootTolerance {
			return true
		}
	}
	return false
}

// read is the time of the boot; the zero time if it cannot be known. The thread may be interrupted between the two clocks, which
// makes it too late: the earliest of several readings counts.
func (b *bootClock) read() (boot time.Time) {
	for range 3 {
		text, err := os.ReadFile(b.uptime)
		if err != nil {
			return time.Time{}
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		seconds, err := strconv.ParseFloat(string(first), 64)
		if err != nil || seconds < 0 || seconds > 1e9 {
			return time.Time{}
		}
		at := b.now().Round(0).Add(-time.Duration(seconds * float64(time.Second)))
		if boot.IsZero() || at.Before(boot) {
			boot = at
		}
	}
	return boot
}
