// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

func TestNothingCountedIsNoMetric(t *testing.T) {
	metrics := NewMetrics(MetricsSettings{Metrics: metadata.DefaultMetricsConfig()})
	assert.Zero(t, metrics.Build(&event.Counters{}, time.Now()).ResourceMetrics().Len())
}

func TestDisabledMetricsAreNotBuilt(t *testing.T) {
	assert.Zero(t, NewMetrics(MetricsSettings{}).Build(counters(), time.Now()).MetricCount())
	config := metadata.DefaultMetricsConfig()
	config.TCPHandshakeDuration.Enabled = false
	built := NewMetrics(MetricsSettings{Metrics: config}).Build(counters(), time.Now())
	assert.Equal(t, 5, built.MetricCount())
}

// Each kernel bucket must be the OTLP bucket that has its durations: (base^index, base^(index+1)] with base 2^(2^-scale).
func TestExponentialBucketsHoldTheirDurations(t *testing.T) {
	metrics := NewMetrics(MetricsSettings{Metrics: metadata.DefaultMetricsConfig()})
	base := math.Exp2(math.Exp2(-event.ExponentialScale))
	bounds := event.ExponentialBounds()
	for _, d := range []time.Duration{5, 100, 999, 1500 * time.Nanosecond, time.Millisecond, 250 * time.Millisecond,
		time.Second, 63 * time.Second, 3600 * time.Second} {
		c := &event.Counters{}
		bucket := 0
		for bucket < len(bounds) && uint64(d) > bounds[bucket] {
			bucket++
		}
		c.Handshakes[0][0].Buckets[bucket] = 1
		c.Handshakes[0][0].Sum = uint64(d)
		built := metrics.Build(c, time.Now())
		point := built.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).ExponentialHistogram().DataPoints().At(0)
		require.Equal(t, 1, point.Positive().BucketCounts().Len())
		lower := math.Pow(base, float64(point.Positive().Offset()))
		assert.Greater(t, d.Seconds(), lower, d)
		assert.LessOrEqual(t, d.Seconds(), lower*base*(1+1e-12), d)
		assert.InDelta(t, d.Seconds(), point.Sum(), 1e-12)
	}
}

func TestSeriesAreNotTwice(t *testing.T) {
	metrics := NewMetrics(MetricsSettings{Metrics: metadata.DefaultMetricsConfig()})
	c := counters()
	for i := range c.Resets[event.DirectionTransmit] {
		c.Resets[event.DirectionTransmit][i] = 1
		c.Resets[event.DirectionReceive][i] = 1
	}
	c.Reasons[40] = "no_socket"
	total := map[string]int64{}
	for _, metric := range metrics.Build(c, time.Now()).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if metric.Name() != metadata.MetricTCPResets.Name {
			continue
		}
		for _, point := range metric.Sum().DataPoints().All() {
			id := point.Attributes().AsRaw()[metadata.AttributeNetworkIODirection].(string)
			if reason, ok := point.Attributes().Get(metadata.AttributeTCPResetReason); ok {
				id += " " + reason.Str()
			}
			assert.NotContains(t, total, id)
			total[id] = point.IntValue()
		}
	}
	assert.Equal(t, map[string]int64{"transmit": 61, "transmit no_socket": 2, "transmit tcp_abort_on_close": 1, "receive": 64}, total)
}

func TestBuildLeavesCountersAlone(t *testing.T) {
	c := counters()
	metrics := NewMetrics(MetricsSettings{Metrics: metadata.DefaultMetricsConfig()})
	first := metrics.Build(c, time.Unix(1, 0))
	assert.Equal(t, counters(), c)
	second := metrics.Build(c, time.Unix(1, 0))
	encode := func(m pmetric.Metrics) string {
		text, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(m)
		require.NoError(t, err)
		return string(text)
	}
	assert.Equal(t, encode(first), encode(second))
}
