// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

const (
	testWallOffset = 1_700_000_000_000_000_000
	testBootOffset = testWallOffset - 5_000
)

func testDecoder() *decoder {
	return &decoder{
		clock:   &clock{offset: testWallOffset, refreshAt: ^uint64(0), bootOffset: testBootOffset, jiffy: int64(4 * time.Millisecond)},
		reasons: &[event.MaxReasons]string{1: "no_socket", 11: "tcp_abort_on_close"},
	}
}

func bytesOf(r *handshakeEvent) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), recordSize)
}

func mapped(a string) [16]uint8 { return netip.MustParseAddr(a).As16() }

func testRecord() *handshakeEvent {
	r := &handshakeEvent{KtimeNs: 1_000_000, Cookie: 77, Netns: 4026531833, LocalPort: 41234, PeerPort: 443,
		LocalAddr: mapped("10.0.0.5"), PeerAddr: mapped("10.0.3.7"), Kind: uint8(event.KindConnectFailed), State: uint8(event.StateSynSent),
		OwnerSource: uint8(event.OwnerOpener), Flags: flagSnapshot | flagDuration, Outcome: uint8(event.OutcomeTimedOut),
		DurationNs: 60_000_000_000, Count: 6, Error: 110}
	r.Owner.Pid, r.Owner.Tid, r.Owner.Vpid, r.Owner.Vtid = 812, 813, 7, 8
	r.Owner.StartBoottimeNs, r.Owner.CgroupId = 9_000_000, 4711
	for i, c := range "nginx" {
		r.Owner.Comm[i], r.Owner.Executable[i] = int8(c), int8(c)
	}
	r.Snapshot.SrttUs, r.Snapshot.RttvarUs, r.Snapshot.RtoJiffies = 250, 40, 51
	r.Snapshot.LastSendAgeJiffies, r.Snapshot.LastReceiveAgeJiffies = never, 25
	r.Snapshot.ReceiveQueue, r.Snapshot.EstablishedAgeNs = 5, 1_500
	return r
}

func TestDecodeTellsWhatTheRecordTells(t *testing.T) {
	var got event.Event
	require.NoError(t, testDecoder().decode(bytesOf(testRecord()), &got))
	want := event.Event{
		Kind: event.KindConnectFailed, KTime: 1_000_000, Time: testWallOffset + 1_000_000, State: event.StateSynSent, Cookie: 77, NetNS: 4026531833,
		Flow: event.Flow{Local: netip.MustParseAddrPort("10.0.0.5:41234"), Peer: netip.MustParseAddrPort("10.0.3.7:443")},
		Owner: event.Owner{Source: event.OwnerOpener, PID: 812, TID: 813, VPID: 7, VTID: 8, StartTime: testBootOffset + 9_000_000, CgroupID: 4711,
			Comm: [16]byte{'n', 'g', 'i', 'n', 'x'}, Executable: [48]byte{'n', 'g', 'i', 'n', 'x'}},
		HasSnapshot: true,
		Snapshot: event.Snapshot{SRTT: 250 * time.Microsecond, RTTVar: 40 * time.Microsecond, RTO: 204 * time.Millisecond,
			LastSendAge: -1, LastReceiveAge: 100 * time.Millisecond, ReceiveQueue: 5, ConnectionAge: 1_500},
		Outcome: event.OutcomeTimedOut, Errno: 110, HasDuration: true, Duration: time.Minute, SynRetransmits: 6,
	}
	require.Empty(t, cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })))
}

func TestDecodeLeavesOutWhatIsNotKnown(t *testing.T) {
	r := testRecord()
	r.LocalAddr, r.OwnerSource, r.Flags = [16]uint8{}, 0, 0
	var got event.Event
	require.NoError(t, testDecoder().decode(bytesOf(r), &got))
	require.False(t, got.Flow.Local.Addr().IsValid())
	require.Equal(t, event.Owner{}, got.Owner, "an owner that is not claimed is not carried")
	require.False(t, got.HasSnapshot)
	require.False(t, got.HasDuration)

	r = testRecord()
	r.Owner.StartBoottimeNs, r.Snapshot.EstablishedAgeNs = 0, 0
	require.NoError(t, testDecoder().decode(bytesOf(r), &got))
	require.Zero(t, got.Owner.StartTime)
	require.Negative(t, got.Snapshot.ConnectionAge)
}

func TestDecodeNamesTheKernelsResetReason(t *testing.T) {
	r := testRecord()
	r.Kind, r.Reason = uint8(event.KindResetSent), 11
	var got event.Event
	require.NoError(t, testDecoder().decode(bytesOf(r), &got))
	require.Equal(t, "tcp_abort_on_close", got.Reason)
	r.Reason = 60_000
	require.NoError(t, testDecoder().decode(bytesOf(r), &got))
	require.Empty(t, got.Reason)
}

func TestDecodeRefusesWhatIsNoRecord(t *testing.T) {
	var e event.Event
	raw := bytesOf(testRecord())
	for name, bad := range map[string][]byte{"empty": nil, "short": raw[:recordSize-1], "long": append(append([]byte{}, raw...), 0)} {
		require.Error(t, testDecoder().decode(bad, &e), name)
	}
	for name, change := range map[string]func(*handshakeEvent){
		"kind 0":     func(r *handshakeEvent) { r.Kind = 0 },
		"kind":       func(r *handshakeEvent) { r.Kind = uint8(event.KindCount) },
		"state":      func(r *handshakeEvent) { r.State = uint8(event.StateCount) },
		"owner":      func(r *handshakeEvent) { r.OwnerSource = uint8(event.OwnerSourceCount) },
		"role":       func(r *handshakeEvent) { r.Role = uint8(event.RoleCount) },
		"outcome":    func(r *handshakeEvent) { r.Outcome = uint8(event.OutcomeCount) },
		"segment":    func(r *handshakeEvent) { r.Segment = uint8(event.SegmentTypeCount) },
		"retransmit": func(r *handshakeEvent) { r.Retransmit = uint8(event.RetransmitTypeCount) },
	} {
		r := testRecord()
		change(r)
		require.Error(t, testDecoder().decode(bytesOf(r), &e), name)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	d, raw := testDecoder(), bytesOf(testRecord())
	var e event.Event
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if d.decode(raw, &e) != nil {
			t.Fail()
		}
	}))
}

func FuzzDecodeGivesAnErrorOrAnEvent(f *testing.F) {
	f.Add(bytesOf(testRecord()))
	f.Add(make([]byte, recordSize))
	f.Add([]byte{})
	d := testDecoder()
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e event.Event
		if d.decode(raw, &e) != nil {
			return
		}
		if len(raw) != recordSize || e.Kind == event.KindUnknown || e.Kind >= event.KindCount || e.State >= event.StateCount ||
			e.Owner.Source >= event.OwnerSourceCount || e.Outcome >= event.OutcomeCount {
			t.Fatalf("accepted %+v", e)
		}
		if e.Owner.Source == event.OwnerNone && e.Owner != (event.Owner{}) {
			t.Fatalf("owner without a source: %+v", e.Owner)
		}
	})
}
