// SPDX-License-Identifier: Apache-2.0

package metadata

import semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

// Names of resource attributes.
const (
	AttributeHostID                = string(semconv.HostIDKey)
	AttributeHostName              = string(semconv.HostNameKey)
	AttributeProcessCreationTime   = string(semconv.ProcessCreationTimeKey)
	AttributeProcessExecutableName = string(semconv.ProcessExecutableNameKey)
	AttributeProcessPID            = string(semconv.ProcessPIDKey)
	AttributeProcessVPID           = string(semconv.ProcessVpidKey)
)

// Names of attributes of records and metrics, and the values that are always the same.
const (
	AttributeErrno                  = "ebpfnet.errno"
	AttributeErrorType              = string(semconv.ErrorTypeKey)
	AttributeNetworkConnectionState = string(semconv.NetworkConnectionStateKey)
	AttributeNetworkIODirection     = string(semconv.NetworkIODirectionKey)
	AttributeNetworkLocalAddress    = string(semconv.NetworkLocalAddressKey)
	AttributeNetworkLocalPort       = string(semconv.NetworkLocalPortKey)
	AttributeNetworkPeerAddress     = string(semconv.NetworkPeerAddressKey)
	AttributeNetworkPeerPort        = string(semconv.NetworkPeerPortKey)
	AttributeNetworkTransport       = string(semconv.NetworkTransportKey)
	AttributeNetworkType            = string(semconv.NetworkTypeKey)
	AttributeOwner                  = "ebpfnet.owner"
	AttributeSocketCookie           = "ebpfnet.socket.cookie"
	AttributeThreadID               = string(semconv.ThreadIDKey) // the operating system's, not a "managed" one
	AttributeThreadName             = string(semconv.ThreadNameKey)
	AttributeThreadVTID             = "ebpfnet.thread.vtid"

	AttributeTCPConnectionAge       = "ebpfnet.tcp.connection.age"
	AttributeTCPCwnd                = "ebpfnet.tcp.cwnd"
	AttributeTCPHandshakeDuration   = "ebpfnet.tcp.handshake.duration"
	AttributeTCPHandshakeRole       = "ebpfnet.tcp.handshake.role"
	AttributeTCPLastReceiveAge      = "ebpfnet.tcp.last_receive.age"
	AttributeTCPLastSendAge         = "ebpfnet.tcp.last_send.age"
	AttributeTCPReceiveQueueSize    = "ebpfnet.tcp.receive_queue.size"
	AttributeTCPReceiveWindow       = "ebpfnet.tcp.receive_window"
	AttributeTCPResetReason         = "ebpfnet.tcp.reset.reason"
	AttributeTCPResetReasonSource   = "ebpfnet.tcp.reset.reason_source"
	AttributeTCPRetransmitAttempt   = "ebpfnet.tcp.retransmit.attempt"
	AttributeTCPRetransmitCount     = "ebpfnet.tcp.retransmit.count"
	AttributeTCPRetransmitType      = "ebpfnet.tcp.retransmit.type"
	AttributeTCPRetransmitsTotal    = "ebpfnet.tcp.retransmits.total"
	AttributeTCPRTO                 = "ebpfnet.tcp.rto"
	AttributeTCPRTTVar              = "ebpfnet.tcp.rttvar"
	AttributeTCPSegmentType         = "ebpfnet.tcp.segment.type"
	AttributeTCPSegmentsDuplicate   = "ebpfnet.tcp.segments.duplicate"
	AttributeTCPSegmentsLost        = "ebpfnet.tcp.segments.lost"
	AttributeTCPSegmentsOutstanding = "ebpfnet.tcp.segments.outstanding"
	AttributeTCPSendQueueSize       = "ebpfnet.tcp.send_queue.size"
	AttributeTCPSendWindow          = "ebpfnet.tcp.send_window"
	AttributeTCPSRTT                = "ebpfnet.tcp.srtt"
	AttributeTCPSsthresh            = "ebpfnet.tcp.ssthresh"
	AttributeTCPSynRetransmits      = "ebpfnet.tcp.syn.retransmits"

	NetworkTransportTCP = "tcp"
	NetworkTypeIPv4     = "ipv4"
	NetworkTypeIPv6     = "ipv6"
	ReasonSourceKernel  = "kernel"
	ReasonSourceDerived = "derived"
)

// ResourceAttributeConfig says whether one resource attribute is told.
type ResourceAttributeConfig struct {
	Enabled bool `mapstructure:"enabled"`
}

// ResourceAttributesConfig says which resource attributes are told.
type ResourceAttributesConfig struct {
	HostID                ResourceAttributeConfig `mapstructure:"host.id"`
	HostName              ResourceAttributeConfig `mapstructure:"host.name"`
	ProcessCreationTime   ResourceAttributeConfig `mapstructure:"process.creation.time"`
	ProcessExecutableName ResourceAttributeConfig `mapstructure:"process.executable.name"`
	ProcessPID            ResourceAttributeConfig `mapstructure:"process.pid"`
	ProcessVPID           ResourceAttributeConfig `mapstructure:"process.vpid"`
}

// DefaultResourceAttributesConfig tells all.
func DefaultResourceAttributesConfig() ResourceAttributesConfig {
	on := ResourceAttributeConfig{Enabled: true}
	return ResourceAttributesConfig{
		HostID: on, HostName: on, ProcessCreationTime: on, ProcessExecutableName: on, ProcessPID: on, ProcessVPID: on,
	}
}
