// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Run by user space, attached to nothing: what no file tells on every kernel and in every namespace. */
#include "types.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The kernel's tick counter. */
SEC("raw_tp")
int jiffies(void *ctx)
{
	return (__u32)bpf_jiffies64();
}

/* The caller's thread group id in the host's pid namespace. */
SEC("raw_tp")
int self(void *ctx)
{
	return bpf_get_current_pid_tgid() >> 32;
}
