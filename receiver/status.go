// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.uber.org/zap"

	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// unavailable is the value of a signal's status attribute when no hook could be used.
const unavailable = "unavailable"

// statusFan reports the status of one instance to the host of every pipeline that it serves: a host knows its own alone. It
// reports changes only, and nothing once closed.
type statusFan struct {
	mu     sync.Mutex
	hosts  []component.Host
	last   *componentstatus.Event
	closed bool
}

// join adds a pipeline's host and brings it up to date.
func (s *statusFan) join(host component.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = append(s.hosts, host)
	if s.last != nil && !s.closed {
		componentstatus.ReportStatus(host, s.last)
	}
}

func (s *statusFan) report(ev *componentstatus.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.last != nil && sameStatus(s.last, ev) {
		return
	}
	s.last = ev
	for _, host := range s.hosts {
		componentstatus.ReportStatus(host, ev)
	}
}

func (s *statusFan) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func sameStatus(a, b *componentstatus.Event) bool {
	return a.Status() == b.Status() && fmt.Sprint(a.Err()) == fmt.Sprint(b.Err()) && a.Attributes().Equal(b.Attributes())
}

// signalAttributes are one attribute a signal: the hooks in use.
func signalAttributes(signals []probe.Signal) pcommon.Map {
	attributes := pcommon.NewMap()
	for _, s := range signals {
		if s.Hook == "" {
			attributes.PutStr(s.Name, unavailable)
			continue
		}
		attributes.PutStr(s.Name, s.Hook)
	}
	return attributes
}

// signalFields are the refusals of each signal that is off or not complete, for the one line that the log gets about them.
func signalFields(signals []probe.Signal) []zap.Field {
	var fields []zap.Field
	for _, s := range signals {
		if s.Hook == "" || s.Degraded {
			fields = append(fields, zap.Strings(s.Name, s.Refusals))
		}
	}
	return fields
}

// signalsOff is an error that names each signal without a working hook and why each candidate was refused; nil if there is none.
// none says that no signal has one.
func signalsOff(signals []probe.Signal) (none bool, err error) {
	var off []error
	for _, s := range signals {
		if s.Hook == "" {
			off = append(off, fmt.Errorf("signal %s has no working hook: %s", s.Name, strings.Join(s.Refusals, "; ")))
		}
	}
	return len(off) == len(signals) && len(off) > 0, errors.Join(off...)
}

// hookFields are the hooks in use, by signal.
func hookFields(signals []probe.Signal) []zap.Field {
	fields := make([]zap.Field, 0, len(signals))
	for _, s := range signals {
		if s.Hook != "" {
			fields = append(fields, zap.String(s.Name, s.Hook))
		}
	}
	return fields
}
