// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	maxCgroups      = 16384 // held, and looked at by one walk
	maxCgroupDepth  = 64
	maxCgroupText   = 64 << 10 // a path is at most PATH_MAX (4096) long, and there are about 15 hierarchies
	walkInterval    = 5 * time.Second
	walkBudget      = 100 * time.Millisecond // the reader of events waits for it
	walkShare       = 50                     // a walk takes at most the 50th part of the time
	memoryHierarchy = "memory"
)

// cgroups finds the container of a cgroup id, which is the inode number of the cgroup's directory: of cgroup v2 where that alone
// is mounted, otherwise of the v1 memory hierarchy, which is what internal/probe records. Ids are never used again.
type cgroups struct {
	dir        string // the hierarchy, as the host sees it; empty: it is not in view
	local      string // the same, as this process sees it: from the root of its cgroup namespace
	controller string // what its line in /proc/PID/cgroup names; empty: v2's line, which names none
	now        func() time.Time
	known      *lru.Cache[uint64, knownCgroup]

	mu       sync.Mutex
	own      string // path in dir of this process's cgroup namespace; empty: not known yet
	nextWalk time.Time
}

// knownCgroup is a cgroup, or one of which it is known that it is not in view.
type knownCgroup struct {
	container Container
	absent    bool
}

// newCgroups looks for the hierarchy below mount, which is the host's /sys/fs/cgroup; local is this process's.
func newCgroups(mount, local string, now func() time.Time) (*cgroups, error) {
	known, err := lru.New[uint64, knownCgroup](maxCgroups)
	if err != nil {
		return nil, fmt.Errorf("make cgroup cache: %w", err)
	}
	g := &cgroups{known: known, now: now}
	switch {
	case inodeOf(filepath.Join(mount, "cgroup.controllers")) != 0:
		g.dir, g.local = mount, local
	case inodeOf(filepath.Join(mount, memoryHierarchy)) != 0:
		g.dir, g.local = filepath.Join(mount, memoryHierarchy), filepath.Join(local, memoryHierarchy)
		g.controller = memoryHierarchy
	case inodeOf(filepath.Join(mount, "unified")) != 0:
		g.dir, g.local = filepath.Join(mount, "unified"), filepath.Join(local, "unified")
	}
	if g.dir == g.local || (g.dir != "" && inodeOf(g.dir) == inodeOf(g.local)) {
		g.own = "/"
	}
	return g, nil
}

// container is that of a cgroup. process is the directory in /proc of a process in it, or nil; it is read only for a cgroup that is
// not known yet. A time says when it is worth asking again.
//
// A process's own word on its path counts as proven when the directory at that path has the id; it is seen from the root of this
// process's cgroup namespace. Otherwise the directory with that id is looked for in the whole tree, which also finds the cgroup of
// a process that is gone. Where the tree is not in view the path's end alone must do: it names the container nevertheless.
func (g *cgroups) container(id uint64, process *os.Root) (Container, time.Time) {
	known, ok := g.known.Get(id)
	if ok && !known.absent {
		return known.container, time.Time{}
	}
	var seen string
	if process != nil {
		if text, err := readFile(process, "cgroup", maxCgroupText); err == nil {
			seen = g.pathIn(text)
		}
	}
	if id == 0 || g.dir == "" {
		return containerOf(seen), time.Time{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	complete := false
	if seen != "" && g.own == "" && !known.absent {
		complete = g.walk()
	}
	if seen != "" && g.own != "" {
		if full := path.Join(g.own, seen); inodeOf(filepath.Join(g.dir, full)) == id {
			found := containerOf(full)
			g.known.Add(id, knownCgroup{container: found})
			return found, time.Time{}
		}
	}
	var again time.Time
	if !known.absent {
		complete = g.walk() || complete
		if known, ok := g.known.Get(id); ok {
			return known.container, time.Time{}
		}
		if complete {
			g.known.Add(id, knownCgroup{absent: true})
		} else {
			again = g.nextWalk
		}
	}
	if g.own == "" || (g.own == "/" && strings.HasPrefix(seen, "/..")) {
		return containerOf(seen), again
	}
	return Container{}, again // the process is in another cgroup by now
}

// pathIn is the path of the hierarchy in the text of /proc/PID/cgroup (cgroups(7)); empty if there is none.
func (g *cgroups) pathIn(text []byte) string {
	controller := g.controller
	if g.dir == "" && bytes.Contains(text, []byte(":"+memoryHierarchy+":")) {
		controller = memoryHierarchy
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // torn
		}
		hierarchy, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(":"))
		controllers, at, found := bytes.Cut(rest, []byte(":"))
		if !found || len(at) == 0 || at[0] != '/' {
			continue
		}
		if controller == "" && (string(hierarchy) != "0" || len(controllers) != 0) {
			continue
		}
		if controller != "" && !lists(controllers, controller) {
			continue
		}
		return strings.TrimSuffix(string(at), " (deleted)")
	}
	return ""
}

// lists says whether a comma-separated list has the item.
func lists(list []byte, item string) bool {
	for one := range bytes.SplitSeq(list, []byte(",")) {
		if string(one) == item {
			return true
		}
	}
	return false
}

// walk learns all cgroups of the tree, breadth first, and says whether it saw them all. It does nothing if the last one is too
// recent.
func (g *cgroups) walk() (complete bool) {
	begun := g.now()
	if begun.Before(g.nextWalk) {
		return false
	}
	complete = g.learn(begun)
	ended := g.now()
	g.nextWalk = ended.Add(max(walkInterval, walkShare*ended.Sub(begun)))
	return complete
}

func (g *cgroups) learn(begun time.Time) (complete bool) {
	own := uint64(0)
	if g.own == "" {
		own = inodeOf(g.local)
	}
	type group struct {
		path  string
		depth int
	}
	if root := inodeOf(g.dir); root != 0 {
		g.known.Add(root, knownCgroup{})
	}
	complete = true
	count := 1
	for waiting := []group{{"/", 0}}; len(waiting) > 0; waiting = waiting[1:] {
		parent := waiting[0]
		if g.now().Sub(begun) > walkBudget {
			return false
		}
		dir, err := os.Open(filepath.Join(g.dir, parent.path))
		if err != nil {
			// Removed meanwhile, and with it all that was in it; or not to be seen.
			complete = complete && errors.Is(err, fs.ErrNotExist)
			continue
		}
		entries, err := dir.ReadDir(-1)
		dir.Close()
		// A directory that is removed while it is read says ENODEV.
		complete = complete && err == nil
		for _, entry := range entries {
			if !entry.IsDir() {
				continue
			}
			info, err := entry.Info()
			if err != nil {
				continue // removed meanwhile
			}
			if count++; count > maxCgroups || parent.depth == maxCgroupDepth {
				return false
			}
			child, id := path.Join(parent.path, entry.Name()), inode(info)
			g.known.Add(id, knownCgroup{container: containerOf(child)})
			if own != 0 && id == own {
				g.own = child
			}
			if !isLeaf(info) {
				waiting = append(waiting, group{child, parent.depth + 1})
			}
		}
	}
	return complete
}

// inodeOf is the inode number of the file at a path; 0 if there is none.
func inodeOf(file string) uint64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return inode(info)
}
