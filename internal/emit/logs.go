// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// ssthreshInfinite is the kernel's TCP_INFINITE_SSTHRESH: the threshold was never set.
const ssthreshInfinite = 0x7fffffff

// Processes finds what is to be told of an event's process; nil if the event has none. enrich.Cache does.
type Processes interface {
	Process(owner *event.Owner) *enrich.Process
	// Complete adds to owner what its record could not carry.
	Complete(owner *event.Owner)
}

// LogsSettings are what records say beside their event.
type LogsSettings struct {
	Version            string // of the instrumentation scope
	Host               enrich.Host
	Processes          Processes
	ResourceAttributes metadata.ResourceAttributesConfig
}

// Logs collects records until they are taken. It is for one goroutine.
type Logs struct {
	settings   LogsSettings
	waiting    plog.Logs
	records    int
	groups     map[enrich.ProcessKey]plog.LogRecordSlice // of waiting, one per process; the zero key: no owner
	last       enrich.ProcessKey
	lastIn     plog.LogRecordSlice // groups[last], while there are groups
	line       line
	attributes attributes
}

// NewLogs makes an empty Logs.
func NewLogs(settings LogsSettings) *Logs {
	return &Logs{settings: settings, waiting: plog.NewLogs(), groups: map[enrich.ProcessKey]plog.LogRecordSlice{}}
}

// Len is the number of records that wait to be taken.
func (l *Logs) Len() int { return l.records }

// Take hands over the records and starts anew.
func (l *Logs) Take() plog.Logs {
	taken := l.waiting
	l.waiting = plog.NewLogs()
	l.records = 0
	clear(l.groups)
	return taken
}

// Append adds the record of an event; a kind that becomes no record adds none. observed is when the event was read, in Unix
// nanoseconds. The event is not kept.
func (l *Logs) Append(e *event.Event, observed int64) {
	if e.Kind >= event.KindCount || metadata.Events[e.Kind].Name == "" {
		return
	}
	l.line.write(e)
	// One string holds all of the record's own strings.
	text := string(l.line.text)
	record := l.group(&e.Owner).AppendEmpty()
	l.records++
	record.SetEventName(metadata.Events[e.Kind].Name)
	record.SetSeverityNumber(plog.SeverityNumber(metadata.Events[e.Kind].Severity))
	record.SetTimestamp(pcommon.Timestamp(e.Time))
	record.SetObservedTimestamp(pcommon.Timestamp(observed))
	record.Body().SetStr(l.line.body.of(text))
	l.attributes.reset()
	l.common(e, text)
	l.attributes.kind(e)
	if e.HasSnapshot {
		l.attributes.snapshot(&e.Snapshot)
	}
	l.attributes.pour(record.Attributes())
}

// group is where the records of an event's process go.
func (l *Logs) group(owner *event.Owner) plog.LogRecordSlice {
	l.settings.Processes.Complete(owner)
	key := enrich.KeyOf(owner)
	if l.records > 0 && key == l.last {
		return l.lastIn
	}
	in, ok := l.groups[key]
	if !ok {
		resource := l.waiting.ResourceLogs().AppendEmpty()
		resource.SetSchemaUrl(metadata.SchemaURL)
		fillHost(resource.Resource().Attributes(), l.settings.Host, &l.settings.ResourceAttributes)
		if process := l.settings.Processes.Process(owner); process != nil {
			fillProcess(resource.Resource().Attributes(), process, &l.settings.ResourceAttributes)
		}
		scope := resource.ScopeLogs().AppendEmpty()
		scope.SetSchemaUrl(metadata.SchemaURL)
		scope.Scope().SetName(metadata.ScopeName)
		scope.Scope().SetVersion(l.settings.Version)
		in = scope.LogRecords()
		l.groups[key] = in
	}
	l.last, l.lastIn = key, in
	return in
}

// common adds the attributes that records of all kinds have.
func (l *Logs) common(e *event.Event, text string) {
	a := &l.attributes
	a.putString(fieldTransport, metadata.NetworkTransportTCP)
	a.putString(fieldNetworkType, networkType(e.Flow))
	a.putString(fieldLocalAddress, l.line.local.of(text))
	a.putKnown(fieldLocalPort, int64(e.Flow.Local.Port()))
	a.putString(fieldPeerAddress, l.line.peer.of(text))
	a.putKnown(fieldPeerPort, int64(e.Flow.Peer.Port()))
	a.putString(fieldState, e.State.String())
	a.putKnown(fieldCookie, int64(e.Cookie))
	if e.Owner.Source == event.OwnerNone || e.Owner.PID == 0 {
		a.putString(fieldOwner, event.OwnerNone.String())
		return
	}
	a.putString(fieldOwner, e.Owner.Source.String())
	a.putKnown(fieldThreadID, int64(e.Owner.TID))
	a.putKnown(fieldThreadVTID, int64(e.Owner.VTID))
	a.putString(fieldThreadName, l.line.thread.of(text))
}

func networkType(flow event.Flow) string {
	a := flow.Peer.Addr()
	if !a.IsValid() {
		a = flow.Local.Addr()
	}
	switch {
	case a.Is4():
		return metadata.NetworkTypeIPv4
	case a.Is6():
		return metadata.NetworkTypeIPv6
	}
	return ""
}

// kind adds the attributes that only some kinds have.
func (a *attributes) kind(e *event.Event) {
	switch e.Kind {
	case event.KindConnectCompleted, event.KindConnectFailed, event.KindAcceptCompleted:
		a.putString(fieldRole, e.Role.String())
		if e.HasDuration {
			a.putDuration(fieldHandshakeDuration, e.Duration)
		}
		if e.HasWait {
			a.putDuration(fieldAcceptWait, e.Wait)
		}
		a.putInt(fieldSynRetransmits, int64(e.SynRetransmits))
		if e.Kind == event.KindConnectFailed {
			a.putString(fieldErrorType, e.Outcome.String())
			a.putKnown(fieldErrno, int64(e.Errno))
		}
	case event.KindSynRetransmitted:
		a.putString(fieldRole, e.Role.String())
		a.putInt(fieldRetransmitAttempt, int64(e.Attempt))
	case event.KindResetSent:
		if e.Reason == "" {
			return
		}
		a.putString(fieldResetReason, e.Reason)
		source := metadata.ReasonSourceKernel
		if e.ReasonIsDerived {
			source = metadata.ReasonSourceDerived
		}
		a.putString(fieldResetReasonSource, source)
	case event.KindSegmentRetransmitted:
		a.putInt(fieldRetransmitCount, int64(e.Segments))
		a.putString(fieldRetransmitType, e.Retransmit.String())
	}
}

func (a *attributes) snapshot(s *event.Snapshot) {
	if s.SRTT > 0 {
		a.putDuration(fieldSRTT, s.SRTT)
		a.putDuration(fieldRTTVar, s.RTTVar)
	}
	if s.RTO > 0 {
		a.putDuration(fieldRTO, s.RTO)
	}
	a.putInt(fieldCwnd, int64(s.Cwnd))
	if s.Ssthresh != ssthreshInfinite {
		a.putInt(fieldSsthresh, int64(s.Ssthresh))
	}
	a.putInt(fieldRetransmitsTotal, int64(s.RetransmitsTotal))
	a.putInt(fieldSegmentsLost, int64(s.SegmentsLost))
	a.putInt(fieldSegmentsOutstanding, int64(s.SegmentsOut))
	a.putInt(fieldSegmentsDuplicate, int64(s.SegmentsDuplicate))
	a.putInt(fieldSendWindow, int64(s.SendWindow))
	a.putInt(fieldReceiveWindow, int64(s.ReceiveWindow))
	a.putInt(fieldSendQueueSize, int64(s.SendQueue))
	a.putInt(fieldReceiveQueueSize, int64(s.ReceiveQueue))
	a.putDuration(fieldLastSendAge, s.LastSendAge)
	a.putDuration(fieldLastReceiveAge, s.LastReceiveAge)
	a.putDuration(fieldConnectionAge, s.ConnectionAge)
}
