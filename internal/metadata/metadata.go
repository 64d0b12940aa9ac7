// SPDX-License-Identifier: Apache-2.0

// Package metadata holds the receiver's names: events, attributes, metrics, their configuration, and the receiver's own
// telemetry. It is written by hand from metadata.yaml at the root of the repository, and a test holds the two together.
package metadata

import (
	"go.opentelemetry.io/collector/component"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

const (
	// ScopeName is the instrumentation scope of the receiver's records, metrics and own telemetry.
	ScopeName = "github.com/ebpfnet/ebpfnetreceiver/receiver"
	// SchemaURL names the semantic conventions that the attributes follow.
	SchemaURL = semconv.SchemaURL
	// LogsStability is the stability of the records.
	LogsStability = component.StabilityLevelDevelopment
	// MetricsStability is the stability of the metrics.
	MetricsStability = component.StabilityLevelDevelopment
)

// Type is the component type, as users write it in their configuration.
var Type = component.MustNewType("ebpf_net")

// Severity is a severity number of OTLP.
type Severity int32

// The severities of records (SeverityNumber in opentelemetry/proto/logs/v1/logs.proto).
const (
	SeverityInfo  Severity = 9
	SeverityWarn  Severity = 13
	SeverityError Severity = 17
)

// String is the severity's short name; empty for a number that is not one of the above.
func (s Severity) String() string {
	switch s {
	case SeverityInfo:
		return "INFO"
	case SeverityWarn:
		return "WARN"
	case SeverityError:
		return "ERROR"
	}
	return ""
}

// Event is how the records of one kind are marked.
type Event struct {
	Name     string // EventName of the record; empty: the kind becomes no record
	Severity Severity
}

// Events are the marks of the kinds of events.
var Events = [event.KindCount]Event{
	event.KindAcceptCompleted:      {"ebpfnet.tcp.accept.completed", SeverityInfo},
	event.KindLossEntered:          {"ebpfnet.tcp.loss.entered", SeverityWarn},
	event.KindRecoveryEntered:      {"ebpfnet.tcp.recovery.entered", SeverityInfo},
	event.KindConnectCompleted:     {"ebpfnet.tcp.connect.completed", SeverityInfo},
	event.KindConnectFailed:        {"ebpfnet.tcp.connect.failed", SeverityError},
	event.KindSynRetransmitted:     {"ebpfnet.tcp.syn.retransmitted", SeverityWarn},
	event.KindResetSent:            {"ebpfnet.tcp.reset.sent", SeverityWarn},
	event.KindResetReceived:        {"ebpfnet.tcp.reset.received", SeverityWarn},
	event.KindSegmentRetransmitted: {"ebpfnet.tcp.segment.retransmitted", SeverityInfo},
}
