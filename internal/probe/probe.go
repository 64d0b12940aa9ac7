// SPDX-License-Identifier: Apache-2.0

// Package probe turns kernel events into event.Event: it loads and attaches the BPF programs of the table in signals.go, reads
// and decodes their records and counters, and converts the kernel's clocks. It is the only user of cilium/ebpf.
package probe

import (
	"errors"
	"time"
)

// ErrClosed is returned by Source.Read after Close.
var ErrClosed = errors.New("event source is closed")

// Report says which handshakes become records. Metrics count all.
type Report uint8

// The reports.
const (
	ReportNone   Report = iota // none
	ReportFailed               // failed ones
	ReportSlow                 // those that took at least the threshold, failed ones, and ones whose SYN was sent again
	ReportAll                  // all
)

// Settings says what to trace.
type Settings struct {
	HandshakeReport        Report
	HandshakeSlowThreshold time.Duration
	AcceptReport           Report        // ReportFailed: none; an accept does not fail
	AcceptSlowThreshold    time.Duration // of the wait in the accept queue alone
	ResetEnabled           bool
	ResetNoSocket          bool // answers to strays become records too
	RetransmitEnabled      bool
	LossEnabled            bool
	HistogramBounds        []uint64 // inclusive upper bounds in nanoseconds, ascending, at most event.MaxBounds
	RingBufferSize         int      // bytes; rounded up to a power of two, at least a page
	ExcludeSelf            bool     // this process's own connections are neither told nor counted
	CountOnly              bool     // nobody wants records: count only
	BTFPath                string   // BTF of a kernel that does not carry its own; empty: /sys/kernel/btf/vmlinux
}

// Signal is what Open could do for one signal.
type Signal struct {
	Name     string   // handshake, reset, …
	Hook     string   // the hooks in use, for people; empty: the signal is off
	Degraded bool     // a part of it is off; Refusals says which
	Refusals []string // why each candidate tried before Hook was refused, or all of them
}
