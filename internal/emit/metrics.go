// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// MetricsSettings are what metrics say beside the counters.
type MetricsSettings struct {
	Version            string // of the instrumentation scope
	Host               enrich.Host
	ResourceAttributes metadata.ResourceAttributesConfig
	Metrics            metadata.MetricsConfig
	// ExplicitHistograms says that the counters' histograms have the bounds of event.ExplicitBounds instead of
	// event.ExponentialBounds.
	ExplicitHistograms bool
}

// Metrics builds metrics of counters.
type Metrics struct {
	settings       MetricsSettings
	explicitBounds []float64 // seconds; nil: exponential histograms
}

// NewMetrics makes a Metrics.
func NewMetrics(settings MetricsSettings) *Metrics {
	m := &Metrics{settings: settings}
	if settings.ExplicitHistograms {
		for _, bound := range event.ExplicitBounds() {
			m.explicitBounds = append(m.explicitBounds, float64(bound)/1e9)
		}
	}
	return m
}

// Build makes the metrics of the counters as they were at now. They are cumulative from c.Start. A series begins when it first
// counts, and a metric with its first series: without any the result is empty.
func (m *Metrics) Build(c *event.Counters, now time.Time) pmetric.Metrics {
	built := pmetric.NewMetrics()
	resource := built.ResourceMetrics().AppendEmpty()
	resource.SetSchemaUrl(metadata.SchemaURL)
	fillHost(resource.Resource().Attributes(), m.settings.Host, &m.settings.ResourceAttributes)
	scope := resource.ScopeMetrics().AppendEmpty()
	scope.SetSchemaUrl(metadata.SchemaURL)
	scope.Scope().SetName(metadata.ScopeName)
	scope.Scope().SetVersion(m.settings.Version)

	if now.Before(c.Start) { // the wall clock was set back
		now = c.Start
	}
	b := builder{metrics: scope.Metrics(), start: pcommon.NewTimestampFromTime(c.Start), now: pcommon.NewTimestampFromTime(now)}
	enabled := m.settings.Metrics
	if enabled.TCPConnections.Enabled {
		b.connections(c)
	}
	if enabled.TCPHandshakeDuration.Enabled {
		b.handshakeDurations(c, m.explicitBounds)
	}
	if enabled.TCPAcceptQueueWaitDuration.Enabled {
		b.acceptWaits(c, m.explicitBounds)
	}
	if enabled.TCPCongestionTransitions.Enabled {
		b.congestion(c)
	}
	if enabled.TCPResets.Enabled {
		b.resets(c)
	}
	if enabled.TCPRetransmits.Enabled {
		b.retransmits(c)
	}
	scope.Metrics().RemoveIf(isEmpty)
	if scope.Metrics().Len() == 0 {
		return pmetric.NewMetrics()
	}
	return built
}

func isEmpty(metric pmetric.Metric) bool {
	switch metric.Type() {
	case pmetric.MetricTypeSum:
		return metric.Sum().DataPoints().Len() == 0
	case pmetric.MetricTypeHistogram:
		return metric.Histogram().DataPoints().Len() == 0
	case pmetric.MetricTypeExponentialHistogram:
		return metric.ExponentialHistogram().DataPoints().Len() == 0
	}
	return true
}

// builder appends metrics.
type builder struct {
	metrics    pmetric.MetricSlice
	start, now pcommon.Timestamp
}

func (b *builder) metric(of metadata.Metric) pmetric.Metric {
	metric := b.metrics.AppendEmpty()
	metric.SetName(of.Name)
	metric.SetDescription(of.Description)
	metric.SetUnit(of.Unit)
	return metric
}

func (b *builder) counter(of metadata.Metric) pmetric.NumberDataPointSlice {
	sum := b.metric(of).SetEmptySum()
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	sum.SetIsMonotonic(true)
	return sum.DataPoints()
}

func (b *builder) count(to pmetric.NumberDataPointSlice, n uint64) pcommon.Map {
	point := to.AppendEmpty()
	point.SetStartTimestamp(b.start)
	point.SetTimestamp(b.now)
	point.SetIntValue(int64(n))
	return point.Attributes()
}

func putHandshake(to pcommon.Map, role event.Role, outcome event.Outcome) {
	to.PutStr(metadata.AttributeTCPHandshakeRole, role.String())
	if errorType := outcome.String(); errorType != "" {
		to.PutStr(metadata.AttributeErrorType, errorType)
	}
}

func (b *builder) connections(c *event.Counters) {
	points := b.counter(metadata.MetricTCPConnections)
	for role := range c.Connections {
		for outcome, n := range c.Connections[role] {
			if n > 0 {
				putHandshake(b.count(points, n), event.Role(role), event.Outcome(outcome))
			}
		}
	}
}

func (b *builder) congestion(c *event.Counters) {
	points := b.counter(metadata.MetricTCPCongestionTransitions)
	for state, n := range c.Congestion {
		if n > 0 {
			b.count(points, n).PutStr(metadata.AttributeTCPCongestionState, event.CongestionState(state).String())
		}
	}
}

func (b *builder) retransmits(c *event.Counters) {
	points := b.counter(metadata.MetricTCPRetransmits)
	for segment := range c.Retransmits {
		byType := c.Retransmits[segment]
		if s := event.SegmentType(segment); s == event.SegmentSYN || s == event.SegmentSYNACK {
			// Only the timer sends these again.
			var all uint64
			for _, n := range byType {
				all += n
			}
			byType = [event.RetransmitTypeCount]uint64{event.RetransmitTimeout: all}
		}
		for retransmit, n := range byType {
			if n == 0 {
				continue
			}
			attributes := b.count(points, n)
			attributes.PutStr(metadata.AttributeTCPSegmentType, event.SegmentType(segment).String())
			if name := event.RetransmitType(retransmit).String(); name != "" {
				attributes.PutStr(metadata.AttributeTCPRetransmitType, name)
			}
		}
	}
}

func (b *builder) resets(c *event.Counters) {
	points := b.counter(metadata.MetricTCPResets)
	for direction := range c.Resets {
		// Several numbers may have no name: they are one series.
		byReason := c.Resets[direction]
		for i := range byReason {
			n := byReason[i]
			if n == 0 {
				continue
			}
			reason := resetReason(c, event.Direction(direction), i)
			for j := i + 1; j < len(byReason); j++ {
				if byReason[j] > 0 && resetReason(c, event.Direction(direction), j) == reason {
					n += byReason[j]
					byReason[j] = 0
				}
			}
			attributes := b.count(points, n)
			attributes.PutStr(metadata.AttributeNetworkIODirection, event.Direction(direction).String())
			if reason != "" {
				attributes.PutStr(metadata.AttributeTCPResetReason, reason)
			}
		}
	}
}

// resetReason is the name of a reason; a RST that was received tells none.
func resetReason(c *event.Counters, direction event.Direction, number int) string {
	if direction == event.DirectionReceive {
		return ""
	}
	return c.Reasons[number]
}

// durations builds a histogram of the kernel's: series calls point with each of its series.
func (b *builder) durations(metric metadata.Metric, explicitBounds []float64, series func(point func(*event.Histogram) pcommon.Map)) {
	if explicitBounds != nil {
		histogram := b.metric(metric).SetEmptyHistogram()
		histogram.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		series(func(h *event.Histogram) pcommon.Map {
			point := histogram.DataPoints().AppendEmpty()
			point.SetStartTimestamp(b.start)
			point.SetTimestamp(b.now)
			point.SetCount(h.Count())
			point.SetSum(float64(h.Sum) / 1e9)
			point.ExplicitBounds().FromRaw(explicitBounds)
			point.BucketCounts().FromRaw(h.Buckets[:len(explicitBounds)+1])
			return point.Attributes()
		})
		return
	}
	histogram := b.metric(metric).SetEmptyExponentialHistogram()
	histogram.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	series(func(h *event.Histogram) pcommon.Map {
		first, end := filled(h)
		point := histogram.DataPoints().AppendEmpty()
		point.SetStartTimestamp(b.start)
		point.SetTimestamp(b.now)
		point.SetCount(h.Count())
		point.SetSum(float64(h.Sum) / 1e9)
		point.SetScale(event.ExponentialScale)
		// What is above the last bound goes into the bucket that follows: its only fault is to be too low.
		point.Positive().SetOffset(int32(event.ExponentialOffset + first))
		point.Positive().BucketCounts().FromRaw(h.Buckets[first:end])
		return point.Attributes()
	})
}

// filled are the first bucket that has counted and the one behind the last.
func filled(h *event.Histogram) (first, end int) {
	for i, n := range h.Buckets {
		if n == 0 {
			continue
		}
		if end == 0 {
			first = i
		}
		end = i + 1
	}
	return first, end
}

func (b *builder) handshakeDurations(c *event.Counters, explicitBounds []float64) {
	b.durations(metadata.MetricTCPHandshakeDuration, explicitBounds, func(point func(*event.Histogram) pcommon.Map) {
		for role := range c.Handshakes {
			for outcome := range c.Handshakes[role] {
				if h := &c.Handshakes[role][outcome]; h.Count() > 0 {
					putHandshake(point(h), event.Role(role), event.Outcome(outcome))
				}
			}
		}
	})
}

func (b *builder) acceptWaits(c *event.Counters, explicitBounds []float64) {
	b.durations(metadata.MetricTCPAcceptQueueWaitDuration, explicitBounds, func(point func(*event.Histogram) pcommon.Map) {
		if c.AcceptWaits.Count() > 0 {
			point(&c.AcceptWaits)
		}
	})
}
