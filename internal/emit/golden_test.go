// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"flag"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestRecordedEventsBecomeTheExpectedLogs(t *testing.T) {
	logs := newLogs(t)
	for _, e := range recorded() {
		logs.Append(&e, observed)
	}
	got := logs.Take()
	const file = "testdata/logs.yaml"
	if *update {
		require.NoError(t, golden.WriteLogsToFile(file, got))
	}
	want, err := golden.ReadLogs(file)
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, got))
	// CompareLogs leaves these out.
	assert.Equal(t, marks(want), marks(got))
}

// marks are the event names and severity texts of all records in their order.
func marks(logs plog.Logs) (marks []string) {
	for _, resource := range logs.ResourceLogs().All() {
		marks = append(marks, resource.SchemaUrl())
		for _, scope := range resource.ScopeLogs().All() {
			marks = append(marks, scope.SchemaUrl())
			for _, record := range scope.LogRecords().All() {
				marks = append(marks, record.EventName(), record.SeverityText())
			}
		}
	}
	return marks
}

func TestCountersBecomeTheExpectedMetrics(t *testing.T) {
	for _, test := range []struct {
		file     string
		explicit bool
	}{{"testdata/metrics.yaml", false}, {"testdata/metrics_explicit.yaml", true}} {
		t.Run(test.file, func(t *testing.T) {
			c := counters()
			if test.explicit {
				completed := &c.Handshakes[0][0]
				clear(completed.Buckets[:])
				completed.Buckets[2], completed.Buckets[6], completed.Buckets[16] = 2, 1, 1
			}
			metrics := NewMetrics(MetricsSettings{Version: "1.2.3", Host: host(), ExplicitHistograms: test.explicit,
				ResourceAttributes: metadata.DefaultResourceAttributesConfig(), Metrics: metadata.DefaultMetricsConfig()})
			got := metrics.Build(c, time.Unix(1_772_350_010, 0))
			if *update {
				require.NoError(t, golden.WriteMetricsToFile(test.file, got, golden.SkipMetricTimestampNormalization()))
			}
			want, err := golden.ReadMetrics(test.file)
			require.NoError(t, err)
			require.NoError(t, pmetrictest.CompareMetrics(want, got, pmetrictest.IgnoreMetricsOrder(),
				pmetrictest.IgnoreMetricDataPointsOrder()))
		})
	}
}
