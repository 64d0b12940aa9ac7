// SPDX-License-Identifier: Apache-2.0

//go:build live

package ebpfnetreceiver

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// refusedPort is a port of 127.0.0.1 that nobody listens on, right after a connect to it was refused.
func refusedPort(t *testing.T) int64 {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, err = net.Dial("tcp4", listener.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	return int64(listener.Addr().(*net.TCPAddr).Port)
}

// refusals are the records of connects to the port that failed.
func refusals(sink *consumertest.LogsSink, port int64) []plog.LogRecord {
	var found []plog.LogRecord
	for _, ld := range sink.AllLogs() {
		for _, record := range allRecords(ld) {
			peer, ok := record.Attributes().Get("network.peer.port")
			if ok && peer.Int() == port && record.EventName() == "ebpfnet.tcp.connect.failed" {
				found = append(found, record)
			}
		}
	}
	return found
}

// processes are the pids of the resources of all records.
func processes(sink *consumertest.LogsSink) []int64 {
	var all []int64
	for _, ld := range sink.AllLogs() {
		for _, resource := range ld.ResourceLogs().All() {
			if pid, ok := resource.Resource().Attributes().Get("process.pid"); ok {
				all = append(all, pid.Int())
			}
		}
	}
	return all
}

// refusedCount is the number of refused connects in the latest metrics.
func refusedCount(sink *consumertest.MetricsSink) int64 {
	all := sink.AllMetrics()
	if len(all) == 0 {
		return 0
	}
	for _, m := range metricsOf(all[len(all)-1]) {
		if m.Name() != "ebpfnet.tcp.connections" {
			continue
		}
		for _, point := range m.Sum().DataPoints().All() {
			if outcome, ok := point.Attributes().Get("error.type"); ok && outcome.Str() == "connection_refused" {
				return point.IntValue()
			}
		}
	}
	return 0
}

func metricsOf(md pmetric.Metrics) []pmetric.Metric {
	var all []pmetric.Metric
	for _, resource := range md.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, m := range scope.Metrics().All() {
				all = append(all, m)
			}
		}
	}
	return all
}

func TestARefusedConnectBecomesARecordAndAMetricInTwoReceiversSideBySide(t *testing.T) {
	nettest.Require(t)
	factory := NewFactory()
	settings := receivertest.NewNopSettings(metadata.Type)
	var logs [2]consumertest.LogsSink
	var metrics [2]consumertest.MetricsSink
	for i := range 2 {
		cfg := defaultConfig()
		cfg.Filter.ExcludeSelf = false // the test connects by itself
		cfg.OnUnavailable, cfg.CollectionInterval = onUnavailableFail, time.Second
		asLogs, err := factory.CreateLogs(context.Background(), settings, cfg, &logs[i])
		require.NoError(t, err)
		asMetrics, err := factory.CreateMetrics(context.Background(), settings, cfg, &metrics[i])
		require.NoError(t, err)
		var host fakeHost
		start(t, asLogs, &host)
		defer stop(t, asLogs)
		start(t, asMetrics, componenttest.NewNopHost())
		defer stop(t, asMetrics)
		require.Equal(t, componentstatus.StatusOK, host.last().Status())
		assert.Len(t, host.last().Attributes().AsRaw(), 6, "handshake, accept, reset, retransmit, loss, scan")
		assert.NotContains(t, host.last().Attributes().AsRaw(), unavailable)
	}
	port := refusedPort(t)
	for i := range 2 {
		require.Eventually(t, func() bool { return len(refusals(&logs[i], port)) == 1 }, time.Second, 5*time.Millisecond)
		record := refusals(&logs[i], port)[0]
		attributes := record.Attributes().AsRaw()
		assert.Equal(t, "connection_refused", attributes["error.type"])
		assert.Contains(t, attributes, "thread.id")
		assert.True(t, strings.Contains(record.Body().Str(), "connect failed"), record.Body().Str())
		assert.WithinDuration(t, time.Now(), record.Timestamp().AsTime(), 2*time.Second)
		require.Eventually(t, func() bool { return refusedCount(&metrics[i]) >= 1 }, 5*time.Second, 50*time.Millisecond)
	}
}

func TestARestartSeesEventsAtOnce(t *testing.T) {
	nettest.Require(t)
	factory := NewFactory()
	cfg := defaultConfig()
	cfg.Filter.ExcludeSelf = false // the test connects by itself
	for range 2 {
		var logs consumertest.LogsSink
		c, err := factory.CreateLogs(context.Background(), receivertest.NewNopSettings(metadata.Type), cfg, &logs)
		require.NoError(t, err)
		start(t, c, componenttest.NewNopHost())
		port := refusedPort(t)
		stop(t, c)
		require.Len(t, refusals(&logs, port), 1, "Shutdown delivers what is in the ring")
		assert.Contains(t, processes(&logs), int64(os.Getpid()))
	}
}
