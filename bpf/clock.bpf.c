// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Run by user space, attached to nothing: the kernel's tick counter, whose rate no file tells on every kernel. */
#include "types.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("raw_tp")
int jiffies(void *ctx)
{
	return (__u32)bpf_jiffies64();
}
