// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

package incidents_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

const nobody = 65534

// startUnprivileged starts the collector as a user with nothing but the given capabilities.
func startUnprivileged(t *testing.T, on func(func()), onUnavailable string, capabilities ...uintptr) *process {
	t.Helper()
	// By descriptor: that user may not be allowed to look into the folders above.
	binary, err := os.Open(collectorPath(t))
	require.NoError(t, err)
	t.Cleanup(func() { binary.Close() })
	cmd := exec.Command("/proc/self/fd/3", "--config", "env:CONFIGURATION")
	cmd.ExtraFiles = []*os.File{binary}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), fmt.Sprintf(`CONFIGURATION=
receivers:
  ebpf_net:
    on_unavailable: %s
exporters:
  debug: {verbosity: normal, use_internal_logger: false}
service:
  pipelines:
    logs: {receivers: [ebpf_net], exporters: [debug]}
  telemetry:
    metrics: {level: none}
`, onUnavailable))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: capabilities}
	return start(t, "the collector", cmd, on)
}

func TestCollectorSaysWhichCapabilityIsMissing(t *testing.T) {
	const give = "setcap cap_bpf,cap_perfmon,cap_dac_read_search=ep "
	for _, c := range []struct {
		name    string
		has     []uintptr
		missing string
	}{
		{"all", nil, "lacks CAP_BPF (to load programs) and CAP_PERFMON (to trace and read kernel data)"},
		{"CAP_PERFMON", []uintptr{unix.CAP_BPF}, "lacks CAP_PERFMON (to trace and read kernel data)"},
		{"CAP_BPF", []uintptr{unix.CAP_PERFMON}, "lacks CAP_BPF (to load programs)"},
	} {
		t.Run(c.name+" missing, degrade", func(t *testing.T) {
			collector := startUnprivileged(t, hostThread(t), "degrade", c.has...)
			collector.awaitReady(t)
			assert.Contains(t, collector.output.String(), c.missing)
			assert.Contains(t, collector.output.String(), give)
			assert.True(t, collector.running())
		})
		t.Run(c.name+" missing, fail", func(t *testing.T) {
			collector := startUnprivileged(t, hostThread(t), "fail", c.has...)
			assert.Equal(t, 1, collector.wait(t, 30*time.Second), "exit code")
			assert.Contains(t, collector.output.String(), c.missing)
			assert.Contains(t, collector.output.String(), give)
			assert.NotContains(t, collector.output.String(), ready)
		})
	}
}

// What README.md says of each capability.
func TestCapabilitiesServeWhatTheyAreGivenFor(t *testing.T) {
	const refused, unrouted = "127.0.0.1:9", "192.0.2.1:9"
	n := nettest.NewNamespace(t) // without a route to anywhere
	toNobody, toNowhere := n.Child(t, false, "connect", refused), n.Child(t, false, "connect", unrouted)
	for _, c := range []struct {
		name         string
		has          []uintptr
		seesUnrouted bool
	}{
		{"two load all programs but the system call's", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}, false},
		{"a third opens tracefs", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_DAC_READ_SEARCH}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			onUnavailable := "fail"
			if !c.seesUnrouted {
				onUnavailable = "degrade" // accepts are not seen either, and that is a whole signal
			}
			collector := startUnprivileged(t, withTracefs(t), onUnavailable, c.has...)
			collector.awaitReady(t)
			require.Equal(t, c.seesUnrouted, !strings.Contains(collector.output.String(), "tracepoint/sys_exit_connect: "),
				"whether the tracepoint is refused")
			require.Equal(t, c.seesUnrouted, !strings.Contains(collector.output.String(), "lacks CAP_DAC_READ_SEARCH (to read tracefs)"))
			shown := map[string]string{}
			for to, child := range map[string]*nettest.Child{unrouted: toNowhere, refused: toNobody} {
				_, port := attempt(t, child)
				shown[to] = fmt.Sprintf(":%d → %s: ", port, to)
			}
			require.Eventually(t, func() bool {
				text := collector.output.String()
				return strings.Contains(text, shown[refused]+"connection refused") &&
					c.seesUnrouted == strings.Contains(text, shown[unrouted]+"network unreachable")
			}, 10*time.Second, 20*time.Millisecond, "%v: %s", shown, &collector.output)
			collector.stop(t)
			require.Equal(t, c.seesUnrouted, strings.Contains(collector.output.String(), unrouted))
		})
	}
}

// withTracefs starts programs where tracefs is mounted, as systemd does it, and only root may look into it.
func withTracefs(t *testing.T) func(func()) {
	t.Helper()
	thread := nettest.NewNamespace(t).Thread(t, "starter")
	var err error
	thread.Do(func() {
		err = errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, "mode=700"))
	})
	require.NoError(t, err)
	return thread.Do
}
