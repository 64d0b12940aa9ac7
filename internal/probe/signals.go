// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import "github.com/cilium/ebpf"

// family is one signal. Its parts load and attach independently of each other and of other families.
type family struct {
	name    string
	aid     bool // it tells nothing by itself
	enabled func(Settings) bool
	parts   []part
}

// part is what one kind of hook contributes to a signal.
type part struct {
	name       string
	load       func() (*ebpf.CollectionSpec, error) // the BPF object
	essential  bool                                 // without it the signal is off
	candidates []candidate                          // in order; the first that loads and attaches is used
}

// candidate is one way to get a part: programs that only make sense together, in the order in which they are attached.
type candidate struct {
	programs []string
	hook     string
}

// families is the table of signals and hooks: what is loaded, in which order hooks are tried, and what is lost without them.
// docs/hooks.md describes it and is held to it by a test.
var families = []family{
	{
		name:    "handshake",
		enabled: func(Settings) bool { return true }, // metrics count all handshakes, and the other signals get their owners here
		parts: []part{
			{name: "connect", load: loadHandshake, essential: true, candidates: []candidate{{
				programs: []string{handshakeProgSocketDestroy, handshakeProgStateInSoftirq, handshakeProgStateInCall},
				hook:     "tp_btf/inet_sock_set_state+tcp_destroy_sock",
			}}},
			{name: "refused locally", load: loadRefused, candidates: []candidate{{
				programs: []string{refusedProgConnectExit},
				hook:     "tracepoint/sys_exit_connect",
			}}},
		},
	},
	{
		name:    "accept",
		enabled: func(Settings) bool { return true }, // metrics count all, and inbound connections get their owners here
		parts: []part{
			{name: "accept", load: loadAccept, essential: true, candidates: []candidate{{
				programs: []string{acceptProgAcceptExit, acceptProgAccept4Exit},
				hook:     "tracepoint/sys_exit_accept+sys_exit_accept4",
			}}},
		},
	},
	{
		name:    "reset",
		enabled: func(s Settings) bool { return s.ResetEnabled },
		parts: []part{
			{name: "sent", load: loadReset, essential: true, candidates: []candidate{
				{programs: []string{resetProgResetByKernel, resetProgResetByThread}, hook: "tp_btf/tcp_send_reset"},
				{programs: []string{resetProgResetByKernelNoReason, resetProgResetByThreadNoReason},
					hook: "tp_btf/tcp_send_reset (no reason)"},
			}},
			{name: "received", load: loadReset, candidates: []candidate{
				{programs: []string{resetProgResetReceivedInSoftirq, resetProgResetReceivedInCall}, hook: "tp_btf/tcp_receive_reset"},
			}},
		},
	},
	{
		name:    "retransmit",
		enabled: func(s Settings) bool { return s.RetransmitEnabled },
		parts: []part{
			{name: "segment", load: loadRetransmit, essential: true, candidates: []candidate{
				{programs: []string{retransmitProgRetransmitInSoftirq, retransmitProgRetransmitInCall},
					hook: "tp_btf/tcp_retransmit_skb"},
				{programs: []string{retransmitProgRetransmitInSoftirqSent, retransmitProgRetransmitInCallSent},
					hook: "tp_btf/tcp_retransmit_skb (sent only)"},
			}},
			{name: "SYN-ACK", load: loadRetransmit, candidates: []candidate{
				{programs: []string{retransmitProgSynackRetransmit}, hook: "tp_btf/tcp_retransmit_synack"},
			}},
		},
	},
	{
		name:    "loss",
		enabled: func(s Settings) bool { return s.LossEnabled },
		parts: []part{
			{name: "congestion state", load: loadLoss, essential: true, candidates: []candidate{{
				programs: []string{lossProgCongestionInSoftirq, lossProgCongestionInCall},
				hook:     "tp_btf/tcp_cong_state_set",
			}}},
		},
	},
	{
		name:    "scan",
		aid:     true,
		enabled: func(Settings) bool { return true }, // after all others, so that no connection falls between
		parts: []part{
			{name: "sockets", load: loadSockets, essential: true, candidates: []candidate{{
				programs: []string{socketsProgScanSockets},
				hook:     "iter/task_file",
			}}},
		},
	},
}
