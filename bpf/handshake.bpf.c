// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Outbound handshakes: begun in the thread that connects, ended mostly in softirq, or refused before anything was sent. Also the
 * life of the table of sockets, which every other object reads: made here, where a socket's thread is known.
 */
#include "socket.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Records go through an untyped ring buffer: this keeps their layout in the object's BTF, from which the Go type is made. */
const struct event *record_type __attribute__((unused));

/* Nothing was sent: no source port was free (the socket has none, or one that it shares), or the kernel could not send. */
static __always_inline __u16 errno_of_unsent(const struct sock *sk, const struct tcp_sock *tp)
{
	if (!tp->inet_conn.icsk_inet.inet_sport || sk->sk_userlocks & SOCK_BINDPORT_LOCK)
		return EADDRNOTAVAIL;
	return EHOSTUNREACH; /* ip_route_newports and tcp_connect's rebuild_header have no other error that comes this far */
}

static __always_inline __u8 outcome_of(__u16 error)
{
	switch (error) {
	case 0:
		return OUTCOME_ABORTED;
	case ECONNREFUSED:
		return OUTCOME_REFUSED;
	case ETIMEDOUT:
		return OUTCOME_TIMED_OUT;
	case EHOSTUNREACH:
		return OUTCOME_HOST_UNREACHABLE;
	case ENETUNREACH:
		return OUTCOME_NETWORK_UNREACHABLE;
	case ECONNRESET:
		return OUTCOME_RESET;
	case EADDRNOTAVAIL:
		return OUTCOME_ADDRESS_NOT_AVAILABLE;
	}
	return OUTCOME_OTHER;
}

static __always_inline bool is_reported(__u8 outcome, __u64 duration_ns, __u32 retransmits)
{
	switch (cfg.report) {
	case REPORT_ALL:
		return 1;
	case REPORT_SLOW:
		return outcome != OUTCOME_OK || duration_ns >= cfg.slow_threshold_ns || retransmits;
	case REPORT_FAILED:
		return outcome != OUTCOME_OK;
	}
	return 0;
}

/* CLOSE -> SYN_SENT, in the connecting thread. */
static __always_inline void handshake_began(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct socket_info s = {};

	if (!tp)
		return;
	s.syn_ktime_ns = bpf_ktime_get_ns();
	s.retrans_before = tp->total_retrans;
	if (capture_owner(&s.owner))
		s.flags = SOCKET_HAS_OWNER;
	add_socket(sk, &s);
}

/* SYN_SENT or, in a simultaneous open, SYN_RECV -> ESTABLISHED or CLOSE. */
static __always_inline void handshake_ended(struct sock *sk, struct socket_info *s, int old_state, int new_state)
{
	struct tcp_sock *tp = tcp_of(sk);
	__u64 now = bpf_ktime_get_ns(), duration_ns = 0;
	__u32 retransmits = 0;
	bool unsent = 0;
	__u8 outcome = OUTCOME_OK;
	__u16 error = 0;
	struct event *e;

	if (!tp)
		return;
	if (new_state == TCP_CLOSE) {
		error = sk->sk_err;
		unsent = !error && !tp->segs_out;
		if (unsent)
			error = errno_of_unsent(sk, tp);
		outcome = outcome_of(error);
	}
	if (s && !unsent && s->syn_ktime_ns) {
		duration_ns = now - s->syn_ktime_ns;
		retransmits = tp->total_retrans - s->retrans_before - s->retrans_failed;
		count_duration(ROLE_CLIENT, outcome, duration_ns);
	}
	count(connections[ROLE_CLIENT][outcome], 1);
	if (s) {
		s->syn_ktime_ns = 0;
		if (outcome == OUTCOME_OK)
			s->established_ktime_ns = now;
		else
			s->told_errno = error;
	}
	if (!is_reported(outcome, duration_ns, retransmits))
		return;
	e = reserve(outcome == OUTCOME_OK ? EVENT_CONNECT_COMPLETED : EVENT_CONNECT_FAILED, now);
	if (!e)
		return;
	e->state = old_state;
	e->role = ROLE_CLIENT;
	e->outcome = outcome;
	e->error = error;
	e->count = retransmits;
	if (duration_ns) {
		e->duration_ns = duration_ns;
		e->flags = EVENT_HAS_DURATION;
	}
	read_flow(e, sk, tp);
	read_snapshot(e, sk, tp, 0);
	/* Giving up, like running out of ports, is something a thread does; everything else happens to it. */
	if ((outcome == OUTCOME_ABORTED || unsent) && in_owners_call(sk))
		own_by_current(e);
	else
		own_by_opener(e, s);
	submit(e);
}

/* A socket that was aborted is in CLOSE by the time its RST goes out (tcp_close, tcp_disconnect). Only a thread can abort a
 * connection in a way that sends one after the change of state, so the many closes of TIME_WAIT in softirq need no entry. */
static __always_inline void remember_state(struct sock *sk, struct socket_info *s, int old_state)
{
	if (!s && in_owners_call(sk))
		s = find_or_add_socket(sk);
	if (s)
		s->state_before_close = old_state;
}

static __always_inline void state_changed(struct sock *sk, int old_state, int new_state)
{
	struct socket_info *s;

	if (new_state != TCP_CLOSE && old_state != TCP_SYN_SENT && old_state != TCP_SYN_RECV)
		return;
	if (new_state != TCP_CLOSE && new_state != TCP_ESTABLISHED)
		return;
	if (!is_tcp(sk))
		return;
	s = find_socket(sk);
	if (old_state == TCP_SYN_SENT || (old_state == TCP_SYN_RECV && s && s->syn_ktime_ns))
		handshake_ended(sk, s, old_state, new_state);
	if (new_state == TCP_CLOSE && old_state != TCP_LISTEN)
		remember_state(sk, s, old_state);
}

static __always_inline void socket_gone(struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct socket_info *s = bpf_map_lookup_elem(&sockets, &key);

	if (!s)
		return;
	if (s->flags & SOCKET_RETRANSMITTED) {
		struct event *e = reserve(EVENT_SOCKET_CLOSED, bpf_ktime_get_ns());

		if (e) {
			e->cookie = s->cookie;
			submit(e);
		}
	}
	if (!bpf_map_delete_elem(&sockets, &key))
		count(sockets_removed, 1);
}

/* The socket behind a descriptor of the current task, or NULL. Another thread may replace the descriptor meanwhile: what is found
 * must point back at itself. */
static __always_inline struct sock *socket_of(struct task_struct *task, __u32 fd)
{
	struct fdtable *fdt = task->files->fdt;
	struct socket *socket;
	struct file *file;

	if (fd >= fdt->max_fds)
		return 0;
	if (bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd) || !file)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	if (BPF_CORE_READ(socket, file) != file || BPF_CORE_READ(socket, sk, sk_socket) != socket)
		return 0;
	return BPF_CORE_READ(socket, sk);
}

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

	/* inet_stream_connect and tcp_v6_connect refuse shorter ones with EINVAL (24: SIN6_LEN_RFC2133) */
	if (length < 16 || bpf_probe_read_user(&a, sizeof(*v4), addr))
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
	struct socket_info *s;
	struct event *e, asked = {};
	struct sock *sk;
	__u16 protocol;
	__u64 key;

	if (result >= 0 || !is_local_refusal(-result))
		return;
	regs = (void *)bpf_task_pt_regs((void *)task);
	sk = socket_of(task, syscall_arg(regs, 0));
	protocol = BPF_CORE_READ(sk, sk_protocol);
	if (sk && protocol == IPPROTO_MPTCP && bpf_core_type_exists(struct mptcp_sock)) {
		sk = BPF_CORE_READ((struct mptcp_sock *)sk, first);
		protocol = BPF_CORE_READ(sk, sk_protocol);
	}
	if (!sk || protocol != IPPROTO_TCP || BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_CLOSE)
		return;
	key = (__u64)sk;
	s = bpf_map_lookup_elem(&sockets, &key);
	if (s && s->cookie == BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) && s->told_errno == -result) {
		s->told_errno = 0;
		return;
	}
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
	e->cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	e->local_port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	__builtin_memcpy(e->peer_addr, asked.peer_addr, sizeof(e->peer_addr));
	e->peer_port = asked.peer_port;
	own_by_current(e);
	submit(e);
}

/* Two programs on one tracepoint: the kernel skips a program that interrupts itself, and the softirq that ends one handshake would
 * often interrupt the thread that begins another. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(connect_begin, struct sock *sk, int old_state, int new_state)
{
	if (new_state == TCP_SYN_SENT && is_tcp(sk))
		handshake_began(sk);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(connect_end, struct sock *sk, int old_state, int new_state)
{
	state_changed(sk, old_state, new_state);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(socket_destroy, struct sock *sk)
{
	socket_gone(sk);
	return 0;
}

/* The context is the format of sys_exit tracepoints, the same on all 64-bit kernels. */
struct syscall_exit {
	__u64 common;
	__s64 number;
	__s64 result;
};

SEC("tracepoint/syscalls/sys_exit_connect")
int connect_exit(struct syscall_exit *ctx)
{
	connect_returned(ctx->result);
	return 0;
}
