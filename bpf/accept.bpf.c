// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Inbound connections: accept() takes one out of the queue in which it waited, and its thread becomes the owner. */
#include "descriptor.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline bool is_reported(__u64 wait_ns, __u32 retransmits)
{
	return cfg.accept_report == REPORT_ALL ||
	       (cfg.accept_report == REPORT_SLOW && (wait_ns >= cfg.slow_wait_threshold_ns || retransmits));
}

static __always_inline void accepted(long fd)
{
	__u64 now, wait_ns, key;
	struct socket_info *s;
	struct sock *sk;
	struct event *e;

	if (fd < 0)
		return;
	sk = tcp_socket_of((void *)bpf_get_current_task_btf(), fd);
	if (!sk)
		return;
	key = (__u64)sk;
	s = bpf_map_lookup_elem(&sockets, &key);
	if (!s || s->cookie != BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) || !(s->flags & SOCKET_IN_QUEUE))
		return; /* established before the collector started */
	now = bpf_ktime_get_ns();
	wait_ns = now - s->established_ktime_ns;
	if (capture_owner(&s->owner)) {
		barrier(); /* a softirq on another CPU reads the owner only if the flag is set */
		s->flags |= flags_of_owned(&s->owner);
	}
	s->flags &= ~SOCKET_IN_QUEUE;
	if (is_excluded(s))
		return;
	count_wait(wait_ns);
	if (!is_reported(wait_ns, s->syn_retransmits))
		return;
	e = reserve(EVENT_ACCEPT_COMPLETED, now);
	if (!e)
		return;
	e->state = BPF_CORE_READ(sk, __sk_common.skc_state);
	e->role = ROLE_SERVER;
	e->count = s->syn_retransmits;
	e->wait_ns = wait_ns;
	e->flags = EVENT_HAS_WAIT;
	if (s->handshake_ns) {
		e->duration_ns = s->handshake_ns;
		e->flags |= EVENT_HAS_DURATION;
	}
	read_found(e, sk, s);
	if (s->flags & SOCKET_HAS_OWNER) {
		e->owner = s->owner;
		e->owner_source = OWNER_CURRENT;
	}
	submit(e);
}

SEC("tracepoint/syscalls/sys_exit_accept4")
int accept4_exit(struct syscall_exit *ctx)
{
	accepted(ctx->result);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_accept")
int accept_exit(struct syscall_exit *ctx)
{
	accepted(ctx->result);
	return 0;
}
