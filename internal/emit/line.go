// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"bytes"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// span is a part of line.text; empty: the record does not have it.
type span struct{ from, to int }

func (s span) of(text string) string { return text[s.from:s.to] }

// line writes a record's body and remembers where in it are the strings that are attributes too, so that one allocation holds all
// of a record's own strings.
type line struct {
	text        []byte // the body, and behind it the thread's name if the body has it quoted
	body        span
	thread      span
	local, peer span // addresses without brackets and port
	items       int  // written behind the colon
}

// maxThreadName is the kernel's TASK_COMM_LEN without the NUL; each byte may become a `?`, none becomes longer.
const maxThreadName = 15

// write makes the line of an event: "<comm>[pid/tid] <what> <local> → <peer>: <numbers>".
func (l *line) write(e *event.Event) {
	*l = line{text: l.text[:0]}
	quoted := l.subject(&e.Owner)
	l.text = append(l.text, ' ')
	l.text = append(l.text, what(e)...)
	l.text = append(l.text, ' ')
	l.local = l.end(e.Flow.Local)
	l.text = append(l.text, " → "...)
	l.peer = l.end(e.Flow.Peer)
	switch e.Kind {
	case event.KindConnectCompleted:
		l.connectCompleted(e)
	case event.KindConnectFailed:
		l.connectFailed(e)
	case event.KindAcceptCompleted:
		l.acceptCompleted(e)
	case event.KindSynRetransmitted:
		l.synRetransmitted(e)
	case event.KindResetSent:
		l.item()
		l.resetReason(e)
		l.resetState(e)
	case event.KindResetReceived:
		l.resetState(e)
	case event.KindLossEntered, event.KindRecoveryEntered:
		l.lossEntered(e)
	case event.KindSegmentRetransmitted:
		l.segmentRetransmitted(e)
	}
	l.body = span{0, len(l.text)}
	if quoted {
		l.text = enrich.AppendText(l.text, comm(&e.Owner), maxThreadName)
		l.thread = span{l.body.to, len(l.text)}
	}
}

func what(e *event.Event) string {
	switch e.Kind {
	case event.KindConnectCompleted:
		return "connected"
	case event.KindAcceptCompleted:
		return "accepted"
	case event.KindConnectFailed:
		return "connect failed"
	case event.KindSynRetransmitted:
		if e.Role == event.RoleServer {
			return "SYN-ACK sent again"
		}
		return "SYN sent again"
	case event.KindResetSent:
		return "reset sent"
	case event.KindLossEntered:
		return "loss entered"
	case event.KindRecoveryEntered:
		return "fast recovery entered"
	case event.KindResetReceived:
		return "reset received"
	case event.KindSegmentRetransmitted:
		if e.Segment == event.SegmentFIN {
			return "FIN sent again"
		}
		return "data sent again"
	}
	return ""
}

func comm(o *event.Owner) []byte {
	if end := bytes.IndexByte(o.Comm[:], 0); end >= 0 {
		return o.Comm[:end]
	}
	return o.Comm[:]
}

// subject writes the thread. A name is a stranger's: one that could be read as a part of the line is quoted.
func (l *line) subject(o *event.Owner) (quoted bool) {
	if o.Source == event.OwnerNone || o.PID == 0 {
		l.text = append(l.text, '-')
		return false
	}
	name := comm(o)
	switch {
	case len(name) == 0:
		l.text = append(l.text, '?')
	case bytes.ContainsFunc(name, isAmbiguous):
		quoted = true
		l.text = append(l.text, '"')
		from := len(l.text)
		l.text = enrich.AppendText(l.text, name, maxThreadName)
		for i, c := range l.text[from:] {
			if c == '"' {
				l.text[from+i] = '\''
			}
		}
		l.text = append(l.text, '"')
	default:
		l.text = enrich.AppendText(l.text, name, maxThreadName)
		l.thread = span{0, len(l.text)}
	}
	l.text = append(l.text, '[')
	l.text = strconv.AppendUint(l.text, uint64(o.PID), 10)
	l.text = append(l.text, '/')
	l.text = strconv.AppendUint(l.text, uint64(o.TID), 10)
	l.text = append(l.text, ']')
	return quoted
}

func isAmbiguous(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '[' || r == ']' }

// end writes one end of a connection and says where its address is.
func (l *line) end(end netip.AddrPort) (address span) {
	switch a := end.Addr(); {
	case !a.IsValid() || a.IsUnspecified():
		l.text = append(l.text, '?')
	case a.Is4():
		address.from = len(l.text)
		l.text = a.AppendTo(l.text)
		address.to = len(l.text)
	default:
		l.text = append(l.text, '[')
		address.from = len(l.text)
		l.text = a.AppendTo(l.text)
		address.to = len(l.text)
		l.text = append(l.text, ']')
	}
	if end.Port() != 0 {
		l.text = append(l.text, ':')
		l.text = strconv.AppendUint(l.text, uint64(end.Port()), 10)
	}
	return address
}

// item begins the next of the line's numbers.
func (l *line) item() {
	if l.items == 0 {
		l.text = append(l.text, ": "...)
	} else {
		l.text = append(l.text, ", "...)
	}
	l.items++
}

func (l *line) word(word string) {
	l.item()
	l.text = append(l.text, word...)
}

func (l *line) count(n uint32, one, many string) {
	l.item()
	l.text = strconv.AppendUint(l.text, uint64(n), 10)
	l.text = append(l.text, ' ')
	if n == 1 {
		many = one
	}
	l.text = append(l.text, many...)
}

func (l *line) duration(before string, d time.Duration, after string) {
	l.item()
	l.text = append(l.text, before...)
	l.text = appendDuration(l.text, d)
	l.text = append(l.text, after...)
}

func (l *line) connectCompleted(e *event.Event) {
	if e.HasDuration {
		l.duration("after ", e.Duration, "")
	}
	l.synRetries(e)
	if e.HasSnapshot && e.Snapshot.SRTT > 0 {
		l.duration("round trip ", e.Snapshot.SRTT, "")
	}
}

func (l *line) acceptCompleted(e *event.Event) {
	if e.HasWait {
		l.duration("waited ", e.Wait, " in the accept queue")
	}
	if e.HasDuration {
		l.duration("handshake ", e.Duration, "")
	}
	l.synRetries(e)
}

func (l *line) connectFailed(e *event.Event) {
	l.item()
	switch e.Outcome {
	case event.OutcomeRefused:
		l.text = append(l.text, "connection refused"...)
	case event.OutcomeTimedOut:
		l.text = append(l.text, "timed out"...)
	case event.OutcomeHostUnreachable:
		l.text = append(l.text, "host unreachable"...)
	case event.OutcomeNetworkUnreachable:
		l.text = append(l.text, "network unreachable"...)
	case event.OutcomeReset:
		l.text = append(l.text, "connection reset"...)
	case event.OutcomeAddressNotAvailable:
		l.text = append(l.text, "no source port left, nothing was sent"...)
		return
	case event.OutcomeAborted:
		l.text = append(l.text, "gave up"...)
	default:
		if e.Errno == 0 {
			l.text = append(l.text, "failed"...)
			break
		}
		l.text = append(l.text, syscall.Errno(e.Errno).Error()...)
		l.text = append(l.text, " (errno "...)
		l.text = strconv.AppendUint(l.text, uint64(e.Errno), 10)
		l.text = append(l.text, ')')
	}
	if e.HasDuration {
		l.text = append(l.text, " after "...)
		l.text = appendDuration(l.text, e.Duration)
	}
	l.synRetries(e)
}

func (l *line) synRetries(e *event.Event) {
	switch {
	case e.SynRetransmits == 0:
	case e.Role == event.RoleServer:
		l.count(e.SynRetransmits, "SYN-ACK retry", "SYN-ACK retries")
	default:
		l.count(e.SynRetransmits, "SYN retry", "SYN retries")
	}
}

func (l *line) synRetransmitted(e *event.Event) {
	l.word("attempt ")
	l.text = strconv.AppendUint(l.text, uint64(e.Attempt), 10)
	if e.HasSnapshot && e.Snapshot.RTO > 0 {
		l.duration("RTO ", e.Snapshot.RTO, "")
	}
}

func (l *line) segmentRetransmitted(e *event.Event) {
	l.count(e.Segments, "segment", "segments")
	switch e.Retransmit {
	case event.RetransmitFast:
		l.word("fast recovery")
	case event.RetransmitTimeout:
		l.word("timeout")
	case event.RetransmitTailLossProbe:
		l.word("tail-loss probe")
	}
	l.transmission(e)
}

func (l *line) lossEntered(e *event.Event) {
	l.transmission(e)
	if e.HasSnapshot {
		l.count(e.Snapshot.Cwnd, "segment allowed", "segments allowed")
	}
}

// transmission is how sending goes.
func (l *line) transmission(e *event.Event) {
	if !e.HasSnapshot {
		return
	}
	s := &e.Snapshot
	if s.RTO > 0 {
		l.duration("RTO ", s.RTO, "")
	}
	if s.SRTT > 0 {
		l.duration("round trip ", s.SRTT, "")
	}
	l.count(s.SegmentsLost, "lost", "lost")
	l.count(s.SegmentsOut, "outstanding", "outstanding")
	l.count(s.SendQueue, "byte to send", "bytes to send")
}

// resetReason writes the reason as the kernel names it, and in words where the name alone does not say it.
func (l *line) resetReason(e *event.Event) {
	if e.Reason == "" {
		l.text = append(l.text, "reason not known"...)
		return
	}
	l.text = append(l.text, e.Reason...)
	if words := resetWords(e.Reason); words != "" {
		l.text = append(l.text, " ("...)
		l.text = append(l.text, words...)
		l.text = append(l.text, ')')
	}
}

// resetWords explains the reasons of enum sk_rst_reason (include/net/rstreason.h).
func resetWords(reason string) string {
	switch reason {
	case "tcp_abort_on_close":
		return "closed with unread data"
	case "tcp_abort_on_data":
		return "data came after the close"
	case "tcp_abort_on_linger":
		return "closed without lingering"
	case "tcp_abort_on_memory":
		return "too many orphaned sockets or too little memory"
	case "tcp_disconnect_with_data":
		return "disconnected with unsent data"
	case "tcp_keepalive_timeout":
		return "keep-alive probes went unanswered"
	case "tcp_state":
		return "closed with a linger time of 0, or disconnected"
	case "tcp_timewait_socket":
		return "segment for a connection in TIME_WAIT"
	}
	return ""
}

func (l *line) resetState(e *event.Event) {
	if state := e.State.String(); state != "" {
		l.word("was ")
		l.text = append(l.text, state...)
	}
	if !e.HasSnapshot {
		return
	}
	s := &e.Snapshot
	l.count(s.ReceiveQueue, "byte unread", "bytes unread")
	if s.SendQueue > 0 {
		l.count(s.SendQueue, "byte to send", "bytes to send")
	}
	if s.LastSendAge >= 0 {
		l.duration("last sent ", s.LastSendAge, " ago")
	}
	if s.LastReceiveAge >= 0 {
		l.duration("last received ", s.LastReceiveAge, " ago")
	}
	if s.ConnectionAge >= 0 {
		l.duration("connected for ", s.ConnectionAge, "")
	}
}

// appendDuration writes a duration for people, in the unit that suits its size, with one decimal from 0.1 ms on.
func appendDuration(text []byte, d time.Duration) []byte {
	d = max(d, 0)
	unit, name := time.Millisecond, " ms"
	switch {
	case d < 100*time.Microsecond:
		text = strconv.AppendInt(text, int64(d/time.Microsecond), 10)
		return append(text, " µs"...)
	case d >= 48*time.Hour:
		unit, name = 24*time.Hour, " d"
	case d >= 2*time.Hour:
		unit, name = time.Hour, " h"
	case d >= 1000*time.Second:
		unit, name = time.Minute, " min"
	case d >= time.Second-50*time.Microsecond:
		unit, name = time.Second, " s"
	}
	tenths := int64((d + unit/20) / (unit / 10))
	text = strconv.AppendInt(text, tenths/10, 10)
	text = append(text, '.', byte('0'+tenths%10))
	return append(text, name...)
}
