// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

package incidents_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// It is what `make run` runs: nothing but the lines about this host's trouble.
func TestQuickstartShowsAnEventWithinASecond(t *testing.T) {
	const to = "127.0.0.1:9"
	n := nettest.NewNamespace(t)
	child := n.Child(t, false, "connect", to)
	collector := startCollector(t, filepath.Join("..", "examples", "quickstart.yaml"))
	// It says nothing of its own at start, so what it shows first says that it has started.
	require.Eventually(t, func() bool {
		attempt(t, child)
		return strings.Contains(collector.output.String(), fmt.Sprintf("[%d/", child.PID)) || !collector.running()
	}, 30*time.Second, 250*time.Millisecond, "nothing is shown")
	require.True(t, collector.running(), "the collector ended")

	began := time.Now()
	tid, port := attempt(t, child)
	want := fmt.Sprintf("[%d/%d] connect failed 127.0.0.1:%d → %s: connection refused", child.PID, tid, port, to)
	for !strings.Contains(collector.output.String(), want) {
		require.Less(t, time.Since(began), time.Second, "%q is not shown", want)
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("shown after %s", time.Since(began).Round(time.Millisecond))

	collector.stop(t)
	var lines []string
	for line := range strings.Lines(collector.output.String()) {
		if strings.Contains(line, want) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	require.Len(t, lines, 1, "one event, one line")
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}Z \S+\[\d+/\d+\] connect failed \S+ → \S+: connection refused after \S+ \S+$`, lines[0])
}
