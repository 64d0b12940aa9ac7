// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata/schema"
)

// emitted collects attributes by what has them.
type emitted map[string]map[string]bool

func (e emitted) add(t *testing.T, of string, attributes pcommon.Map, declared map[string]schema.Attribute) {
	if e[of] == nil {
		e[of] = map[string]bool{}
	}
	types := map[pcommon.ValueType]string{pcommon.ValueTypeStr: "string", pcommon.ValueTypeInt: "int",
		pcommon.ValueTypeDouble: "double", pcommon.ValueTypeBool: "bool"}
	for name, value := range attributes.All() {
		e[of][name] = true
		assert.Equal(t, declared[name].Type, types[value.Type()], name)
		if enum := declared[name].Enum; enum != nil {
			assert.Contains(t, enum, value.Str(), name)
		}
	}
}

func (e emitted) names(of string) []string { return slices.Sorted(maps.Keys(e[of])) }

func readSchema(t *testing.T) *schema.File {
	file, err := schema.Read("../../metadata.yaml")
	require.NoError(t, err)
	return file
}

func TestRecordsHaveTheAttributesThatMetadataDeclares(t *testing.T) {
	file := readSchema(t)
	logs := newLogs(t)
	for _, e := range recorded() {
		logs.Append(&e, observed)
	}
	got := emitted{}
	for _, resource := range logs.Take().ResourceLogs().All() {
		got.add(t, "resource", resource.Resource().Attributes(), file.ResourceAttributes)
		for _, record := range resource.ScopeLogs().At(0).LogRecords().All() {
			got.add(t, record.EventName(), record.Attributes(), file.Attributes)
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(file.ResourceAttributes)), got.names("resource"))
	for name, declared := range file.Events {
		assert.Equal(t, declared.Attributes, got.names(name), name)
	}
	assert.Len(t, got, len(file.Events)+1)
}

func TestMetricsAreWhatMetadataDeclares(t *testing.T) {
	file := readSchema(t)
	metrics := NewMetrics(MetricsSettings{Metrics: metadata.DefaultMetricsConfig()})
	built := metrics.Build(counters(), time.Now()).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	got := emitted{}
	for _, metric := range built.All() {
		name := metric.Name()
		declared, ok := file.Metrics[name]
		require.True(t, ok, name)
		assert.Equal(t, declared.Description, metric.Description(), name)
		assert.Equal(t, declared.Unit, metric.Unit(), name)
		var temporality pmetric.AggregationTemporality
		switch metric.Type() {
		case pmetric.MetricTypeSum:
			require.NotNil(t, declared.Sum, name)
			assert.Equal(t, declared.Sum.Monotonic, metric.Sum().IsMonotonic(), name)
			assert.Equal(t, declared.Sum.AggregationTemporality, strings.ToLower(metric.Sum().AggregationTemporality().String()), name)
			assert.Equal(t, "int", declared.Sum.ValueType, name)
			for _, point := range metric.Sum().DataPoints().All() {
				assert.Equal(t, pmetric.NumberDataPointValueTypeInt, point.ValueType(), name)
				got.add(t, name, point.Attributes(), file.Attributes)
			}
		case pmetric.MetricTypeExponentialHistogram:
			require.NotNil(t, declared.Histogram, name)
			temporality = metric.ExponentialHistogram().AggregationTemporality()
			assert.Equal(t, declared.Histogram.AggregationTemporality, strings.ToLower(temporality.String()), name)
			for _, point := range metric.ExponentialHistogram().DataPoints().All() {
				got.add(t, name, point.Attributes(), file.Attributes)
			}
		default:
			t.Errorf("%s is a %s", name, metric.Type())
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(file.Metrics)), slices.Sorted(maps.Keys(got)))
	for name, declared := range file.Metrics {
		assert.Equal(t, declared.Attributes, got.names(name), name)
	}
}
