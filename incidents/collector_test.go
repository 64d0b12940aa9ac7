// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

package incidents_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// ready is what the Collector says when all of its components have started.
const ready = "Everything is ready"

// collectorPath is where the built collector is.
func collectorPath(t *testing.T) string {
	t.Helper()
	nettest.Require(t)
	path := os.Getenv("EBPFNET_COLLECTOR")
	if path == "" {
		path = filepath.Join("..", "bin", "otelcol-ebpfnet")
	}
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		nettest.Unavailable(t, fmt.Sprintf("no collector: %v; `make build` makes it", err))
	}
	return path
}

// startCollector starts the collector with a configuration in the test's own namespaces, which are the host's.
func startCollector(t *testing.T, configuration string) *process {
	t.Helper()
	cmd := exec.Command(collectorPath(t), "--config", configuration)
	return start(t, "the collector", cmd, hostThread(t))
}

// awaitReady waits until the collector has started.
func (p *process) awaitReady(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.output.String(), ready) || !p.running() },
		30*time.Second, 20*time.Millisecond, "the collector does not start")
	require.True(t, p.running(), "the collector ended")
}

// stop ends the collector as a user does, and requires that it ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t, 20*time.Second), "the collector's exit code")
}

// sink is an OTLP receiver that keeps all it gets.
type sink struct {
	mu      sync.Mutex
	records []record
	metrics pmetric.Metrics // the newest
	err     error
}

// record is a log record with what it has of its resource.
type record struct {
	name                 string
	time                 time.Time
	body                 string
	attributes, resource map[string]any
}

// observe starts a collector that reports everything, by OTLP over HTTP, to the sink it returns.
func observe(t *testing.T) (*sink, *process) {
	t.Helper()
	s := &sink{metrics: pmetric.NewMetrics()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/logs", serve(s, s.takeLogs))
	routes.HandleFunc("POST /v1/metrics", serve(s, s.takeMetrics))
	server := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			t.Errorf("the collector sent what is not OTLP: %v", s.err)
		}
	})

	path := filepath.Join(t.TempDir(), "collector.yaml")
	configuration := fmt.Sprintf(`
receivers:
  ebpf_net:
    on_unavailable: fail
    collection_interval: 500ms
    tcp:
      handshake: {report: all}
    rate_limit: {records_per_second: 0} # records are compared with counters
exporters:
  otlp_http: {endpoint: "http://%s", compression: none}
service:
  pipelines:
    logs: {receivers: [ebpf_net], exporters: [otlp_http]}
    metrics: {receivers: [ebpf_net], exporters: [otlp_http]}
  telemetry:
    metrics: {level: none}
`, listener.Addr())
	require.NoError(t, os.WriteFile(path, []byte(configuration), 0o644))
	collector := startCollector(t, path)
	collector.awaitReady(t)
	return s, collector
}

// serve answers an export request.
func serve(s *sink, take func([]byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var answer []byte
		if err == nil {
			answer, err = take(body)
		}
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}
}

func (s *sink) takeLogs(body []byte) ([]byte, error) {
	request := plogotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range request.Logs().ResourceLogs().All() {
		process := resource.Resource().Attributes().AsRaw()
		for _, scope := range resource.ScopeLogs().All() {
			for _, r := range scope.LogRecords().All() {
				s.records = append(s.records, recordOf(r, process))
			}
		}
	}
	return plogotlp.NewExportResponse().MarshalProto()
}

func recordOf(r plog.LogRecord, process map[string]any) record {
	return record{name: r.EventName(), time: r.Timestamp().AsTime(), body: r.Body().Str(), attributes: r.Attributes().AsRaw(),
		resource: process}
}

func (s *sink) takeMetrics(body []byte) ([]byte, error) {
	request := pmetricotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !timeOf(request.Metrics()).Before(timeOf(s.metrics)) { // the exporter sends several at a time
		s.metrics = request.Metrics()
	}
	return pmetricotlp.NewExportResponse().MarshalProto()
}

// timeOf is when metrics were read.
func timeOf(metrics pmetric.Metrics) time.Time {
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				if metric.Type() == pmetric.MetricTypeSum && metric.Sum().DataPoints().Len() > 0 {
					return metric.Sum().DataPoints().At(0).Timestamp().AsTime()
				}
			}
		}
	}
	return time.Time{}
}

// all are the records of the kind.
func (s *sink) all(name string) (found []record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.name == name {
			found = append(found, r)
		}
	}
	return found
}

// of are the records of the kind that name the process.
func (s *sink) of(process identity, name string) (found []record) {
	for _, r := range s.all(name) {
		if r.resource["process.pid"] == process.pid {
			found = append(found, r)
		}
	}
	return found
}

// newestMetrics are the newest metrics and when they were read.
func (s *sink) newestMetrics() (pmetric.Metrics, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics, timeOf(s.metrics)
}

// counts are the points of a counter, by the values of the attributes, joined by spaces.
func counts(metrics pmetric.Metrics, name string, attributes ...string) map[string]int {
	found := map[string]int{}
	if metric, ok := metricOf(metrics, name); ok {
		for _, point := range metric.Sum().DataPoints().All() {
			found[key(point.Attributes(), attributes)] += int(point.IntValue())
		}
	}
	return found
}

func metricOf(metrics pmetric.Metrics, name string) (pmetric.Metric, bool) {
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				if metric.Name() == name {
					return metric, true
				}
			}
		}
	}
	return pmetric.Metric{}, false
}

func key(attributes pcommon.Map, names []string) string {
	values := make([]string, 0, len(names))
	for _, name := range names {
		if v, ok := attributes.Get(name); ok {
			values = append(values, v.AsString())
		}
	}
	return strings.Join(values, " ")
}
