// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Connects that the local routing table or a policy refuses before the socket changes its state: only connect() tells. */
#include "outcome.h"
#include "descriptor.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Errors with which the routing table, a policy or a lack of memory refuses a connect before the socket changes its state. */
static __always_inline bool is_local_refusal(long error)
{
	switch (error) {
	case EPERM:
	case ENOMEM:
	case EACCES:
	case ENODEV:
	case EINVAL:
	case EADDRNOTAVAIL:
	case ENETDOWN:
	case ENETUNREACH:
	case ENOBUFS:
	case EHOSTUNREACH:
		return 1;
	}
	return 0;
}

/* The address that the thread asked for; the socket does not have it. False if the call itself was wrong. */
static __always_inline bool read_asked_address(struct event *e, const void *addr, __u32 length)
{
	struct sockaddr_ipv6 a = {};
	const struct sockaddr_ipv4 *v4 = (void *)&a;

	/* move_addr_to_kernel refuses longer ones, tcp_v4_connect and tcp_v6_connect shorter ones (24: SIN6_LEN_RFC2133) */
	if (length < 16 || length > SOCKADDR_SIZE_MAX || bpf_probe_read_user(&a, sizeof(*v4), addr))
		return 0;
	if (a.family == AF_INET6) {
		if (length < 24 || bpf_probe_read_user(&a, sizeof(a), addr))
			return 0;
		__builtin_memcpy(e->peer_addr, a.addr, sizeof(a.addr));
	} else if (a.family == AF_INET) {
		put_ipv4(e->peer_addr, v4->addr);
	} else {
		return 0;
	}
	e->peer_port = bpf_ntohs(a.port);
	return 1;
}

/* connect() returned: told here is only what no change of state has told. */
static __always_inline void connect_returned(long result)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct pt_regs *regs;
	struct closing *c;
	struct event *e, asked = {};
	struct sock *sk;
	__u64 cookie;

	/* ECONNABORTED is what connect() returns after a failure that SO_ERROR has told (__inet_stream_connect). Anything else that
	 * is no local refusal was told by a change of state, and cannot be mistaken for one later. */
	if (result >= 0 || (!is_local_refusal(-result) && result != -ECONNABORTED))
		return;
	regs = (void *)bpf_task_pt_regs((void *)task);
	sk = tcp_socket_of(task, syscall_arg(regs, 0));
	if (!sk || BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_CLOSE)
		return;
	cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	c = find_closing(cookie);
	if (c) {
		bool told = c->told_errno == ANY_ERRNO || c->told_errno == -result;

		c->told_errno = 0; /* whatever connect() returns after a failure, it returns once */
		if (told)
			return;
	}
	if (!is_local_refusal(-result))
		return;
	if (cfg.exclude_self && bpf_get_current_pid_tgid() >> 32 == cfg.self)
		return;
	if (!read_asked_address(&asked, (void *)syscall_arg(regs, 1), syscall_arg(regs, 2)))
		return;
	asked.outcome = outcome_of(-result);
	if (asked.outcome < OUTCOMES)
		count(connections[ROLE_CLIENT][asked.outcome], 1);
	if (!is_reported(asked.outcome, 0, 0))
		return;
	e = reserve(EVENT_CONNECT_FAILED, bpf_ktime_get_ns());
	if (!e)
		return;
	e->state = TCP_CLOSE;
	e->role = ROLE_CLIENT;
	e->outcome = asked.outcome;
	e->error = -result;
	e->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	e->cookie = cookie;
	e->local_port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	__builtin_memcpy(e->peer_addr, asked.peer_addr, sizeof(e->peer_addr));
	e->peer_port = asked.peer_port;
	if (capture_owner(&e->owner))
		e->owner_source = OWNER_CURRENT;
	submit(e);
}

SEC("tracepoint/syscalls/sys_exit_connect")
int connect_exit(struct syscall_exit *ctx)
{
	connect_returned(ctx->result);
	return 0;
}
