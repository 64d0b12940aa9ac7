// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// Observation is what the receiver tells about itself at one moment. Counts are cumulative.
type Observation struct {
	Seen           [event.KindCount]uint64 // occurrences that were to become records; unknown and socket_closed are not told
	RingFull       [event.KindCount]uint64 // of those, lost because the ring buffer was full
	RateLimited    [event.KindCount]uint64 // records left out by rate_limit
	DecodeErrors   uint64                  // records that could not be understood
	Refused        uint64                  // records that no consumer took
	Recursion      map[string]uint64       // runs that the kernel skipped, by program
	Signals        []Signal
	SocketsTracked int64 // sockets whose owner is tracked now
	SocketsRefused uint64
	OwnersCached   int64 // processes whose identity is held
}

// Signal is whether one signal works.
type Signal struct {
	Name string // handshake, reset, …
	Hook string // the hooks in use, for people; empty: the signal is off
}

// Telemetry is the receiver's own metrics.
type Telemetry struct {
	registration metric.Registration
}

// NewTelemetry registers the own metrics of the receiver with the id. Whenever they are collected, observe is called once with an empty
// Observation to fill; it may be called by several goroutines at once.
func NewTelemetry(settings component.TelemetrySettings, id component.ID, observe func(*Observation)) (*Telemetry, error) {
	meter := settings.MeterProvider.Meter(ScopeName)
	var errs error
	counter := func(name, unit, description string) metric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = errors.Join(errs, err)
		return c
	}
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = errors.Join(errs, err)
		return g
	}
	hookInUse := gauge("otelcol_ebpf_net_hook_in_use", "1",
		"Whether the signal has a working kernel hook (1) or is off (0).")
	ownerCacheSize := gauge("otelcol_ebpf_net_owner_cache_size", "{process}",
		"Processes whose identity is held.")
	recursionMisses := counter("otelcol_ebpf_net_program_recursion_misses", "{run}",
		"Runs of a BPF program that the kernel skipped because the program was running on that CPU already. "+
			"What they would have counted is missing from the metrics.")
	recordsLost := counter("otelcol_ebpf_net_records_lost", "{record}",
		"Records seen in the kernel that reached no consumer.")
	recordsSeen := counter("otelcol_ebpf_net_records_seen", "{record}",
		"Occurrences in the kernel that were to become records. Retransmits of one connection are told together, "+
			"so they are more than the records.")
	socketsRefused := counter("otelcol_ebpf_net_sockets_refused", "{socket}",
		"Sockets whose owner is not tracked because the table was full. Their events in softirq have no owner.")
	socketsTracked := gauge("otelcol_ebpf_net_sockets_tracked", "{socket}",
		"Sockets whose owner is tracked now.")
	if errs != nil {
		return nil, fmt.Errorf("create own metrics: %w", errs)
	}
	receiver := attribute.String("receiver", id.String())
	with := func(attributes ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(attributes, receiver)...)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		var o Observation
		observe(&o)
		for _, s := range o.Signals {
			if s.Hook == "" {
				to.ObserveInt64(hookInUse, 0, with(attribute.String("signal", s.Name)))
				continue
			}
			to.ObserveInt64(hookInUse, 1, with(attribute.String("signal", s.Name),
				attribute.String("hook", s.Hook)))
		}
		var ringFull uint64
		for kind, e := range Events {
			if e.Name == "" {
				continue
			}
			ringFull += o.RingFull[kind]
			to.ObserveInt64(recordsSeen, int64(o.Seen[kind]),
				with(attribute.String("kind", event.Kind(kind).String())))
			to.ObserveInt64(recordsLost, int64(o.RateLimited[kind]), with(attribute.String("cause", "rate_limited"),
				attribute.String("kind", event.Kind(kind).String())))
		}
		lost := func(cause string, n uint64) {
			to.ObserveInt64(recordsLost, int64(n), with(attribute.String("cause", cause)))
		}
		lost("ring_full", ringFull)
		lost("decode_error", o.DecodeErrors)
		lost("refused", o.Refused)
		for program, n := range o.Recursion {
			to.ObserveInt64(recursionMisses, int64(n), with(attribute.String("program", program)))
		}
		to.ObserveInt64(ownerCacheSize, o.OwnersCached, with())
		to.ObserveInt64(socketsRefused, int64(o.SocketsRefused), with())
		to.ObserveInt64(socketsTracked, o.SocketsTracked, with())
		return nil
	}, hookInUse, ownerCacheSize, recursionMisses, recordsLost, recordsSeen, socketsRefused, socketsTracked)
	if err != nil {
		return nil, fmt.Errorf("register own metrics: %w", err)
	}
	return &Telemetry{registration: registration}, nil
}

// Shutdown ends the observing. It is safe on a nil Telemetry and twice.
func (t *Telemetry) Shutdown() error {
	if t == nil {
		return nil
	}
	return t.registration.Unregister()
}
