/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What differs between kernels: the change, its flavours, one accessor. */
#ifndef EBPFNET_COMPAT_H
#define EBPFNET_COMPAT_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/*
 * TCP_SKB_CB(skb)->tcp_flags became 16 bits wide when accurate ECN took a ninth flag (include/net/tcp.h, 6.18). The low byte is
 * what is wanted, and both architectures are little-endian.
 */
struct tcp_skb_cb___flags {
	__u8 tcp_flags;
} __attribute__((preserve_access_index));

static __always_inline __u8 skb_tcp_flags(const struct sk_buff *skb)
{
	const void *cb = __builtin_preserve_access_index(&skb->cb[0]);
	__u8 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), cb + bpf_core_field_offset(struct tcp_skb_cb___flags, tcp_flags));
	return flags;
}

static __always_inline __u16 skb_gso_segs(const struct sk_buff *skb)
{
	const void *cb = __builtin_preserve_access_index(&skb->cb[0]);
	__u16 segs = 0;

	bpf_probe_read_kernel(&segs, sizeof(segs), cb + bpf_core_field_offset(struct tcp_skb_cb, tcp_gso_segs));
	return segs ?: 1;
}

/*
 * Tracepoints may pass NULL where the verifier of 6.5 to 6.12 takes their arguments for always set, and drops the test for NULL as
 * dead code (marked in raw_tp_null_args since 6.13). So the test is made through memory too, where the verifier cannot see it.
 */
static __always_inline bool is_set(const void *argument)
{
	const void *copy = argument;
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &copy);
	return value != 0;
}

/* The n-th argument of the system call that the task is in, read at its exit: all but the first survive the return value, and the
 * kernel keeps the first apart (arch/x86/entry: di is untouched; arch/arm64/kernel/syscall.c: orig_x0). */
static __always_inline __u64 syscall_arg(const struct pt_regs *regs, int n)
{
#if defined(__TARGET_ARCH_x86)
	return n == 0 ? regs->di : n == 1 ? regs->si : regs->dx;
#else
	return n == 0 ? regs->orig_x0 : regs->regs[n];
#endif
}

#endif
