// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
)

// instances makes the logs and the metrics receiver of one configuration share one instance, so that the programs are loaded
// once. The Collector hands the same configuration pointer to both. An instance is forgotten when it is shut down.
type instances struct {
	kernel   kernel
	tuning   tuning
	mu       sync.Mutex
	byConfig map[*Config]*instance
}

func newInstances(k kernel, t tuning) *instances {
	return &instances{kernel: k, tuning: t, byConfig: make(map[*Config]*instance)}
}

// instance is the one that serves this configuration and still wants the given signal, or a new one.
func (s *instances) instance(cfg *Config, set receiver.Settings, wants func(*instance) bool) (*instance, error) {
	if in, ok := s.byConfig[cfg]; ok && !in.isStarted() && wants(in) {
		return in, nil
	}
	if s.kernel.open == nil {
		return nil, errors.New("only Linux on amd64 and arm64")
	}
	in, err := newInstance(cfg, set, s.kernel, s.tuning)
	if err != nil {
		return nil, err
	}
	s.byConfig[cfg] = in
	return in, nil
}

func (s *instances) createLogs(
	_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs,
) (receiver.Logs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, err := s.instance(cfg.(*Config), set, func(in *instance) bool { return in.logs == nil })
	if err != nil {
		return nil, err
	}
	in.logs = next
	return &member{instances: s, instance: in, ready: in.logsReady}, nil
}

func (s *instances) createMetrics(
	_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics,
) (receiver.Metrics, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, err := s.instance(cfg.(*Config), set, func(in *instance) bool { return in.metrics == nil })
	if err != nil {
		return nil, err
	}
	in.metrics = next
	return &member{instances: s, instance: in, ready: in.metricsReady}, nil
}

func (s *instances) forget(in *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byConfig[in.cfg] == in {
		delete(s.byConfig, in.cfg)
	}
}

// member is an instance as one pipeline sees it. The first one started starts the instance, since only a status reported before
// Start returns keeps its attributes. But each pipeline gets data only after its own Start, when what stands behind it runs.
// The first one shut down stops the instance: until then both pipelines still take what is left.
type member struct {
	instances *instances
	instance  *instance
	ready     chan struct{}
	once      sync.Once
}

// Start implements component.Component. What it starts outlives the context.
func (m *member) Start(_ context.Context, host component.Host) error {
	if err := m.instance.start(host); err != nil {
		return err
	}
	m.once.Do(func() { close(m.ready) })
	return nil
}

// Shutdown implements component.Component. The instance delivers what it has while the context lasts.
func (m *member) Shutdown(ctx context.Context) error {
	m.instances.forget(m.instance)
	return m.instance.shutdown(ctx)
}
