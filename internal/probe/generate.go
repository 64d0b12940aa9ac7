// SPDX-License-Identifier: Apache-2.0

package probe

// BPF2GO is bpf2go of internal/tools with the pinned compiler; see the Makefile. One object a hook family: a family that a kernel
// refuses takes no other down.
//
//go:generate sh -c "$BPF2GO -type event handshake ../../bpf/handshake.bpf.c"
//go:generate sh -c "$BPF2GO accept ../../bpf/accept.bpf.c"
//go:generate sh -c "$BPF2GO loss ../../bpf/loss.bpf.c"
//go:generate sh -c "$BPF2GO refused ../../bpf/refused.bpf.c"
//go:generate sh -c "$BPF2GO reset ../../bpf/reset.bpf.c"
//go:generate sh -c "$BPF2GO retransmit ../../bpf/retransmit.bpf.c"
//go:generate sh -c "$BPF2GO sockets ../../bpf/sockets.bpf.c"
//go:generate sh -c "$BPF2GO clock ../../bpf/clock.bpf.c"
