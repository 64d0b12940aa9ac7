// SPDX-License-Identifier: Apache-2.0

package enrich

import (
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

func newCache(t *testing.T, rootPath string, size int) *Cache {
	c, err := NewCache(rootPath, size)
	require.NoError(t, err)
	return c
}

func ownerOf(pid uint32, started int64, executable string) *event.Owner {
	o := &event.Owner{Source: event.OwnerOpener, PID: pid, TID: pid, VPID: 1, StartTime: started}
	copy(o.Executable[:len(o.Executable)-1], executable)
	return o
}

func TestProcessIsToldAsItsOwnerSays(t *testing.T) {
	c := newCache(t, "", 4)
	p := c.Process(ownerOf(812, time.Date(2026, 3, 1, 9, 5, 7, 41_999_999, time.FixedZone("", 3600)).UnixNano(), "nginx"))
	assert.Equal(t, &Process{PID: 812, VPID: 1, CreationTime: "2026-03-01T08:05:07.041Z", Executable: "nginx"}, p)
	p = c.Process(ownerOf(813, 0, "a\x1b[2J"))
	assert.Equal(t, &Process{PID: 813, VPID: 1, Executable: "a?[2J"}, p)
}

func TestEventWithoutOwnerHasNoProcess(t *testing.T) {
	c := newCache(t, "", 4)
	assert.Nil(t, c.Process(&event.Owner{}))
	assert.Nil(t, c.Process(&event.Owner{Source: event.OwnerCurrent}))
	assert.Zero(t, c.Len())
}

func TestCacheIsBoundedAndAllocatesNothingOnAHit(t *testing.T) {
	c := newCache(t, "", 2)
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
	c := newCache(t, "", 8)
	assert.Equal(t, "sh", c.Process(ownerOf(7, 5, "sh")).Executable)
	assert.Equal(t, "curl", c.Process(ownerOf(7, 5, "curl")).Executable)
	assert.Equal(t, 1, c.Len())
	assert.Equal(t, "sh", c.Process(ownerOf(7, 6, "sh")).Executable)
	assert.Equal(t, 2, c.Len())
}

func TestCutExecutableNameIsCompletedFromProc(t *testing.T) {
	whole := strings.Repeat("long-executable-name-", 4)
	const boot = 1_700_000_000
	root := tree{
		files: map[string]string{
			"proc/stat":    fmt.Sprintf("cpu 1 2 3 4 5 6 7 8 9 10\nbtime %d\n", boot),
			"proc/42/stat": "42 (x) S 1 42 42 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345" + strings.Repeat(" 0", 30) + "\n",
		},
		links: map[string]string{"proc/42/exe": "/opt/" + whole + " (deleted)"},
	}.make(t)
	started := time.Unix(boot, 0).Add(12345 * 10 * time.Millisecond).UnixNano()
	for _, test := range []struct {
		name  string
		owner *event.Owner
		want  string
	}{
		{"same process", ownerOf(42, started+int64(time.Second), whole[:47]), whole},
		{"another process by now", ownerOf(42, started-int64(time.Minute), whole[:47]), whole[:47]},
		{"gone", ownerOf(43, started, whole[:47]), whole[:47]},
		{"executes another file by now", ownerOf(42, started, strings.Repeat("x", 47)), strings.Repeat("x", 47)},
		{"not cut", ownerOf(42, started, whole[:46]), whole[:46]},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, newCache(t, root, 8).Process(test.owner).Executable)
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
	before := time.Now().UnixNano()
	sleeper := exec.Command(path, "60")
	require.NoError(t, sleeper.Start())
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	got := newCache(t, "", 8).Process(ownerOf(uint32(sleeper.Process.Pid), before, name[:47]))
	assert.Equal(t, name, got.Executable)
}
