// SPDX-License-Identifier: Apache-2.0

//go:build live

package ebpfnetreceiver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// TestRecordNamesTheContainerAndServiceOfItsProcess is about a shell in a cgroup with a container's name: the kernel must tell the
// same cgroup as the file system, for a process that runs and for one that is gone by the time its record is read.
func TestRecordNamesTheContainerAndServiceOfItsProcess(t *testing.T) {
	nettest.Require(t)
	hierarchy := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.controllers")); err != nil {
		hierarchy = filepath.Join(hierarchy, "memory")
	}
	const container = "3f4bb4ac6d1c7b8e0f5a9c2d1e3b4a5968778695a4b3c2d1e0f1a2b3c4d5e6f7"
	cgroup := filepath.Join(hierarchy, fmt.Sprintf("ebpfnet-test-%d-%s", os.Getpid(), container))
	require.NoError(t, os.Mkdir(cgroup, 0o755))
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return os.Remove(cgroup) == nil }, 10*time.Second, 10*time.Millisecond)
	})

	var logs consumertest.LogsSink
	cfg := defaultConfig()
	cfg.Filter.ExcludeSelf = false // the test connects by itself
	cfg.OnUnavailable = onUnavailableFail
	r, err := NewFactory().CreateLogs(context.Background(), receivertest.NewNopSettings(metadata.Type), cfg, &logs)
	require.NoError(t, err)
	start(t, r, componenttest.NewNopHost())
	defer stop(t, r)

	resource := func(pid int) map[string]any {
		for _, ld := range logs.AllLogs() {
			for _, resource := range ld.ResourceLogs().All() {
				attributes := resource.Resource().Attributes().AsRaw()
				if attributes["process.pid"] == int64(pid) && strings.HasPrefix(attributes["process.executable.name"].(string), "bash") {
					return attributes
				}
			}
		}
		return nil
	}
	for _, test := range []struct{ name, then string }{{"running", "read -r line"}, {"gone", "exit 0"}} {
		t.Run(test.name, func(t *testing.T) {
			shell := exec.Command("bash", "-c", `echo $$ > "$0/cgroup.procs" && { exec 3<>/dev/tcp/127.0.0.1/9; } 2>/dev/null; `+test.then, cgroup)
			shell.Env = append(os.Environ(), "OTEL_SERVICE_NAME=shop", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test%20bed,team=x")
			stdin, err := shell.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, shell.Start())
			if test.name == "gone" {
				require.NoError(t, shell.Wait())
			}
			require.Eventually(t, func() bool { return resource(shell.Process.Pid) != nil }, 10*time.Second, 5*time.Millisecond)
			stdin.Close()
			if test.name == "running" {
				_ = shell.Wait()
			}
			got := resource(shell.Process.Pid)
			assert.Equal(t, container, got["container.id"])
			assert.NotContains(t, got, "team")
			if test.name == "running" {
				assert.Equal(t, "shop", got["service.name"])
				assert.Equal(t, "test bed", got["deployment.environment.name"])
			}
		})
	}
}
