// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const podSlice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice"

// makeCgroup makes a cgroup in a tree and says its id.
func makeCgroup(t *testing.T, root, path string) uint64 {
	dir := filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	id := inodeOf(dir)
	require.NotZero(t, id)
	return id
}

func TestCgroupOfARunningProcessIsProvenByItsID(t *testing.T) {
	for _, test := range []struct{ name, mount, text string }{
		{"v2", "", "0::/system.slice/docker-ID.scope\n"},
		{"v1", "memory", "3:cpu:/x\n2:memory:/system.slice/docker-ID.scope\n"},
		{"hybrid", "memory", "2:memory:/system.slice/docker-ID.scope\n1:name=systemd:/\n0::/user.slice\n"},
		{"hybrid with the memory controller of v2", "unified", "1:name=systemd:/\n0::/system.slice/docker-ID.scope\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := procTree("app")
			root.files["proc/42/cgroup"] = strings.ReplaceAll(test.text, "ID", idA)
			if test.mount == "" {
				root.files["sys/fs/cgroup/cgroup.controllers"] = "cpu\n"
			}
			at := root.make(t)
			path := filepath.Join("sys/fs/cgroup", test.mount, "system.slice")
			owner := ownerOf(42, started, "app")
			owner.CgroupID = makeCgroup(t, at, filepath.Join(path, "docker-"+idA+".scope"))
			other := makeCgroup(t, at, filepath.Join(path, "docker-"+idB+".scope"))
			c, _ := cacheOf(t, at, 8)
			c.cgroups.own = "/"
			assert.Equal(t, idA, c.Process(owner).ContainerID)
			assert.Equal(t, 1, c.cgroups.known.Len(), "without a walk")

			// The process has moved: its path is not that of the event.
			owner.CgroupID = other
			assert.Equal(t, idB, c.Process(owner).ContainerID)
			owner.CgroupID = 1 // removed
			assert.Empty(t, c.Process(owner).ContainerID)
		})
	}
}

func TestCgroupOfAProcessThatIsGoneIsFoundInTheTree(t *testing.T) {
	root := procTree("app")
	root.files["sys/fs/cgroup/cgroup.controllers"] = ""
	at := root.make(t)
	id := makeCgroup(t, at, "sys/fs/cgroup/"+podSlice+"/cri-containerd-"+idA+".scope")
	service := makeCgroup(t, at, "sys/fs/cgroup/system.slice/nginx.service")
	c, now := cacheOf(t, at, 8)
	gone := func(pid uint32, id uint64) *Process {
		owner := ownerOf(pid, started, "app")
		owner.CgroupID = id
		return c.Process(owner)
	}
	p := gone(50, id)
	assert.Equal(t, Container{idA, uid}, Container{p.ContainerID, p.PodUID})
	assert.Empty(t, gone(51, service).ContainerID)

	// A cgroup that came after the walk is found by the next one, which is not before some seconds.
	late := makeCgroup(t, at, "sys/fs/cgroup/system.slice/docker-"+idB+".scope")
	assert.Empty(t, gone(52, late).ContainerID)
	*now = now.Add(walkInterval + time.Millisecond)
	assert.Equal(t, idB, gone(52, late).ContainerID)

	// A cgroup that is gone is looked for once.
	const removed = 1
	*now = now.Add(walkInterval + time.Millisecond)
	assert.Empty(t, gone(53, removed).ContainerID)
	known, ok := c.cgroups.known.Get(removed)
	assert.True(t, ok && known.absent)
	*now = now.Add(time.Hour)
	next := c.cgroups.nextWalk
	assert.Empty(t, gone(54, removed).ContainerID)
	assert.Equal(t, next, c.cgroups.nextWalk)
}

func TestPathsAreReadFromTheRootOfTheCollectorsOwnNamespace(t *testing.T) {
	root := procTree("app")
	root.files["sys/fs/cgroup/cgroup.controllers"] = ""
	root.files["proc/42/cgroup"] = "0::/../cri-containerd-" + idA + ".scope\n"
	at := root.make(t)
	pod := "sys/fs/cgroup/" + podSlice
	makeCgroup(t, at, pod+"/cri-containerd-"+idB+".scope")
	owner := ownerOf(42, started, "app")
	owner.CgroupID = makeCgroup(t, at, pod+"/cri-containerd-"+idA+".scope")
	// What the collector sees as /sys/fs/cgroup is its own container's.
	require.NoError(t, os.Symlink(filepath.Join(at, pod, "cri-containerd-"+idB+".scope"), filepath.Join(at, "local")))
	c, now := cacheOf(t, at, 8)
	p := c.Process(owner)
	assert.Equal(t, Container{idA, uid}, Container{p.ContainerID, p.PodUID}, "a neighbour in the same pod")
	assert.Equal(t, "/"+podSlice+"/cri-containerd-"+idB+".scope", c.cgroups.own)

	// From now on no walk is needed.
	next := c.cgroups.nextWalk
	*now = now.Add(time.Hour)
	const other = "6f" + idA
	require.NoError(t, os.WriteFile(filepath.Join(at, "proc/42/cgroup"), []byte("0::/../../../../docker/"+other[:64]+"\n"), 0o644))
	owner.CgroupID = makeCgroup(t, at, "sys/fs/cgroup/docker/"+other[:64])
	assert.Equal(t, other[:64], c.Process(owner).ContainerID)
	assert.Equal(t, next, c.cgroups.nextWalk)
}

func TestPathMustDoWhereTheTreeIsNotInView(t *testing.T) {
	root := procTree("app")
	root.files["proc/42/cgroup"] = "4:memory:/../../kubepods/burstable/pod" + uid + "/" + idA + "\n0::/\n"
	c, _ := cacheOf(t, root.make(t), 8)
	owner := ownerOf(42, started, "app")
	owner.CgroupID = 77
	p := c.Process(owner)
	assert.Equal(t, Container{idA, uid}, Container{p.ContainerID, p.PodUID})
	owner.StartTime += int64(time.Second) // another process
	assert.Empty(t, c.Process(owner).ContainerID)
}

func TestWalkIsBounded(t *testing.T) {
	root := procTree("app")
	root.files["sys/fs/cgroup/cgroup.controllers"] = ""
	at := root.make(t)
	deep := "sys/fs/cgroup" + strings.Repeat("/d", maxCgroupDepth+1)
	id := makeCgroup(t, at, deep)
	c, now := cacheOf(t, at, 8)
	owner := ownerOf(50, started, "app")
	owner.CgroupID = id
	c.Process(owner)
	_, known := c.cgroups.known.Get(id)
	assert.False(t, known, "neither found nor thought to be absent")

	// A walk that takes too long ends, and the next one waits the longer.
	begun := *now
	c.cgroups.now = func() time.Time {
		*now = now.Add(time.Second)
		return *now
	}
	c.cgroups.nextWalk = time.Time{}
	assert.False(t, c.cgroups.walk())
	assert.Less(t, now.Sub(begun), 10*time.Second)
	assert.Greater(t, c.cgroups.nextWalk.Sub(*now), walkShare*time.Second)
}
