// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// Bits of handshakeEvent.Flags (enum event_flag in bpf/events.h).
const (
	flagSnapshot = 1 << iota
	flagDuration
	flagWait
)

// never is what the kernel side puts into an age that does not exist.
const never = ^uint32(0)

const recordSize = int(unsafe.Sizeof(handshakeEvent{}))

// decoder makes events of records. It holds what the conversion needs of the running kernel.
type decoder struct {
	clock   *clock
	reasons *[event.MaxReasons]string
}

// decode overwrites e with the event that raw, one record of the ring buffer, tells. It allocates nothing and keeps nothing of
// raw. A record of another size or with a number out of its enumeration is an error, and e is then not to be used.
func (d *decoder) decode(raw []byte, e *event.Event) error {
	if len(raw) != recordSize {
		return fmt.Errorf("record of %d bytes, want %d", len(raw), recordSize)
	}
	// Copied before use: raw has the size of r (checked above), a handshakeEvent has neither pointers nor bit patterns that are
	// invalid, and copying bytes asks no alignment of raw.
	var r handshakeEvent
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordSize), raw)

	if r.Kind == 0 || r.Kind >= uint8(event.KindCount) || r.OwnerSource >= uint8(event.OwnerSourceCount) ||
		r.Role >= uint8(event.RoleCount) || r.Outcome >= uint8(event.OutcomeCount) ||
		r.Segment >= uint8(event.SegmentTypeCount) || r.Retransmit >= uint8(event.RetransmitTypeCount) ||
		r.State >= uint8(event.StateCount) {
		return fmt.Errorf("record with a number out of range: kind %d, state %d, owner source %d, role %d, outcome %d, segment %d, retransmit %d",
			r.Kind, r.State, r.OwnerSource, r.Role, r.Outcome, r.Segment, r.Retransmit)
	}
	*e = event.Event{
		Kind:   event.Kind(r.Kind),
		Time:   d.clock.wall(r.KtimeNs),
		KTime:  r.KtimeNs,
		Flow:   event.Flow{Local: end(r.LocalAddr, r.LocalPort), Peer: end(r.PeerAddr, r.PeerPort)},
		State:  event.State(r.State),
		Cookie: r.Cookie,
		NetNS:  r.Netns,
	}
	if r.OwnerSource != uint8(event.OwnerNone) {
		o := &e.Owner
		o.Source = event.OwnerSource(r.OwnerSource)
		o.PID, o.TID, o.VPID, o.VTID = r.Owner.Pid, r.Owner.Tid, r.Owner.Vpid, r.Owner.Vtid
		o.StartTime = d.clock.started(r.Owner.StartBoottimeNs)
		o.CgroupID = r.Owner.CgroupId
		o.Comm = *(*[len(o.Comm)]byte)(unsafe.Pointer(&r.Owner.Comm)) // int8 and byte differ in name only
		o.Executable = *(*[len(o.Executable)]byte)(unsafe.Pointer(&r.Owner.Executable))
	}
	if r.Flags&flagSnapshot != 0 {
		e.HasSnapshot = true
		d.snapshot(&r, &e.Snapshot)
	}
	switch e.Kind {
	case event.KindConnectCompleted, event.KindConnectFailed:
		e.Role, e.Outcome, e.Errno, e.SynRetransmits = event.Role(r.Role), event.Outcome(r.Outcome), r.Error, r.Count
		if r.Flags&flagDuration != 0 {
			e.HasDuration, e.Duration = true, time.Duration(r.DurationNs)
		}
	case event.KindAcceptCompleted:
		e.Role, e.SynRetransmits = event.Role(r.Role), r.Count
		if r.Flags&flagDuration != 0 {
			e.HasDuration, e.Duration = true, time.Duration(r.DurationNs)
		}
		if r.Flags&flagWait != 0 {
			e.HasWait, e.Wait = true, time.Duration(r.WaitNs)
		}
	case event.KindSynRetransmitted:
		e.Role, e.Segment, e.Retransmit, e.Attempt = event.Role(r.Role), event.SegmentType(r.Segment), event.RetransmitType(r.Retransmit), r.Count
	case event.KindSegmentRetransmitted:
		e.Segment, e.Retransmit, e.Segments = event.SegmentType(r.Segment), event.RetransmitType(r.Retransmit), r.Count
	case event.KindResetSent:
		e.Reason = d.reasons[min(int(r.Reason), event.MaxReasons-1)]
	}
	return nil
}

func (d *decoder) snapshot(r *handshakeEvent, s *event.Snapshot) {
	const us = time.Microsecond
	k := &r.Snapshot
	*s = event.Snapshot{
		SRTT:              time.Duration(k.SrttUs) * us,
		RTTVar:            time.Duration(k.RttvarUs) * us,
		RTO:               d.ticks(k.RtoJiffies),
		Cwnd:              k.Cwnd,
		Ssthresh:          k.Ssthresh,
		RetransmitsTotal:  k.TotalRetrans,
		SegmentsLost:      k.Lost,
		SegmentsOut:       k.Outstanding,
		SegmentsDuplicate: k.DsackDups,
		SendWindow:        k.SndWnd,
		ReceiveWindow:     k.RcvWnd,
		SendQueue:         k.SendQueue,
		ReceiveQueue:      k.ReceiveQueue,
		LastSendAge:       d.age(k.LastSendAgeJiffies),
		LastReceiveAge:    d.age(k.LastReceiveAgeJiffies),
		ConnectionAge:     -1,
	}
	if k.EstablishedAgeNs != 0 {
		s.ConnectionAge = time.Duration(k.EstablishedAgeNs)
	}
}

func (d *decoder) ticks(n uint32) time.Duration { return time.Duration(int64(n) * d.clock.jiffy) }

// age is negative when it does not exist or the length of a tick is not known.
func (d *decoder) age(n uint32) time.Duration {
	if n == never || d.clock.jiffy == 0 {
		return -1
	}
	return d.ticks(n)
}

func end(addr [16]uint8, port uint16) netip.AddrPort {
	a := netip.AddrFrom16(addr)
	if addr == ([16]uint8{}) {
		a = netip.Addr{} // not known; no connection has it
	}
	return netip.AddrPortFrom(a.Unmap(), port)
}
