// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// helperVariable makes this test's executable another process than a test.
const helperVariable = "ENRICH_TEST_HELPER"

func TestMain(m *testing.M) {
	if what := os.Getenv(helperVariable); what != "" {
		if err := helpers[what](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

var helpers = map[string]func() error{
	"memfd":     publish,
	"anonymous": publish,
	"collector": collect,
}

// collect looks a process up as a collector in a container does, and prints what it sees: its path, its container, and where in the
// hierarchy this process's namespace begins.
func collect() error {
	var owner event.Owner
	if err := json.Unmarshal([]byte(os.Getenv("ENRICH_TEST_OWNER")), &owner); err != nil {
		return err
	}
	c, err := NewCache(settings("/", 4))
	if err != nil {
		return err
	}
	c.cgroups.local, c.cgroups.own = os.Getenv("ENRICH_TEST_LOCAL"), ""
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", owner.PID))
	if err != nil {
		return err
	}
	p := c.Process(&owner)
	fmt.Println(c.cgroups.pathIn(text), p.ContainerID, p.PodUID, c.cgroups.own)
	return nil
}

// publish publishes a context and waits until its input ends.
func publish() error {
	way := os.Getenv(helperVariable)
	payload := []byte(contextPayload("service.name", "published", "service.version", way))
	size := 2 * os.Getpagesize()
	file, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS
	if way == "memfd" {
		var err error
		if file, err = unix.MemfdCreate("OTEL_CTX", unix.MFD_CLOEXEC); err != nil {
			return err
		}
		if err := unix.Ftruncate(file, int64(size)); err != nil {
			return err
		}
		flags = unix.MAP_PRIVATE
	}
	mapping, err := unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return err
	}
	at := uintptr(unsafe.Pointer(&mapping[0]))
	copy(mapping[contextHeaderSize:], payload)
	copy(mapping, contextHeader(contextVersion, uint32(len(payload)), 1, uint64(at)+contextHeaderSize))
	if way == "memfd" {
		if err := unix.Close(file); err != nil {
			return err
		}
	}
	answer := "published"
	if way == "anonymous" {
		name, err := unix.BytePtrFromString("OTEL_CTX")
		if err != nil {
			return err
		}
		named := uintptr(unsafe.Pointer(name))
		if unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, at, uintptr(size), named) != nil {
			answer = "refused"
		}
	}
	fmt.Println(answer)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

func TestPublishedContextOfARunningProcessIsRead(t *testing.T) {
	for _, way := range []string{"memfd", "anonymous"} {
		t.Run(way, func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			publisher := exec.Command(self)
			publisher.Env = []string{helperVariable + "=" + way, "SECRET=x",
				"OTEL_RESOURCE_ATTRIBUTES=service.name=environment,deployment.environment.name=test%20bed,host.name=y"}
			stdin, err := publisher.StdinPipe()
			require.NoError(t, err)
			stdout, err := publisher.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, publisher.Start())
			defer func() {
				stdin.Close()
				_ = publisher.Wait()
			}()
			line, err := bufio.NewReader(stdout).ReadString('\n')
			require.NoError(t, err)
			if line == "refused\n" {
				t.Skip("this kernel does not name anonymous mappings (CONFIG_ANON_VMA_NAME)")
			}
			require.Equal(t, "published\n", line)
			c := realCache(t)
			assert.Equal(t, []Attribute{{"deployment.environment.name", "test bed"}, {"service.name", "published"}, {"service.version", way}},
				c.Process(realOwner(t, c, publisher.Process.Pid)).Attributes)
		})
	}
}

func TestProcessThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	root := procTree("app")
	root.files["proc/42/maps"] = contextMaps
	at := root.make(t)
	environ := filepath.Join(at, "proc/42/environ")
	require.NoError(t, unix.Mkfifo(environ, 0o600)) // opening it waits for a writer
	c, now := cacheOf(t, at, 64)
	c.inquiry.deadline = time.Millisecond
	owner := ownerOf(42, started, "app")
	for range maxAsked + 2 {
		assert.Empty(t, c.Process(owner).Attributes)
		*now = now.Add(askAgain)
	}
	assert.Empty(t, c.inquiry.free)

	writer, err := os.OpenFile(environ, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Eventually(t, func() bool { return len(c.inquiry.free) == maxAsked }, 10*time.Second, time.Millisecond)

	require.NoError(t, os.Remove(environ))
	require.NoError(t, os.WriteFile(environ, []byte("OTEL_SERVICE_NAME=at last\x00"), 0o600))
	c.inquiry.deadline = time.Minute
	assert.Equal(t, []Attribute{{"service.name", "at last"}}, c.Process(owner).Attributes)
}

func TestNothingThatWasReadIsKept(t *testing.T) {
	root := procTree("app")
	root.files["proc/42/environ"] = "PASSWORD=verysecret\x00OTEL_SERVICE_NAME=shop\x00"
	c, _ := cacheOf(t, root.make(t), 4)
	assert.Equal(t, []Attribute{{"service.name", "shop"}}, c.Process(ownerOf(42, started, "app")).Attributes)
	for range maxAsked {
		if buffer := <-c.inquiry.free; buffer != nil {
			assert.Equal(t, [maxRead]byte{}, *buffer)
		}
	}
}
