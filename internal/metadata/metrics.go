// SPDX-License-Identifier: Apache-2.0

package metadata

// Metric is what a metric says of itself.
type Metric struct {
	Name        string
	Description string
	Unit        string // UCUM
}

// The TCP metrics.
var (
	MetricTCPAcceptQueueWaitDuration = Metric{
		Name:        "ebpfnet.tcp.accept_queue.wait.duration",
		Description: "Time from the end of an inbound handshake to accept().",
		Unit:        "s",
	}
	MetricTCPCongestionTransitions = Metric{
		Name:        "ebpfnet.tcp.congestion.transitions",
		Description: "Changes of the congestion state, by the state entered.",
		Unit:        "{transition}",
	}
	MetricTCPConnections = Metric{
		Name:        "ebpfnet.tcp.connections",
		Description: "Handshakes that have ended, with or without a connection.",
		Unit:        "{connection}",
	}
	MetricTCPHandshakeDuration = Metric{
		Name:        "ebpfnet.tcp.handshake.duration",
		Description: "Time from the SYN to the end of the handshake.",
		Unit:        "s",
	}
	MetricTCPResets = Metric{
		Name:        "ebpfnet.tcp.resets",
		Description: "Segments with the RST flag that were sent or received.",
		Unit:        "{segment}",
	}
	MetricTCPRetransmits = Metric{
		Name:        "ebpfnet.tcp.retransmits",
		Description: "Segments sent again.",
		Unit:        "{segment}",
	}
)

// MetricConfig says whether one metric is built.
type MetricConfig struct {
	Enabled bool `mapstructure:"enabled"`
}

// MetricsConfig says which metrics are built.
type MetricsConfig struct {
	TCPAcceptQueueWaitDuration MetricConfig `mapstructure:"ebpfnet.tcp.accept_queue.wait.duration"`
	TCPCongestionTransitions   MetricConfig `mapstructure:"ebpfnet.tcp.congestion.transitions"`
	TCPConnections             MetricConfig `mapstructure:"ebpfnet.tcp.connections"`
	TCPHandshakeDuration       MetricConfig `mapstructure:"ebpfnet.tcp.handshake.duration"`
	TCPResets                  MetricConfig `mapstructure:"ebpfnet.tcp.resets"`
	TCPRetransmits             MetricConfig `mapstructure:"ebpfnet.tcp.retransmits"`
}

// DefaultMetricsConfig builds all.
func DefaultMetricsConfig() MetricsConfig {
	on := MetricConfig{Enabled: true}
	return MetricsConfig{TCPAcceptQueueWaitDuration: on, TCPCongestionTransitions: on, TCPConnections: on,
		TCPHandshakeDuration: on, TCPResets: on, TCPRetransmits: on}
}
