// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.yaml.in/yaml/v3"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata/schema"
)

const metadataYAML = "../../metadata.yaml"

func readSchema(t *testing.T) *schema.File {
	file, err := schema.Read(metadataYAML)
	require.NoError(t, err)
	return file
}

func keys[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestComponentIsWhatMetadataDeclares(t *testing.T) {
	file := readSchema(t)
	assert.Equal(t, Type.String(), file.Type)
	assert.Equal(t, ScopeName, file.ScopeName)
	assert.True(t, strings.HasSuffix(SchemaURL, "/"+file.SemConvVersion), SchemaURL)
	assert.Equal(t, "receiver", file.Status.Class)
	var signals []string
	for stability, of := range file.Status.Stability {
		assert.Equal(t, LogsStability.String(), upperFirst(stability))
		assert.Equal(t, MetricsStability.String(), upperFirst(stability))
		signals = append(signals, of...)
	}
	assert.ElementsMatch(t, []string{"logs", "metrics"}, signals)
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func TestMetadataKeysAreSorted(t *testing.T) {
	text, err := os.ReadFile(metadataYAML)
	require.NoError(t, err)
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &document))
	root := document.Content[0]
	sorted := func(what string, names []string) {
		assert.True(t, slices.IsSorted(names), "%s: %v", what, names)
		assert.Len(t, slices.Compact(slices.Clone(names)), len(names), "%s: %v", what, names)
	}
	child := func(node *yaml.Node, key string) *yaml.Node {
		for i := 0; i < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1]
			}
		}
		t.Fatalf("no key %s", key)
		return nil
	}
	for _, section := range []*yaml.Node{child(root, "resource_attributes"), child(root, "attributes"), child(root, "metrics"),
		child(root, "events"), child(child(root, "telemetry"), "metrics")} {
		var names []string
		for i := 0; i < len(section.Content); i += 2 {
			names = append(names, section.Content[i].Value)
			entry := section.Content[i+1]
			for j := 0; j < len(entry.Content); j += 2 {
				if entry.Content[j].Value == "attributes" {
					var attributes []string
					for _, a := range entry.Content[j+1].Content {
						attributes = append(attributes, a.Value)
					}
					sorted(section.Content[i].Value, attributes)
				}
			}
		}
		sorted("section", names)
	}
}

func TestDeclarationsAreComplete(t *testing.T) {
	file := readSchema(t)
	used := map[string]bool{}
	use := func(by string, attributes []string) {
		for _, a := range attributes {
			used[a] = true
			assert.Contains(t, file.Attributes, a, by)
		}
	}
	for name, m := range file.Metrics {
		use(name, m.Attributes)
		requireMetricComplete(t, name, m)
		assert.Equal(t, "cumulative", temporality(m), name)
	}
	for name, m := range file.Telemetry.Metrics {
		use(name, m.Attributes)
		requireMetricComplete(t, name, m)
	}
	for name, e := range file.Events {
		use(name, e.Attributes)
		require.NotNil(t, e.Enabled, name)
		assert.NotEmpty(t, e.Description, name)
	}
	assert.Equal(t, keys(file.Attributes), keys(used), "every attribute is used")
	for name, a := range file.Attributes {
		assert.Contains(t, []string{"string", "int", "double", "bool"}, a.Type, name)
		assert.NotEmpty(t, a.Description, name)
		assert.Nil(t, a.Enabled, name)
	}
	for name, a := range file.ResourceAttributes {
		require.NotNil(t, a.Enabled, name)
		assert.NotEmpty(t, a.Description, name)
	}
	for name := range file.Attributes {
		for other := range file.Attributes {
			assert.False(t, strings.HasPrefix(other, name+"."), "%s is a value and a prefix of %s", name, other)
		}
	}
}

func temporality(m schema.Metric) string {
	if m.Sum != nil {
		return m.Sum.AggregationTemporality
	}
	return m.Histogram.AggregationTemporality
}

func requireMetricComplete(t *testing.T, name string, m schema.Metric) {
	require.NotNil(t, m.Enabled, name)
	assert.NotEmpty(t, m.Description, name)
	assert.NotEmpty(t, m.Stability, name)
	assert.NotEmpty(t, m.Unit, name)
	instruments := 0
	for _, i := range []*schema.Instrument{m.Sum, m.Gauge, m.Histogram} {
		if i != nil {
			instruments++
		}
	}
	assert.Equal(t, 1, instruments, name)
}

func TestEventsAreThoseOfMetadata(t *testing.T) {
	file := readSchema(t)
	names := map[string]bool{}
	for kind, e := range Events {
		if kind == int(event.KindUnknown) || kind == int(event.KindSocketClosed) {
			assert.Empty(t, e.Name)
			continue
		}
		names[e.Name] = true
		assert.NotZero(t, e.Severity, e.Name)
	}
	assert.Equal(t, keys(file.Events), keys(names))
}

// The metrics' attributes, types and temporality are compared with what is emitted, in package emit.
func TestMetricsAreThoseOfMetadata(t *testing.T) {
	file := readSchema(t)
	names := map[string]bool{}
	for _, m := range []Metric{MetricTCPAcceptQueueWaitDuration, MetricTCPCongestionTransitions, MetricTCPConnections, MetricTCPHandshakeDuration, MetricTCPResets,
		MetricTCPRetransmits} {
		names[m.Name] = true
		assert.Equal(t, file.Metrics[m.Name].Description, m.Description, m.Name)
		assert.Equal(t, file.Metrics[m.Name].Unit, m.Unit, m.Name)
	}
	assert.Equal(t, keys(file.Metrics), keys(names))
}

func TestDefaultsAreThoseOfMetadata(t *testing.T) {
	file := readSchema(t)
	metrics := map[string]bool{}
	for name, m := range file.Metrics {
		metrics[name] = *m.Enabled
	}
	assert.Equal(t, metrics, enabled(DefaultMetricsConfig()))
	attributes := map[string]bool{}
	for name, a := range file.ResourceAttributes {
		attributes[name] = *a.Enabled
	}
	assert.Equal(t, attributes, enabled(DefaultResourceAttributesConfig()))
}

// enabled are the switches of a configuration struct by the names that users write.
func enabled(config any) map[string]bool {
	names := map[string]bool{}
	v := reflect.ValueOf(config)
	for i := range v.NumField() {
		names[v.Type().Field(i).Tag.Get("mapstructure")] = v.Field(i).FieldByName("Enabled").Bool()
	}
	return names
}

func TestWhatAProcessMaySayOfItselfIsWhatIsToBeTold(t *testing.T) {
	config := DefaultResourceAttributesConfig()
	names := config.SaidByProcess()
	for _, name := range keys(readSchema(t).ResourceAttributes) {
		said := strings.HasPrefix(name, "service.") || strings.HasPrefix(name, "k8s.") || name == AttributeDeploymentEnvironmentName
		assert.Equal(t, said, slices.Contains(names, name), name)
	}
	config.ServiceName.Enabled = false
	assert.NotContains(t, config.SaidByProcess(), AttributeServiceName)
	assert.Len(t, config.SaidByProcess(), len(names)-1)
}

func TestConfigurationIsReadAsUsersWriteIt(t *testing.T) {
	conf := confmap.NewFromStringMap(map[string]any{
		"metrics":             map[string]any{"ebpfnet.tcp.resets": map[string]any{"enabled": false}},
		"resource_attributes": map[string]any{"host.id": map[string]any{"enabled": false}},
	})
	config := struct {
		Metrics            MetricsConfig            `mapstructure:"metrics"`
		ResourceAttributes ResourceAttributesConfig `mapstructure:"resource_attributes"`
	}{DefaultMetricsConfig(), DefaultResourceAttributesConfig()}
	require.NoError(t, conf.Unmarshal(&config))
	assert.False(t, config.Metrics.TCPResets.Enabled)
	assert.True(t, config.Metrics.TCPConnections.Enabled)
	assert.False(t, config.ResourceAttributes.HostID.Enabled)
	assert.True(t, config.ResourceAttributes.HostName.Enabled)

	unknown := confmap.NewFromStringMap(map[string]any{"metrics": map[string]any{"ebpfnet.tcp.nonsense": map[string]any{}}})
	assert.ErrorContains(t, unknown.Unmarshal(&config), "ebpfnet.tcp.nonsense")
}

func TestTelemetryIsThatOfMetadata(t *testing.T) {
	file := readSchema(t)
	reader := sdkmetric.NewManualReader()
	settings := componenttest.NewNopTelemetrySettings()
	settings.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	telemetry, err := NewTelemetry(settings, component.MustNewIDWithName("ebpf_net", "test"), func(o *Observation) {
		for kind := range o.Seen {
			o.Seen[kind] = uint64(10 + kind)
			o.RingFull[kind] = 1
			o.RateLimited[kind] = uint64(100 + kind)
		}
		o.DecodeErrors, o.Refused, o.SocketsTracked, o.SocketsRefused, o.OwnersCached = 2, 3, 4, 5, 6
		o.Recursion = map[string]uint64{"state_established": 7}
		o.Signals = []Signal{{Name: "reset", Hook: "tp_btf/tcp_send_reset"}, {Name: "retransmit"}}
	})
	require.NoError(t, err)

	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &got))
	require.Len(t, got.ScopeMetrics, 1)
	assert.Equal(t, ScopeName, got.ScopeMetrics[0].Scope.Name)
	values := map[string]map[string]int64{} // metric, then attribute values joined
	for _, m := range got.ScopeMetrics[0].Metrics {
		name := strings.TrimPrefix(m.Name, "otelcol_")
		declared, ok := file.Telemetry.Metrics[name]
		require.True(t, ok, m.Name)
		assert.Equal(t, declared.Description, m.Description, name)
		assert.Equal(t, declared.Unit, m.Unit, name)
		var points []metricdata.DataPoint[int64]
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			require.NotNil(t, declared.Sum, name)
			assert.Equal(t, declared.Sum.Monotonic, data.IsMonotonic, name)
			points = data.DataPoints
		case metricdata.Gauge[int64]:
			require.NotNil(t, declared.Gauge, name)
			points = data.DataPoints
		default:
			t.Fatalf("%s is %T", name, data)
		}
		attributes := map[string]bool{}
		values[name] = map[string]int64{}
		for _, point := range points {
			var id []string
			for _, a := range point.Attributes.ToSlice() {
				attributes[string(a.Key)] = true
				if a.Key == "receiver" {
					assert.Equal(t, "ebpf_net/test", a.Value.String())
					continue
				}
				id = append(id, a.Value.String())
				if enum := file.Attributes[string(a.Key)].Enum; enum != nil {
					assert.Contains(t, enum, a.Value.String(), name)
				}
			}
			values[name][strings.Join(id, " ")] = point.Value
		}
		assert.Equal(t, declared.Attributes, keys(attributes), name)
	}
	assert.Equal(t, keys(file.Telemetry.Metrics), keys(values))
	wantLost := map[string]int64{"ring_full": 9, "decode_error": 2, "refused": 3}
	for kind, e := range Events {
		if e.Name != "" {
			wantLost["rate_limited "+event.Kind(kind).String()] = int64(100 + kind)
		}
	}
	assert.Equal(t, wantLost, values["ebpf_net_records_lost"])
	assert.Len(t, values["ebpf_net_records_seen"], len(file.Attributes["kind"].Enum))
	assert.Equal(t, int64(10+event.KindResetSent), values["ebpf_net_records_seen"]["reset_sent"])
	assert.Equal(t, map[string]int64{"tp_btf/tcp_send_reset reset": 1, "retransmit": 0}, values["ebpf_net_hook_in_use"])

	require.NoError(t, telemetry.Shutdown())
	require.NoError(t, telemetry.Shutdown())
	require.NoError(t, reader.Collect(context.Background(), &got))
	assert.Empty(t, got.ScopeMetrics)
	require.NoError(t, (*Telemetry)(nil).Shutdown())
}
