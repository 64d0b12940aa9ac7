// SPDX-License-Identifier: Apache-2.0

// Package emit writes events as OTLP log records, and the kernel's counters as OTLP metrics.
package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// fillHost writes the host's attributes.
func fillHost(to pcommon.Map, host enrich.Host, config *metadata.ResourceAttributesConfig) {
	if config.HostName.Enabled && host.Name != "" {
		to.PutStr(metadata.AttributeHostName, host.Name)
	}
	if config.HostID.Enabled && host.ID != "" {
		to.PutStr(metadata.AttributeHostID, host.ID)
	}
}

// fillProcess writes a process's attributes.
func fillProcess(to pcommon.Map, process *enrich.Process, config *metadata.ResourceAttributesConfig) {
	if config.ProcessPID.Enabled {
		to.PutInt(metadata.AttributeProcessPID, int64(process.PID))
	}
	if config.ProcessVPID.Enabled && process.VPID != 0 {
		to.PutInt(metadata.AttributeProcessVPID, int64(process.VPID))
	}
	if config.ProcessCreationTime.Enabled && process.CreationTime != "" {
		to.PutStr(metadata.AttributeProcessCreationTime, process.CreationTime)
	}
	if config.ProcessExecutableName.Enabled && process.Executable != "" {
		to.PutStr(metadata.AttributeProcessExecutableName, process.Executable)
	}
	if config.ContainerID.Enabled && process.ContainerID != "" {
		to.PutStr(metadata.AttributeContainerID, process.ContainerID)
	}
	if config.K8SPodUID.Enabled && process.PodUID != "" {
		to.PutStr(metadata.AttributeK8SPodUID, process.PodUID)
	}
	// Only names that are to be told are kept in the first place.
	for _, said := range process.Attributes {
		to.PutStr(said.Name, said.Value)
	}
}
