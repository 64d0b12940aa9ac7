// SPDX-License-Identifier: Apache-2.0

//go:build live

package enrich

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

func requireRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("EBPFNET_REQUIRE_LIVE") != "" {
		t.Fatal("making cgroups takes root")
	}
	t.Skip("making cgroups takes root")
}

// liveCgroup makes a cgroup of this machine, for as long as the test runs. Its path, from the hierarchy's root, begins with the
// test's own cgroup.
func liveCgroup(t *testing.T, groups *cgroups, parts ...string) (path string, id uint64) {
	require.NotEmpty(t, groups.dir, "no cgroup hierarchy is mounted")
	for _, part := range append([]string{fmt.Sprintf("ebpfnet-test-%d", os.Getpid())}, parts...) {
		path = filepath.Join(path, part)
		dir := filepath.Join(groups.dir, path)
		if os.Mkdir(dir, 0o755) != nil {
			continue // another part of the test made it
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
	}
	id = inodeOf(filepath.Join(groups.dir, path))
	require.NotZero(t, id)
	return path, id
}

// removeCgroup waits: the kernel takes a moment to let go of the processes that were in it.
func removeCgroup(t *testing.T, dir string) {
	assert.Eventually(t, func() bool {
		err := os.Remove(dir)
		return err == nil || os.IsNotExist(err)
	}, 10*time.Second, 10*time.Millisecond)
}

// inCgroup is a command that runs in a cgroup.
func inCgroup(groups *cgroups, path string, command ...string) *exec.Cmd {
	args := []string{"-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, filepath.Join(groups.dir, path)}
	return exec.Command("sh", append(args, command...)...)
}

// sleepIn runs a process in a cgroup until end is called, or the test ends.
func sleepIn(t *testing.T, c *Cache, path string, id uint64) (owner *event.Owner, end func()) {
	sleeper := inCgroup(c.cgroups, path, "sleep", "600")
	require.NoError(t, sleeper.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = sleeper.Process.Kill()
			_ = sleeper.Wait()
		}
	}
	t.Cleanup(end)
	require.Eventually(t, func() bool {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", sleeper.Process.Pid))
		return err == nil && strings.HasSuffix(link, "sleep")
	}, 10*time.Second, time.Millisecond)
	owner = realOwner(t, c, sleeper.Process.Pid)
	owner.CgroupID = id
	return owner, end
}

const scopeA, scopeB = "docker-" + idA + ".scope", "docker-" + idB + ".scope"

func TestContainerOfThisMachineIsFoundWhileItsProcessRunsAndAfter(t *testing.T) {
	requireRoot(t)
	c := realCache(t)
	path, id := liveCgroup(t, c.cgroups, scopeA)
	owner, end := sleepIn(t, c, path, id)
	assert.Equal(t, idA, c.Process(owner).ContainerID)
	assert.True(t, c.cgroups.nextWalk.IsZero(), "a walk was needed")

	end()
	c = realCache(t)
	assert.Equal(t, idA, c.Process(owner).ContainerID, "of a process that is gone")

	removeCgroup(t, filepath.Join(c.cgroups.dir, path))
	c = realCache(t)
	assert.Empty(t, c.Process(owner).ContainerID, "of a cgroup that is gone")
}

// TestCollectorInAContainerFindsTheOthers runs the look-up in a cgroup namespace of its own, as a container has it.
func TestCollectorInAContainerFindsTheOthers(t *testing.T) {
	requireRoot(t)
	c := realCache(t)
	pod := "kubepods-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice"
	own, _ := liveCgroup(t, c.cgroups, pod, scopeB)
	path, id := liveCgroup(t, c.cgroups, pod, scopeA)
	owner, _ := sleepIn(t, c, path, id)
	self, err := os.Executable()
	require.NoError(t, err)
	question, err := json.Marshal(owner)
	require.NoError(t, err)
	collector := inCgroup(c.cgroups, own, "unshare", "--cgroup", self)
	collector.Env = append(os.Environ(), helperVariable+"=collector", "ENRICH_TEST_OWNER="+string(question),
		"ENRICH_TEST_LOCAL="+filepath.Join(c.cgroups.dir, own))
	answer, err := collector.CombinedOutput()
	require.NoError(t, err, string(answer))
	assert.Equal(t, fmt.Sprintf("%s %s %s /%s\n", "/../"+scopeA, idA, uid, own), string(answer))
}
