// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// booted is when the machine of the tests' trees was started, and started when its process 42 was.
var (
	booted  = time.Unix(1_772_350_000, 0)
	started = booted.Add(123_450 * time.Millisecond).UnixNano()
	present = booted.Add(time.Hour)
)

// saidNames are a few of the names that metadata.yaml declares.
var saidNames = []string{"deployment.environment.name", "k8s.namespace.name", "k8s.pod.uid", "service.name", "service.version"}

func settings(rootPath string, size int) Settings {
	return Settings{RootPath: rootPath, Size: size, Attributes: saidNames, Environment: true, Context: true}
}

// cacheOf is a cache of a tree, at a time that the test moves.
func cacheOf(t testing.TB, rootPath string, size int) (*Cache, *time.Time) {
	now := present
	c, err := newCache(settings(rootPath, size), filepath.Join(rootPath, "local"), func() time.Time { return now })
	require.NoError(t, err)
	c.inquiry.deadline = time.Minute
	return c, &now
}

// realCache is a cache of this machine.
func realCache(t testing.TB) *Cache {
	c, err := NewCache(settings("", 64))
	require.NoError(t, err)
	c.inquiry.deadline = time.Minute
	return c
}

func ownerOf(pid uint32, started int64, executable string) *event.Owner {
	o := &event.Owner{Source: event.OwnerOpener, PID: pid, TID: pid, VPID: 1, StartTime: started}
	copy(o.Executable[:len(o.Executable)-1], executable)
	return o
}

// realOwner is the owner that the kernel would tell of a process of this machine.
func realOwner(t testing.TB, c *Cache, pid int) *event.Owner {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	since, ok := startOf(text)
	require.True(t, ok)
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	require.NoError(t, err)
	return ownerOf(uint32(pid), c.boot.boot[0].Add(since).UnixNano(), filepath.Base(link))
}

// procTree is a tree with a process 42 that executes a file.
func procTree(executable string) tree {
	return tree{
		files: map[string]string{
			"proc/uptime":  "3600.00 1.00\n",
			"proc/42/stat": "42 (x) y) S 1 42 42 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345" + strings.Repeat(" 0", 30) + "\n",
		},
		links: map[string]string{"proc/42/exe": "/opt/" + executable},
	}
}

func TestProcessIsToldAsItsOwnerSays(t *testing.T) {
	c, _ := cacheOf(t, t.TempDir(), 4)
	p := c.Process(ownerOf(812, time.Date(2026, 3, 1, 9, 5, 7, 41_999_999, time.FixedZone("", 3600)).UnixNano(), "nginx"))
	assert.Equal(t, &Process{PID: 812, VPID: 1, CreationTime: "2026-03-01T08:05:07.041Z", Executable: "nginx"}, p)
	p = c.Process(ownerOf(813, 0, "a\x1b[2J"))
	assert.Equal(t, &Process{PID: 813, VPID: 1, Executable: "a?[2J"}, p)
}

func TestEventWithoutOwnerHasNoProcess(t *testing.T) {
	c, _ := cacheOf(t, t.TempDir(), 4)
	assert.Nil(t, c.Process(&event.Owner{}))
	assert.Nil(t, c.Process(&event.Owner{Source: event.OwnerCurrent}))
	assert.Zero(t, c.Len())
	assert.Zero(t, KeyOf(&event.Owner{PID: 7}))
}

func TestCacheIsBoundedAndAllocatesNothingOnAHit(t *testing.T) {
	c, _ := cacheOf(t, t.TempDir(), 2)
	first := ownerOf(1, 5, "a")
	held := c.Process(first)
	assert.Same(t, held, c.Process(first))
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Process(first) }))
	for pid := uint32(2); pid < 10; pid++ {
		c.Process(ownerOf(pid, 5, "a"))
	}
	assert.Equal(t, 2, c.Len())
	assert.NotSame(t, held, c.Process(first))
}

func TestReusedPIDAndNewExecutableAreToldApart(t *testing.T) {
	c, _ := cacheOf(t, t.TempDir(), 8)
	shell := c.Process(ownerOf(7, 5, "sh"))
	assert.Equal(t, "curl", c.Process(ownerOf(7, 5, "curl")).Executable)
	assert.Equal(t, 2, c.Len())
	assert.Same(t, shell, c.Process(ownerOf(7, 5, "sh")), "what was said of the shell's sockets stays")
	assert.Equal(t, "sh", c.Process(ownerOf(7, 6, "sh")).Executable)
	assert.Equal(t, 3, c.Len())
}

func TestCutExecutableNameIsCompletedFromProc(t *testing.T) {
	long := strings.Repeat("long-executable-name-", 4)
	root := procTree(long + " (deleted)").make(t)
	for _, test := range []struct {
		name  string
		owner *event.Owner
		want  string
	}{
		{"same process", ownerOf(42, started+int64(5*time.Millisecond), long[:47]), long},
		{"another process by now", ownerOf(42, started-int64(time.Second), long[:47]), long[:47]},
		{"gone", ownerOf(43, started, long[:47]), long[:47]},
		{"executes another file by now", ownerOf(42, started, strings.Repeat("x", 47)), strings.Repeat("x", 47)},
		{"not cut", ownerOf(42, started, long[:46]), long[:46]},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := cacheOf(t, root, 8)
			assert.Equal(t, test.want, c.Process(test.owner).Executable)
		})
	}
}

func TestCutExecutableNameOfARunningProcessIsCompleted(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	text, err := os.ReadFile(sleep)
	require.NoError(t, err)
	name := strings.Repeat("a-sleeper-with-a-long-name-", 3)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, text, 0o755))
	sleeper := exec.Command(path, "60")
	require.NoError(t, sleeper.Start())
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	c := realCache(t)
	assert.Equal(t, name, c.Process(realOwner(t, c, sleeper.Process.Pid)).Executable)
}

func TestStartIsReadFromAnyThreadName(t *testing.T) {
	rest := " S 1 42 42 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 "
	for name, test := range map[string]struct {
		text string
		want time.Duration
		ok   bool
	}{
		"plain":              {"42 (x)" + rest + "12345 0 0\n", 123_450 * time.Millisecond, true},
		"forged":             {"42 (x) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 7 ()" + rest + "12345\n", 123_450 * time.Millisecond, true},
		"line in the name":   {"42 (a\nb)" + rest + "0\n", 0, true},
		"torn":               {"42 (x) S 1 42", 0, false},
		"empty":              {"", 0, false},
		"not a number":       {"42 (x)" + rest + "1x 0", 0, false},
		"negative":           {"42 (x)" + rest + "-1 0", 0, false},
		"more than can be":   {"42 (x)" + rest + "9223372036854775807 0", 0, false},
		"no parenthesis":     {rest + "5", 0, false},
		"binary":             {"\x00\xff)\x00", 0, false},
		"a parenthesis last": {"42 (x" + rest + "5)", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := startOf([]byte(test.text))
			assert.Equal(t, test.ok, ok)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestStartTimesAgreeBeforeAndAfterTheClockIsSet(t *testing.T) {
	root := procTree("x").make(t)
	c, now := cacheOf(t, root, 8)
	since := 123_450 * time.Millisecond
	assert.True(t, c.boot.agrees(since, started))
	assert.True(t, c.boot.agrees(since, started+int64(bootTolerance)))
	assert.False(t, c.boot.agrees(since, started+int64(bootTolerance)+1))

	// The wall clock is set an hour ahead while the machine runs on for a minute.
	*now = present.Add(time.Hour + time.Minute)
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/uptime"), []byte("3660.00 1.00\n"), 0o644))
	assert.True(t, c.boot.agrees(since, started+int64(time.Hour)), "by an offset that was frozen after it")
	assert.True(t, c.boot.agrees(since, started), "by one that was frozen before")
	assert.False(t, c.boot.agrees(since, started+int64(time.Minute)))

	for _, text := range []string{"", "x y\n", "-1 0\n", "NaN 0\n", "1e300 0"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "proc/uptime"), []byte(text), 0o644))
		broken, _ := cacheOf(t, root, 8)
		assert.False(t, broken.boot.agrees(since, started), text)
	}
}

func TestStartTimeOfThisProcessAgreesWithItsClock(t *testing.T) {
	c := realCache(t)
	owner := realOwner(t, c, os.Getpid())
	dir := c.open(owner)
	require.NotNil(t, dir)
	dir.Close()
	owner.StartTime -= int64(time.Second)
	assert.Nil(t, c.open(owner))
}

func TestWhatAProcessSaysIsReadOnceAndOnlyOfTheSameProcess(t *testing.T) {
	root := procTree("app")
	root.files["proc/42/environ"] = "SECRET=x\x00OTEL_SERVICE_NAME=shop\x00OTEL_RESOURCE_ATTRIBUTES=service.version=1,k8s.pod.uid=" + uid +
		",host.name=y,SECRET=z\x00"
	at := root.make(t)
	for _, test := range []struct {
		name  string
		owner *event.Owner
		want  []Attribute
		pod   string
	}{
		{"same process", ownerOf(42, started, "app"), []Attribute{{"service.name", "shop"}, {"service.version", "1"}}, uid},
		{"another process by now", ownerOf(42, started+int64(time.Second), "app"), nil, ""},
		{"executes another file by now", ownerOf(42, started, "sh"), nil, ""},
		{"start not known", ownerOf(42, 0, "app"), nil, ""},
		{"gone", ownerOf(43, started, "app"), nil, ""},
		{"executable not known", ownerOf(42, started, ""), []Attribute{{"service.name", "shop"}, {"service.version", "1"}}, uid},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := cacheOf(t, at, 8)
			p := c.Process(test.owner)
			assert.Equal(t, test.want, p.Attributes)
			assert.Equal(t, test.pod, p.PodUID)
			assert.Equal(t, test.owner.PID, p.PID)
		})
	}
}

func TestSwitchesSayWhereAProcessIsAsked(t *testing.T) {
	root := procTree("app")
	root.files["proc/42/environ"] = "OTEL_SERVICE_NAME=environment\x00"
	root.files["proc/42/maps"] = contextMaps
	root.files["proc/42/mem"] = contextMemory(contextPayload("service.name", "context"))
	at := root.make(t)
	for _, test := range []struct {
		environment, context bool
		names                []string
		want                 []Attribute
	}{
		{true, true, saidNames, []Attribute{{"service.name", "context"}}},
		{true, false, saidNames, []Attribute{{"service.name", "environment"}}},
		{false, true, saidNames, []Attribute{{"service.name", "context"}}},
		{false, false, saidNames, nil},
		{true, true, nil, nil},
		{true, true, []string{"service.version"}, nil},
	} {
		c, err := newCache(Settings{RootPath: at, Size: 4, Attributes: test.names, Environment: test.environment,
			Context: test.context}, "", func() time.Time { return present })
		require.NoError(t, err)
		c.inquiry.deadline = time.Minute
		assert.Equal(t, test.want, c.Process(ownerOf(42, started, "app")).Attributes)
	}
}

func TestContextThatIsPublishedAfterTheFirstConnectionIsFound(t *testing.T) {
	root := procTree("app")
	root.files["proc/42/environ"] = "OTEL_SERVICE_NAME=early\x00"
	root.files["proc/42/maps"] = ""
	root.files["proc/42/mem"] = ""
	at := root.make(t)
	c, now := cacheOf(t, at, 8)
	*now = time.Unix(0, started).Add(time.Second)
	owner := ownerOf(42, started, "app")
	first := c.Process(owner)
	assert.Equal(t, []Attribute{{"service.name", "early"}}, first.Attributes)

	require.NoError(t, os.WriteFile(filepath.Join(at, "proc/42/environ"), []byte("OTEL_SERVICE_NAME=other\x00"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(at, "proc/42/maps"), []byte(contextMaps), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(at, "proc/42/mem"), []byte(contextMemory(contextPayload("service.version", "2"))), 0o644))
	*now = now.Add(settled - 2*time.Second)
	assert.Same(t, first, c.Process(owner))
	assert.Zero(t, testing.AllocsPerRun(10, func() { c.Process(owner) }))
	*now = now.Add(2 * time.Second)
	second := c.Process(owner)
	assert.Equal(t, []Attribute{{"service.name", "early"}, {"service.version", "2"}}, second.Attributes, "the environment is read once")
	*now = now.Add(time.Hour)
	assert.Same(t, second, c.Process(owner))
}

func BenchmarkProcessHeld(b *testing.B) {
	c := realCache(b)
	owner := realOwner(b, c, os.Getpid())
	b.ReportAllocs()
	for b.Loop() {
		c.Process(owner)
	}
}

// BenchmarkProcessNew is what the first event of a running process costs: this one, with its environment and mappings.
func BenchmarkProcessNew(b *testing.B) {
	c := realCache(b)
	owner := realOwner(b, c, os.Getpid())
	b.ReportAllocs()
	for b.Loop() {
		c.processes.Purge()
		c.Process(owner)
	}
}

// BenchmarkProcessGone is the same of a process that is gone, in a cgroup that is known.
func BenchmarkProcessGone(b *testing.B) {
	c := realCache(b)
	gone := exec.Command("true")
	require.NoError(b, gone.Run())
	owner := ownerOf(uint32(gone.Process.Pid), time.Now().UnixNano(), "true")
	b.ReportAllocs()
	for b.Loop() {
		c.processes.Purge()
		c.Process(owner)
	}
}

// BenchmarkWalk looks at 1,000 containers; a benchmark of the real tree would depend on the machine.
func BenchmarkWalk(b *testing.B) {
	root := b.TempDir()
	for i := range 1000 {
		dir := filepath.Join(root, "sys/fs/cgroup/system.slice", fmt.Sprintf("docker-%064x.scope", i))
		require.NoError(b, os.MkdirAll(dir, 0o755))
		for file := range 40 {
			require.NoError(b, os.WriteFile(filepath.Join(dir, "memory."+strconv.Itoa(file)), nil, 0o644))
		}
	}
	require.NoError(b, os.WriteFile(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"), nil, 0o644))
	c, err := NewCache(settings(root, 64))
	require.NoError(b, err)
	for b.Loop() {
		c.cgroups.learn(time.Now())
	}
	require.Greater(b, c.cgroups.known.Len(), 1000)
}

func TestAnEndingProcessKeepsItsExecutable(t *testing.T) {
	cache, err := NewCache(Settings{RootPath: t.TempDir(), Size: 4})
	require.NoError(t, err)
	owner := event.Owner{Source: event.OwnerCurrent, PID: 7, TID: 7, StartTime: 1e9, Executable: [48]byte{'n', 'g', 'i', 'n', 'x'}}
	before := cache.Process(&owner)

	ending := owner
	ending.Executable = [48]byte{}
	cache.Complete(&ending)
	require.Same(t, before, cache.Process(&ending))

	another := ending
	another.StartTime, another.Executable = 2e9, [48]byte{}
	cache.Complete(&another)
	require.Empty(t, cache.Process(&another).Executable, "the pid was used again")
}
