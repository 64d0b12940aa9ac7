// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/procfs"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// maxFileName is the longest file name that Linux has (NAME_MAX in include/uapi/linux/limits.h).
const maxFileName = 255

// ProcessKey tells processes apart: a pid is used again, but not at the same time.
type ProcessKey struct {
	PID       uint32 // in the host's pid namespace
	StartTime int64  // Unix nanoseconds; 0: not known
}

// Process is what is told of a process.
type Process struct {
	PID          uint32 // in the host's pid namespace
	VPID         uint32 // in the process's innermost pid namespace; 0: not known
	CreationTime string // ISO 8601, milliseconds, UTC; empty: not known
	Executable   string // file name without the directory; empty: not known
}

// Cache holds what is told of the processes used last. It is safe for use by several goroutines.
type Cache struct {
	proc      string
	processes *lru.Cache[ProcessKey, cached]
	bootTime  func() time.Time
}

type cached struct {
	process    *Process
	executable [48]byte // what process.Executable was made from: a process may execute another file
}

// NewCache makes a cache of at most size processes. rootPath is where the host's / is mounted; empty: /.
func NewCache(rootPath string, size int) (*Cache, error) {
	processes, err := lru.New[ProcessKey, cached](size)
	if err != nil {
		return nil, fmt.Errorf("make process cache: %w", err)
	}
	c := &Cache{proc: filepath.Join("/", rootPath, "proc"), processes: processes}
	c.bootTime = sync.OnceValue(c.readBootTime)
	return c, nil
}

// Len is the number of processes held.
func (c *Cache) Len() int { return c.processes.Len() }

// Process is what is told of an event's process; nil if the event has none. The result is shared and not to be changed. Only a
// process that is not held yet costs an allocation.
func (c *Cache) Process(owner *event.Owner) *Process {
	if owner.Source == event.OwnerNone || owner.PID == 0 {
		return nil
	}
	key := ProcessKey{PID: owner.PID, StartTime: owner.StartTime}
	if held, ok := c.processes.Get(key); ok && held.executable == owner.Executable {
		return held.process
	}
	process := &Process{PID: owner.PID, VPID: owner.VPID, Executable: c.executable(owner)}
	if owner.StartTime > 0 {
		process.CreationTime = time.Unix(0, owner.StartTime).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	c.processes.Add(key, cached{process, owner.Executable})
	return process
}

// executable is the name of the owner's executable. The kernel's record holds 47 bytes of it; of a longer one the rest is in
// /proc, if the process is still there.
func (c *Cache) executable(owner *event.Owner) string {
	name := owner.Executable[:]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	if len(name) >= len(owner.Executable)-1 {
		if whole, ok := c.linkedExecutable(owner); ok && strings.HasPrefix(whole, string(name)) {
			name = []byte(whole)
		}
	}
	return string(AppendText(nil, name, maxFileName))
}

// linkedExecutable reads the name of the owner's executable from /proc.
func (c *Cache) linkedExecutable(owner *event.Owner) (string, bool) {
	link, err := os.Readlink(filepath.Join(c.proc, strconv.FormatUint(uint64(owner.PID), 10), "exe"))
	if err != nil || !c.isRunning(owner) {
		return "", false
	}
	return strings.TrimSuffix(filepath.Base(link), " (deleted)"), true
}

// isRunning says whether the owner's pid still is that process's. The kernel tells start times in hundredths of a second since
// boot and the boot time in seconds, so two seconds' difference is none.
func (c *Cache) isRunning(owner *event.Owner) bool {
	fs, err := procfs.NewFS(c.proc)
	if err != nil {
		return false
	}
	process, err := fs.Proc(int(owner.PID))
	if err != nil {
		return false
	}
	stat, err := process.Stat()
	if err != nil {
		return false
	}
	const userHZ = 100 // USER_HZ is 100 on x86-64 and arm64
	started := c.bootTime().Add(time.Duration(stat.Starttime) * (time.Second / userHZ))
	return started.Sub(time.Unix(0, owner.StartTime)).Abs() <= 2*time.Second
}

func (c *Cache) readBootTime() time.Time {
	fs, err := procfs.NewFS(c.proc)
	if err != nil {
		return time.Time{}
	}
	stat, err := fs.Stat()
	if err != nil {
		return time.Time{}
	}
	return time.Unix(int64(stat.BootTime), 0)
}
