// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// happened and observed are when the recorded events happened and were read, Unix nanoseconds.
const (
	happened = 1_772_355_907_123_456_789
	observed = happened + 5_000_000
)

func host() enrich.Host {
	return enrich.Host{Name: "node-7", ID: "0123456789abcdef0123456789abcdef"}
}

// processes tells of each process what its owner says, and of nginx all that can be told of one.
type processes struct{ *enrich.Cache }

func (p processes) Process(owner *event.Owner) *enrich.Process {
	process := p.Cache.Process(owner)
	if process == nil || process.Executable != "nginx" {
		return process
	}
	told := *process
	told.ContainerID, told.PodUID = containerID, podUID
	config := metadata.DefaultResourceAttributesConfig()
	for _, name := range config.SaidByProcess() {
		if name != metadata.AttributeK8SPodUID { // the kernel's word comes first
			told.Attributes = append(told.Attributes, enrich.Attribute{Name: name, Value: "said of " + name})
		}
	}
	return &told
}

const (
	containerID = "3f4bb4ac6d1c7b8e0f5a9c2d1e3b4a5968778695a4b3c2d1e0f1a2b3c4d5e6f7"
	podUID      = "8dbc5577-d0e2-4706-8787-57d52c03ddf2"
)

func newLogs(t testing.TB) *Logs {
	cache, err := enrich.NewCache(enrich.Settings{RootPath: t.TempDir(), Size: 100})
	require.NoError(t, err)
	processes := processes{cache}
	return NewLogs(LogsSettings{Version: "1.2.3", Host: host(), Processes: processes,
		ResourceAttributes: metadata.DefaultResourceAttributesConfig()})
}

func owner(source event.OwnerSource, pid, tid uint32, comm, executable string) event.Owner {
	o := event.Owner{Source: source, PID: pid, TID: tid, VPID: pid % 100, VTID: tid % 100, CgroupID: 77,
		StartTime: happened - int64(time.Hour)}
	copy(o.Comm[:15], comm)
	copy(o.Executable[:47], executable)
	return o
}

func flow(local, peer string) event.Flow {
	return event.Flow{Local: netip.MustParseAddrPort(local), Peer: netip.MustParseAddrPort(peer)}
}

func snapshot() event.Snapshot {
	return event.Snapshot{
		SRTT: 1_125 * time.Microsecond, RTTVar: 250 * time.Microsecond, RTO: 201 * time.Millisecond, Cwnd: 10, Ssthresh: 7,
		RetransmitsTotal: 3, SegmentsLost: 1, SegmentsOut: 4, SegmentsDuplicate: 2, SendWindow: 65_536, ReceiveWindow: 64_240,
		SendQueue: 5_792, ReceiveQueue: 214, LastSendAge: 2_004 * time.Millisecond, LastReceiveAge: 300 * time.Microsecond,
		ConnectionAge: 65 * time.Second,
	}
}

// recorded are events of every kind with all that they can say.
func recorded() []event.Event {
	nginx := owner(event.OwnerOpener, 812, 812, "nginx", "nginx")
	return []event.Event{
		{
			Kind: event.KindConnectCompleted, Time: happened, Flow: flow("[2001:db8::5]:41234", "[2001:db8::7]:443"),
			State: event.StateSynSent, Cookie: 4711, Owner: owner(event.OwnerCurrent, 1301, 1377, "Web Content", "firefox"),
			HasSnapshot: true, Snapshot: snapshot(), HasDuration: true, Duration: 1_004_200 * time.Microsecond, SynRetransmits: 1,
		},
		{
			Kind: event.KindConnectFailed, Time: happened + 1, Flow: flow("10.0.0.5:41234", "10.0.3.7:443"),
			State: event.StateSynSent, Cookie: 4712, Owner: nginx, HasSnapshot: true, Snapshot: snapshot(), Outcome: event.OutcomeRefused,
			Errno: 111, HasDuration: true, Duration: 114 * time.Microsecond,
		},
		{
			Kind: event.KindSynRetransmitted, Time: happened + 2, Flow: flow("10.0.0.5:41235", "10.0.3.7:443"),
			State: event.StateSynSent, Cookie: 4713, Owner: nginx, HasSnapshot: true, Snapshot: snapshot(), Attempt: 2,
		},
		{
			Kind: event.KindResetSent, Time: happened + 3, Flow: flow("127.0.0.1:8000", "127.0.0.1:41000"),
			State: event.StateEstablished, Cookie: 4714, Owner: owner(event.OwnerCurrent, 951, 951, "gunicorn", "python3.11"),
			HasSnapshot: true, Snapshot: snapshot(), Reason: "tcp_abort_on_close",
		},
		{
			Kind: event.KindResetReceived, Time: happened + 4, Flow: flow("127.0.0.1:41000", "127.0.0.1:8000"),
			State: event.StateEstablished, Cookie: 4715, Owner: nginx, HasSnapshot: true, Snapshot: snapshot(),
		},
		{
			Kind: event.KindSegmentRetransmitted, Time: happened + 5, Flow: flow("10.0.0.5:41236", "10.0.3.8:443"),
			State: event.StateEstablished, Cookie: 4716, Owner: nginx, HasSnapshot: true, Snapshot: snapshot(),
			Segment: event.SegmentData, Retransmit: event.RetransmitTimeout, Segments: 3,
		},
		{
			Kind: event.KindAcceptCompleted, Time: happened + 20, Flow: flow("10.0.0.5:443", "10.0.3.7:50124"), Role: event.RoleServer,
			State: event.StateEstablished, Cookie: 4717, Owner: owner(event.OwnerCurrent, 812, 812, "nginx", "nginx"),
			HasSnapshot: true, Snapshot: snapshot(), HasDuration: true, Duration: 2_054 * time.Millisecond, HasWait: true,
			Wait: 312_500 * time.Microsecond, SynRetransmits: 1,
		},
		{
			Kind: event.KindLossEntered, Time: happened + 21, Flow: flow("10.0.0.5:41236", "10.0.3.8:443"), State: event.StateEstablished,
			Cookie: 4718, Owner: nginx, HasSnapshot: true, Snapshot: snapshot(),
		},
		{
			Kind: event.KindRecoveryEntered, Time: happened + 22, Flow: flow("10.0.0.5:41236", "10.0.3.8:443"), State: event.StateCloseWait,
			Cookie: 4718, Owner: nginx, HasSnapshot: true, Snapshot: snapshot(),
		},
		// Little is known of these.
		{
			Kind: event.KindConnectFailed, Time: happened + 6, Owner: nginx, Outcome: event.OutcomeNetworkUnreachable, Errno: 101,
			Flow: event.Flow{Local: netip.MustParseAddrPort("0.0.0.0:0"), Peer: netip.MustParseAddrPort("192.0.2.1:80")},
		},
		{
			Kind: event.KindResetSent, Time: happened + 7, Flow: flow("10.0.0.5:22", "198.51.100.9:5511"), Reason: "no_socket",
			ReasonIsDerived: true,
		},
		{
			Kind: event.KindResetSent, Time: happened + 8, Flow: event.Flow{}, HasSnapshot: true,
			Snapshot: event.Snapshot{Ssthresh: 0x7fffffff, LastSendAge: -1, LastReceiveAge: -1, ConnectionAge: -1},
		},
		{
			Kind: event.KindSynRetransmitted, Time: happened + 9, Flow: flow("10.0.0.5:443", "10.0.3.7:50123"),
			State: event.StateNewSynRecv, Role: event.RoleServer, Attempt: 1,
		},
		{
			Kind: event.KindSegmentRetransmitted, Time: happened + 10, Flow: flow("10.0.0.5:41236", "10.0.3.8:443"),
			State: event.StateFinWait1, Segment: event.SegmentFIN, Segments: 1,
		},
		// These become no record.
		{Kind: event.KindSocketClosed, Time: happened + 11},
		{Kind: event.KindUnknown, Time: happened + 12},
		{Kind: event.KindCount, Time: happened + 13},
	}
}

func counters() *event.Counters {
	c := &event.Counters{Start: time.Unix(1_772_350_000, 0)}
	c.Congestion = [event.CongestionStateCount]uint64{event.CongestionRecovery: 4, event.CongestionLoss: 2}
	c.AcceptWaits.Buckets[9], c.AcceptWaits.Sum = 3, 3_000_000
	completed := &c.Handshakes[event.RoleClient][event.OutcomeOK]
	// 1.5 ms, 1.5 ms, 40 ms and one of eleven days by the exponential bounds.
	completed.Buckets[82] = 2
	completed.Buckets[101] = 1
	completed.Buckets[event.MaxBounds] = 1
	completed.Sum = uint64(43*time.Millisecond + 11*24*time.Hour)
	refused := &c.Handshakes[event.RoleClient][event.OutcomeRefused]
	refused.Buckets[0] = 1
	refused.Sum = 1
	c.Connections[event.RoleClient][event.OutcomeOK] = 5
	c.Connections[event.RoleClient][event.OutcomeRefused] = 1
	c.Connections[event.RoleServer][event.OutcomeTimedOut] = 9
	c.Retransmits[event.SegmentSYN][event.RetransmitUnknown] = 2
	c.Retransmits[event.SegmentSYN][event.RetransmitTimeout] = 3
	c.Retransmits[event.SegmentSYNACK][event.RetransmitTimeout] = 1
	c.Retransmits[event.SegmentData][event.RetransmitUnknown] = 4
	c.Retransmits[event.SegmentData][event.RetransmitTailLossProbe] = 6
	c.Retransmits[event.SegmentFIN][event.RetransmitFast] = 7
	c.Reasons[3], c.Reasons[12] = "no_socket", "tcp_abort_on_close"
	c.Resets[event.DirectionTransmit][0] = 1
	c.Resets[event.DirectionTransmit][3] = 20
	c.Resets[event.DirectionTransmit][12] = 300
	c.Resets[event.DirectionTransmit][event.MaxReasons-1] = 4000
	c.Resets[event.DirectionReceive][0] = 50
	return c
}
