// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

const (
	// maxFileName is the longest file name that Linux has (NAME_MAX in include/uapi/linux/limits.h).
	maxFileName = 255
	// settled is the age from which a process is thought to have published its context, if it ever does: an SDK does it at its
	// start, which takes seconds in the slowest runtimes.
	settled = 30 * time.Second
	// askAgain is when a process is asked again that could not be asked.
	askAgain = 10 * time.Second
)

// ProcessKey tells processes apart: a pid is used again, but not at the same time. A process that executes another file, or is
// moved to another cgroup, is still the same process, but other things are to be told of it.
type ProcessKey struct {
	PID        uint32 // in the host's pid namespace; 0: no process
	StartTime  int64  // Unix nanoseconds; 0: not known
	CgroupID   uint64
	Executable [48]byte // as in event.Owner
}

// KeyOf is the key of an event's process; the zero key if it has none.
func KeyOf(owner *event.Owner) ProcessKey {
	if owner.Source == event.OwnerNone || owner.PID == 0 {
		return ProcessKey{}
	}
	return ProcessKey{PID: owner.PID, StartTime: owner.StartTime, CgroupID: owner.CgroupID, Executable: owner.Executable}
}

// Process is what is told of a process.
type Process struct {
	PID          uint32 // in the host's pid namespace
	VPID         uint32 // in the process's innermost pid namespace; 0: not known
	CreationTime string // ISO 8601, milliseconds, UTC; empty: not known
	Executable   string // file name without the directory; empty: not known
	ContainerID  string // 64 hexadecimal digits; empty: not in a container, or not known
	PodUID       string // as its cgroup says, otherwise as it says itself; empty: not in a pod, or not known
	// Attributes are what the process says of itself, sorted by name: a label, never proof of anything. PodUID is not among them.
	Attributes []Attribute
}

// Attribute is something that a process says of itself, fit to print.
type Attribute struct{ Name, Value string }

// attributePodUID is the one attribute that the kernel knows better.
const attributePodUID = "k8s.pod.uid"

// Settings are what a Cache needs to know.
type Settings struct {
	RootPath    string   // where the host's / is mounted; empty: /
	Size        int      // how many processes are held at most
	Attributes  []string // names that a process may say of itself; no others are kept
	Environment bool     // it may say them by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
	Context     bool     // it may say them by its published process context
}

// Cache holds what is told of the processes used last. It is safe for use by several goroutines.
type Cache struct {
	proc      string
	processes *lru.Cache[ProcessKey, held]
	last      *lru.Cache[lifetime, [48]byte] // the executable a process was last seen with
	cgroups   *cgroups
	boot      *bootClock
	inquiry   *inquiry
	now       func() time.Time
}

// lifetime is a process whatever it executes.
type lifetime struct {
	pid   uint32
	start int64
}

// held is a process and what is still to be found out about it.
type held struct {
	process     *Process
	again       int64 // when to look again, Unix nanoseconds; 0: there is nothing more to find
	environment *told // what its environment says; nil: not read
}

// NewCache makes an empty cache.
func NewCache(settings Settings) (*Cache, error) {
	return newCache(settings, "/sys/fs/cgroup", time.Now)
}

func newCache(settings Settings, localCgroups string, now func() time.Time) (*Cache, error) {
	processes, err := lru.New[ProcessKey, held](settings.Size)
	if err != nil {
		return nil, fmt.Errorf("make process cache: %w", err)
	}
	last, err := lru.New[lifetime, [48]byte](settings.Size)
	if err != nil {
		return nil, fmt.Errorf("make executable cache: %w", err)
	}
	root := filepath.Join("/", settings.RootPath)
	groups, err := newCgroups(filepath.Join(root, "sys/fs/cgroup"), localCgroups, now)
	if err != nil {
		return nil, err
	}
	c := &Cache{proc: filepath.Join(root, "proc"), processes: processes, last: last, cgroups: groups, now: now}
	c.boot = newBootClock(filepath.Join(c.proc, "uptime"), now)
	c.inquiry = newInquiry(settings)
	return c, nil
}

// Len is the number of processes held.
func (c *Cache) Len() int { return c.processes.Len() }

// Complete puts in the executable of a process that has let go of it: the kernel closes the sockets of a process that ends only
// after its memory, so the record of a reset that it sends then names none.
func (c *Cache) Complete(owner *event.Owner) {
	if owner.PID != 0 && owner.StartTime != 0 && owner.Executable[0] == 0 {
		owner.Executable, _ = c.last.Get(lifetime{owner.PID, owner.StartTime})
	}
}

// Process is what is told of an event's process; nil if the event has none. The result is shared and not to be changed. Only a
// process that is not held yet costs more than a look into a map: once for its identity, and once more for a context that it may
// publish only after its first connections.
func (c *Cache) Process(owner *event.Owner) *Process {
	key := KeyOf(owner)
	if key.PID == 0 {
		return nil
	}
	held, ok := c.processes.Get(key)
	if ok && owner.Executable[0] != 0 {
		c.last.Add(lifetime{owner.PID, owner.StartTime}, owner.Executable)
	}
	if ok && (held.again == 0 || c.now().UnixNano() < held.again) {
		return held.process
	}
	held = c.look(owner, held.environment)
	c.processes.Add(key, held)
	if owner.Executable[0] != 0 {
		c.last.Add(lifetime{owner.PID, owner.StartTime}, owner.Executable)
	}
	return held.process
}

// look finds out about a process. What the kernel's record carries is told in any case; the rest only if it can be had.
func (c *Cache) look(owner *event.Owner, environment *told) held {
	now := c.now()
	p := &Process{PID: owner.PID, VPID: owner.VPID}
	found := held{process: p, environment: environment}
	if owner.StartTime > 0 {
		p.CreationTime = time.Unix(0, owner.StartTime).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	dir := c.open(owner)
	var again [2]time.Time
	var container Container
	container, again[0] = c.cgroups.container(owner.CgroupID, dir)
	p.ContainerID, p.PodUID = container.ID, container.PodUID

	recorded := executableOf(owner)
	name, current := recorded, false
	if dir != nil {
		name, current = whole(recorded, dir)
	}
	p.Executable = string(AppendText(nil, []byte(name), maxFileName))
	if current && c.inquiry.wanted() {
		// It closes the directory.
		answer := c.inquiry.ask(dir, recorded, environment)
		found.environment = answer.environment
		var pod string
		p.Attributes, pod = answer.attributes()
		if p.PodUID == "" {
			p.PodUID = pod
		}
		switch settledAt := time.Unix(0, owner.StartTime).Add(settled); {
		case !answer.complete:
			again[1] = now.Add(askAgain)
		case c.inquiry.context && len(answer.context) == 0 && now.Before(settledAt):
			again[1] = settledAt
		}
	} else if dir != nil {
		dir.Close()
	}
	for _, at := range again {
		if !at.IsZero() && (found.again == 0 || at.UnixNano() < found.again) {
			found.again = at.UnixNano()
		}
	}
	return found
}

// executableOf is the file name in the owner's record, at most 47 bytes.
func executableOf(owner *event.Owner) string {
	name := owner.Executable[:]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	return string(name)
}

// whole is the recorded name of an executable, completed where the record had no room for all of it, and whether the process still
// executes it: of one that executes another file by now nothing is asked.
func whole(recorded string, dir *os.Root) (name string, current bool) {
	link, err := dir.Readlink("exe")
	if err != nil {
		return recorded, false
	}
	linked := strings.TrimSuffix(filepath.Base(link), " (deleted)")
	const cut = len(event.Owner{}.Executable) - 1
	switch {
	case recorded == "" || linked == recorded:
		return recorded, true
	case len(recorded) == cut && strings.HasPrefix(linked, recorded):
		return linked, true
	}
	return recorded, false
}
