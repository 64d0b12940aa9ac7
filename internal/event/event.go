// SPDX-License-Identifier: Apache-2.0

// Package event is the vocabulary of the receiver: what happened to a TCP connection, to which connection, and to whom it
// belongs. It knows neither the kernel's layouts nor OpenTelemetry's; the other packages translate.
package event

import (
	"net/netip"
	"time"
)

// Kind says what happened.
type Kind uint8

// The kinds of events. The numbers are those of enum event_kind in bpf/events.h.
const (
	KindUnknown              Kind = iota
	KindConnectCompleted          // an outbound handshake is done
	KindConnectFailed             // an outbound handshake failed, or was refused before anything was sent
	KindSynRetransmitted          // a SYN or a SYN-ACK was sent again
	KindResetSent                 // this host sent a RST
	KindResetReceived             // a connection of this host was reset by its peer
	KindSegmentRetransmitted      // data or a FIN was sent again
	KindSocketClosed              // a socket that has retransmitted is gone: ends its folding, becomes no record
	KindAcceptCompleted           // an inbound connection was accepted
	KindLossEntered               // the retransmission timer ran out: loss state
	KindRecoveryEntered           // fast recovery
	KindCount
)

var kindNames = [KindCount]string{"unknown", "connect_completed", "connect_failed", "syn_retransmitted", "reset_sent",
	"reset_received", "segment_retransmitted", "socket_closed", "accept_completed", "loss_entered", "recovery_entered"}

// String is the kind's name in the receiver's own telemetry.
func (k Kind) String() string {
	if k >= KindCount {
		return kindNames[KindUnknown]
	}
	return kindNames[k]
}

// Role is this host's part in a handshake.
type Role uint8

// The roles. The numbers are those of enum role in bpf/events.h.
const (
	RoleClient Role = iota // sent the SYN
	RoleServer             // answered it
	RoleCount
)

// String is the value of ebpfnet.tcp.handshake.role.
func (r Role) String() string {
	if r == RoleServer {
		return "server"
	}
	return "client"
}

// Outcome is how a handshake ended.
type Outcome uint8

// The outcomes. The numbers are those of enum outcome in bpf/events.h.
const (
	OutcomeOK                  Outcome = iota // established
	OutcomeRefused                            // the peer answered the SYN with a RST
	OutcomeTimedOut                           // all SYNs went unanswered
	OutcomeHostUnreachable                    // an ICMP error, or the local routing table
	OutcomeNetworkUnreachable                 // an ICMP error, or the local routing table
	OutcomeReset                              // a RST during a simultaneous open
	OutcomeAddressNotAvailable                // no source port was left: nothing was sent
	OutcomeAborted                            // the application gave up waiting
	OutcomeOther                              // any other errno
	OutcomeCount
)

var outcomeNames = [OutcomeCount]string{"", "connection_refused", "timed_out", "host_unreachable", "network_unreachable",
	"connection_reset", "address_not_available", "aborted", "_OTHER"}

// String is the value of error.type; empty for OutcomeOK.
func (o Outcome) String() string {
	if o >= OutcomeCount {
		return outcomeNames[OutcomeOther]
	}
	return outcomeNames[o]
}

// SegmentType is what a retransmitted segment carried.
type SegmentType uint8

// The segment types. The numbers are those of enum segment_type in bpf/events.h.
const (
	SegmentSYN SegmentType = iota
	SegmentSYNACK
	SegmentData
	SegmentFIN
	SegmentTypeCount
)

var segmentNames = [SegmentTypeCount]string{"syn", "synack", "data", "fin"}

// String is the value of ebpfnet.tcp.segment.type.
func (s SegmentType) String() string {
	if s >= SegmentTypeCount {
		return ""
	}
	return segmentNames[s]
}

// RetransmitType is what made the kernel send a segment again.
type RetransmitType uint8

// The retransmit types. The numbers are those of enum retransmit_type in bpf/events.h.
const (
	RetransmitUnknown       RetransmitType = iota // none of the below: the attribute is absent
	RetransmitFast                                // fast recovery
	RetransmitTimeout                             // the retransmission timer
	RetransmitTailLossProbe                       // a tail-loss probe that sent old data
	RetransmitTypeCount
)

var retransmitNames = [RetransmitTypeCount]string{"", "fast", "timeout", "tail_loss_probe"}

// String is the value of ebpfnet.tcp.retransmit.type; empty when unknown.
func (r RetransmitType) String() string {
	if r >= RetransmitTypeCount {
		return ""
	}
	return retransmitNames[r]
}

// CongestionState is the state of a connection's congestion control, in the kernel's numbering (enum tcp_ca_state).
type CongestionState uint8

// The congestion states.
const (
	CongestionOpen CongestionState = iota
	CongestionDisorder
	CongestionCWR // congestion window reduced
	CongestionRecovery
	CongestionLoss
	CongestionStateCount
)

var congestionNames = [CongestionStateCount]string{"open", "disorder", "cwr", "recovery", "loss"}

// String is the value of ebpfnet.tcp.congestion.state.
func (s CongestionState) String() string {
	if s >= CongestionStateCount {
		return ""
	}
	return congestionNames[s]
}

// Direction is the way a RST went.
type Direction uint8

// The directions. The numbers are those of enum direction in bpf/events.h.
const (
	DirectionTransmit Direction = iota
	DirectionReceive
	DirectionCount
)

// String is the value of network.io.direction.
func (d Direction) String() string {
	if d == DirectionReceive {
		return "receive"
	}
	return "transmit"
}

// OwnerSource says how an event's process and thread are known.
type OwnerSource uint8

// The sources of ownership. The numbers are those of enum owner_source in bpf/events.h.
const (
	OwnerNone    OwnerSource = iota // not known, or the kernel's own socket
	OwnerCurrent                    // the thread that did it
	OwnerOpener                     // the thread that connected or accepted the socket
	OwnerScan                       // the process that had the socket when the collector started
	OwnerSourceCount
)

var ownerNames = [OwnerSourceCount]string{"none", "current", "opener", "scan"}

// String is the value of ebpfnet.owner.
func (o OwnerSource) String() string {
	if o >= OwnerSourceCount {
		return ownerNames[OwnerNone]
	}
	return ownerNames[o]
}

// State is a TCP state in the kernel's numbering (include/net/tcp_states.h).
type State uint8

// The TCP states. NewSynRecv is the kernel's request socket: SYN received, no full socket yet.
const (
	StateUnknown State = iota
	StateEstablished
	StateSynSent
	StateSynRecv
	StateFinWait1
	StateFinWait2
	StateTimeWait
	StateClose
	StateCloseWait
	StateLastAck
	StateListen
	StateClosing
	StateNewSynRecv
	StateCount
)

var stateNames = [StateCount]string{"", "established", "syn_sent", "syn_received", "fin_wait_1", "fin_wait_2", "time_wait",
	"closed", "close_wait", "last_ack", "listen", "closing", "syn_received"}

// String is the value of network.connection.state in the OpenTelemetry registry; empty when unknown.
func (s State) String() string {
	if s >= StateCount {
		return ""
	}
	return stateNames[s]
}

// Owner is the process and thread an event belongs to. The names are bytes of a stranger, as the kernel had them.
type Owner struct {
	Source     OwnerSource
	PID        uint32   // thread group id in the host's pid namespace
	TID        uint32   // thread id in the host's pid namespace
	VPID       uint32   // thread group id in the process's innermost pid namespace
	VTID       uint32   // thread id in the thread's innermost pid namespace
	StartTime  int64    // when the process started, Unix nanoseconds; by an offset frozen at start, so it never changes; 0: not known
	CgroupID   uint64   // inode number of the cgroup
	Comm       [16]byte // thread name, NUL-terminated unless 16 bytes long
	Executable [48]byte // file name of the executable without its directory, NUL-terminated; cut after 47 bytes
}

// Flow is a connection's two ends as this host sees them. An end that is not known is the zero AddrPort, or has port 0.
// IPv4-mapped addresses are unmapped.
type Flow struct {
	Local, Peer netip.AddrPort
}

// Snapshot is the state of a full TCP socket when the event happened. Sizes are bytes, window and segment counts as in struct
// tcp_sock.
type Snapshot struct {
	SRTT              time.Duration // smoothed round-trip time; 0: none measured yet
	RTTVar            time.Duration
	RTO               time.Duration
	Cwnd              uint32 // segments
	Ssthresh          uint32 // segments; 0x7fffffff: never set
	RetransmitsTotal  uint32 // segments sent again since the connection began
	SegmentsLost      uint32 // segments thought lost now
	SegmentsOut       uint32 // segments outstanding
	SegmentsDuplicate uint32 // segments that the peer reported as duplicates (DSACK)
	SendWindow        uint32
	ReceiveWindow     uint32
	SendQueue         uint32        // unacknowledged and unsent
	ReceiveQueue      uint32        // unread
	LastSendAge       time.Duration // since data was last sent; negative: never, or not known
	LastReceiveAge    time.Duration // since data was last received; negative: never, or not known
	ConnectionAge     time.Duration // since the handshake was done; negative: not known
}

// Event is one happening. Which of the fields after Snapshot count depends on Kind.
type Event struct {
	Kind        Kind
	Time        int64  // when it happened, Unix nanoseconds
	KTime       uint64 // the same in nanoseconds of CLOCK_MONOTONIC
	Flow        Flow
	State       State // before the event
	Cookie      uint64
	NetNS       uint32 // inode number of the network namespace
	Owner       Owner
	HasSnapshot bool
	Snapshot    Snapshot

	Role            Role           // connect, SYN
	Outcome         Outcome        // connect
	Errno           uint16         // connect failed: the kernel's errno; 0: none
	HasDuration     bool           // connect, accept: the duration is known
	Duration        time.Duration  // connect: SYN to outcome; accept: first SYN-ACK to final ACK
	HasWait         bool           // accept: the wait is known
	Wait            time.Duration  // accept: in the accept queue
	SynRetransmits  uint32         // connect: SYNs sent again; accept: SYN-ACKs
	Attempt         uint32         // SYN: the how-manieth retransmit this is, from 1
	Segment         SegmentType    // segment retransmitted
	Retransmit      RetransmitType // segment retransmitted
	Segments        uint32         // segment retransmitted: how many in this record
	Reason          string         // reset sent: the kernel's reason in lower case; empty: the kernel has none
	ReasonIsDerived bool           // reset sent: Reason was not told by the kernel but concluded
}
