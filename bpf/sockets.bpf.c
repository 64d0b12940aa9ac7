// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The connections that were there before the collector: run once, over all descriptors of all processes. */
#include "owner.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Which of its threads opened it is not known any more; one that several processes share belongs to none of them. */
static __always_inline void found(const struct task_struct *task, struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;
	struct socket_info s = {};
	struct socket_info *known;

	if (!is_tcp(sk) || state == TCP_CLOSE || state == TCP_LISTEN || is_mini(state))
		return;
	known = find_socket(sk);
	if (known) {
		if (known->flags & SOCKET_SCANNED && known->owner.pid != (__u32)task->tgid)
			known->flags &= ~SOCKET_HAS_OWNER;
		return;
	}
	if (!take_owner(&s.owner, task))
		return;
	s.flags = flags_of_owned(&s.owner) | SOCKET_SCANNED;
	add_socket(sk, &s);
}

SEC("iter/task_file")
int scan_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = (void *)bpf_sock_from_file((void *)file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (sk)
		found(task, sk);
	return 0;
}
