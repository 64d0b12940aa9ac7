// SPDX-License-Identifier: Apache-2.0

package metadata

import semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

// Names of resource attributes.
const (
	AttributeContainerID               = string(semconv.ContainerIDKey)
	AttributeDeploymentEnvironmentName = string(semconv.DeploymentEnvironmentNameKey)
	AttributeHostID                    = string(semconv.HostIDKey)
	AttributeHostName                  = string(semconv.HostNameKey)
	AttributeK8SClusterName            = string(semconv.K8SClusterNameKey)
	AttributeK8SClusterUID             = string(semconv.K8SClusterUIDKey)
	AttributeK8SContainerName          = string(semconv.K8SContainerNameKey)
	AttributeK8SCronJobName            = string(semconv.K8SCronJobNameKey)
	AttributeK8SDaemonSetName          = string(semconv.K8SDaemonSetNameKey)
	AttributeK8SDeploymentName         = string(semconv.K8SDeploymentNameKey)
	AttributeK8SJobName                = string(semconv.K8SJobNameKey)
	AttributeK8SNamespaceName          = string(semconv.K8SNamespaceNameKey)
	AttributeK8SNodeName               = string(semconv.K8SNodeNameKey)
	AttributeK8SNodeUID                = string(semconv.K8SNodeUIDKey)
	AttributeK8SPodName                = string(semconv.K8SPodNameKey)
	AttributeK8SPodUID                 = string(semconv.K8SPodUIDKey)
	AttributeK8SReplicaSetName         = string(semconv.K8SReplicaSetNameKey)
	AttributeK8SStatefulSetName        = string(semconv.K8SStatefulSetNameKey)
	AttributeProcessCreationTime       = string(semconv.ProcessCreationTimeKey)
	AttributeProcessExecutableName     = string(semconv.ProcessExecutableNameKey)
	AttributeProcessPID                = string(semconv.ProcessPIDKey)
	AttributeProcessVPID               = string(semconv.ProcessVpidKey)
	AttributeServiceInstanceID         = string(semconv.ServiceInstanceIDKey)
	AttributeServiceName               = string(semconv.ServiceNameKey)
	AttributeServiceNamespace          = string(semconv.ServiceNamespaceKey)
	AttributeServiceVersion            = string(semconv.ServiceVersionKey)
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

	AttributeTCPConnectionAge           = "ebpfnet.tcp.connection.age"
	AttributeTCPCwnd                    = "ebpfnet.tcp.cwnd"
	AttributeTCPAcceptQueueWaitDuration = "ebpfnet.tcp.accept_queue.wait.duration"
	AttributeTCPCongestionState         = "ebpfnet.tcp.congestion.state"
	AttributeTCPHandshakeDuration       = "ebpfnet.tcp.handshake.duration"
	AttributeTCPHandshakeRole           = "ebpfnet.tcp.handshake.role"
	AttributeTCPLastReceiveAge          = "ebpfnet.tcp.last_receive.age"
	AttributeTCPLastSendAge             = "ebpfnet.tcp.last_send.age"
	AttributeTCPReceiveQueueSize        = "ebpfnet.tcp.receive_queue.size"
	AttributeTCPReceiveWindow           = "ebpfnet.tcp.receive_window"
	AttributeTCPResetReason             = "ebpfnet.tcp.reset.reason"
	AttributeTCPResetReasonSource       = "ebpfnet.tcp.reset.reason_source"
	AttributeTCPRetransmitAttempt       = "ebpfnet.tcp.retransmit.attempt"
	AttributeTCPRetransmitCount         = "ebpfnet.tcp.retransmit.count"
	AttributeTCPRetransmitType          = "ebpfnet.tcp.retransmit.type"
	AttributeTCPRetransmitsTotal        = "ebpfnet.tcp.retransmits.total"
	AttributeTCPRTO                     = "ebpfnet.tcp.rto"
	AttributeTCPRTTVar                  = "ebpfnet.tcp.rttvar"
	AttributeTCPSegmentType             = "ebpfnet.tcp.segment.type"
	AttributeTCPSegmentsDuplicate       = "ebpfnet.tcp.segments.duplicate"
	AttributeTCPSegmentsLost            = "ebpfnet.tcp.segments.lost"
	AttributeTCPSegmentsOutstanding     = "ebpfnet.tcp.segments.outstanding"
	AttributeTCPSendQueueSize           = "ebpfnet.tcp.send_queue.size"
	AttributeTCPSendWindow              = "ebpfnet.tcp.send_window"
	AttributeTCPSRTT                    = "ebpfnet.tcp.srtt"
	AttributeTCPSsthresh                = "ebpfnet.tcp.ssthresh"
	AttributeTCPSynRetransmits          = "ebpfnet.tcp.syn.retransmits"

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
	ContainerID               ResourceAttributeConfig `mapstructure:"container.id"`
	DeploymentEnvironmentName ResourceAttributeConfig `mapstructure:"deployment.environment.name"`
	HostID                    ResourceAttributeConfig `mapstructure:"host.id"`
	HostName                  ResourceAttributeConfig `mapstructure:"host.name"`
	K8SClusterName            ResourceAttributeConfig `mapstructure:"k8s.cluster.name"`
	K8SClusterUID             ResourceAttributeConfig `mapstructure:"k8s.cluster.uid"`
	K8SContainerName          ResourceAttributeConfig `mapstructure:"k8s.container.name"`
	K8SCronJobName            ResourceAttributeConfig `mapstructure:"k8s.cronjob.name"`
	K8SDaemonSetName          ResourceAttributeConfig `mapstructure:"k8s.daemonset.name"`
	K8SDeploymentName         ResourceAttributeConfig `mapstructure:"k8s.deployment.name"`
	K8SJobName                ResourceAttributeConfig `mapstructure:"k8s.job.name"`
	K8SNamespaceName          ResourceAttributeConfig `mapstructure:"k8s.namespace.name"`
	K8SNodeName               ResourceAttributeConfig `mapstructure:"k8s.node.name"`
	K8SNodeUID                ResourceAttributeConfig `mapstructure:"k8s.node.uid"`
	K8SPodName                ResourceAttributeConfig `mapstructure:"k8s.pod.name"`
	K8SPodUID                 ResourceAttributeConfig `mapstructure:"k8s.pod.uid"`
	K8SReplicaSetName         ResourceAttributeConfig `mapstructure:"k8s.replicaset.name"`
	K8SStatefulSetName        ResourceAttributeConfig `mapstructure:"k8s.statefulset.name"`
	ProcessCreationTime       ResourceAttributeConfig `mapstructure:"process.creation.time"`
	ProcessExecutableName     ResourceAttributeConfig `mapstructure:"process.executable.name"`
	ProcessPID                ResourceAttributeConfig `mapstructure:"process.pid"`
	ProcessVPID               ResourceAttributeConfig `mapstructure:"process.vpid"`
	ServiceInstanceID         ResourceAttributeConfig `mapstructure:"service.instance.id"`
	ServiceName               ResourceAttributeConfig `mapstructure:"service.name"`
	ServiceNamespace          ResourceAttributeConfig `mapstructure:"service.namespace"`
	ServiceVersion            ResourceAttributeConfig `mapstructure:"service.version"`
}

// DefaultResourceAttributesConfig tells all.
func DefaultResourceAttributesConfig() ResourceAttributesConfig {
	on := ResourceAttributeConfig{Enabled: true}
	return ResourceAttributesConfig{
		ContainerID:               on,
		DeploymentEnvironmentName: on,
		HostID:                    on,
		HostName:                  on,
		K8SClusterName:            on,
		K8SClusterUID:             on,
		K8SContainerName:          on,
		K8SCronJobName:            on,
		K8SDaemonSetName:          on,
		K8SDeploymentName:         on,
		K8SJobName:                on,
		K8SNamespaceName:          on,
		K8SNodeName:               on,
		K8SNodeUID:                on,
		K8SPodName:                on,
		K8SPodUID:                 on,
		K8SReplicaSetName:         on,
		K8SStatefulSetName:        on,
		ProcessCreationTime:       on,
		ProcessExecutableName:     on,
		ProcessPID:                on,
		ProcessVPID:               on,
		ServiceInstanceID:         on,
		ServiceName:               on,
		ServiceNamespace:          on,
		ServiceVersion:            on,
	}
}

// SaidByProcess are the names among those that are told which only a process itself can say, or its cgroup and it.
func (c *ResourceAttributesConfig) SaidByProcess() []string {
	var names []string
	for _, attribute := range []struct {
		name   string
		config ResourceAttributeConfig
	}{
		{AttributeDeploymentEnvironmentName, c.DeploymentEnvironmentName},
		{AttributeK8SClusterName, c.K8SClusterName},
		{AttributeK8SClusterUID, c.K8SClusterUID},
		{AttributeK8SContainerName, c.K8SContainerName},
		{AttributeK8SCronJobName, c.K8SCronJobName},
		{AttributeK8SDaemonSetName, c.K8SDaemonSetName},
		{AttributeK8SDeploymentName, c.K8SDeploymentName},
		{AttributeK8SJobName, c.K8SJobName},
		{AttributeK8SNamespaceName, c.K8SNamespaceName},
		{AttributeK8SNodeName, c.K8SNodeName},
		{AttributeK8SNodeUID, c.K8SNodeUID},
		{AttributeK8SPodName, c.K8SPodName},
		{AttributeK8SPodUID, c.K8SPodUID},
		{AttributeK8SReplicaSetName, c.K8SReplicaSetName},
		{AttributeK8SStatefulSetName, c.K8SStatefulSetName},
		{AttributeServiceInstanceID, c.ServiceInstanceID},
		{AttributeServiceName, c.ServiceName},
		{AttributeServiceNamespace, c.ServiceNamespace},
		{AttributeServiceVersion, c.ServiceVersion},
	} {
		if attribute.config.Enabled {
			names = append(names, attribute.name)
		}
	}
	return names
}
