// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"fmt"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// Counters overwrites c with all that was counted since Open. It may be called while another goroutine reads.
func (s *Source) Counters(c *event.Counters) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return ErrClosed
	}
	*c = event.Counters{Start: s.start, Reasons: s.reasons, DecodeErrors: s.decodeErrors.Load(),
		Recursion: make(map[string]uint64, len(s.programs))}
	var counts []handshakeCounts
	if err := s.shared[handshakeMapCounters].Lookup(uint32(0), &counts); err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	for i := range counts {
		addCounts(c, &counts[i])
	}
	for role := range event.RoleCount {
		for outcome := range event.OutcomeCount {
			var perCPU []handshakeHistogram
			key := uint32(role)*uint32(event.OutcomeCount) + uint32(outcome)
			if err := s.shared[handshakeMapHandshakes].Lookup(key, &perCPU); err != nil {
				return fmt.Errorf("read handshake histogram %d: %w", key, err)
			}
			addHistograms(&c.Handshakes[role][outcome], perCPU)
		}
	}
	var waits []handshakeHistogram
	if err := s.shared[handshakeMapAcceptWaits].Lookup(uint32(0), &waits); err != nil {
		return fmt.Errorf("read histogram of accept waits: %w", err)
	}
	addHistograms(&c.AcceptWaits, waits)
	for name, prog := range s.programs {
		info, err := prog.Stats()
		if err != nil {
			return fmt.Errorf("read statistics of program %s: %w", name, err)
		}
		c.Recursion[name] = info.RecursionMisses
	}
	return nil
}

func addHistograms(h *event.Histogram, perCPU []handshakeHistogram) {
	for i := range perCPU {
		h.Sum += perCPU[i].SumNs
		for b, n := range perCPU[i].Bucket {
			h.Buckets[b] += n
		}
	}
}

func addCounts(c *event.Counters, k *handshakeCounts) {
	for role := range c.Connections {
		for outcome := range c.Connections[role] {
			c.Connections[role][outcome] += k.Connections[role][outcome]
		}
	}
	for segment := range c.Retransmits {
		for kind := range c.Retransmits[segment] {
			c.Retransmits[segment][kind] += k.Retransmits[segment][kind]
		}
	}
	for state := range c.Congestion {
		c.Congestion[state] += k.Congestion[state]
	}
	for direction := range c.Resets {
		for reason := range c.Resets[direction] {
			c.Resets[direction][reason] += k.Resets[direction][reason]
		}
	}
	for kind := range c.Seen {
		c.Seen[kind] += k.Seen[kind]
		c.RingFull[kind] += k.RingFull[kind]
	}
	c.SocketsAdded += k.SocketsAdded
	c.SocketsRemoved += k.SocketsRemoved
	c.SocketsRefused += k.SocketsRefused
}
