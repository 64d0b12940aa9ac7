// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"go.opentelemetry.io/collector/receiver"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// NewFactory makes the factory of the ebpf_net receiver, which yields logs and metrics. Both of one configuration share one set
// of loaded programs.
func NewFactory() receiver.Factory {
	return newFactory(hostKernel(), defaultTuning())
}

func newFactory(k kernel, t tuning) receiver.Factory {
	shared := newInstances(k, t)
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(shared.createLogs, metadata.LogsStability),
		receiver.WithMetrics(shared.createMetrics, metadata.MetricsStability))
}
