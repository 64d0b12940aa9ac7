// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Outbound handshakes: begun in the thread that connects, ended mostly in softirq. Also the life of the table of sockets, which
 * every other object reads: made here, where a socket's thread is known.
 */
#include "outcome.h"
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

/* CLOSE -> SYN_SENT, in the connecting thread. */
static __always_inline void handshake_began(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct socket_info s = {};

	if (!tp)
		return;
	s.syn_ktime_ns = bpf_ktime_get_ns();
	s.retrans_seen = tp->total_retrans;
	if (capture_owner(&s.owner))
		s.flags = SOCKET_HAS_OWNER;
	add_socket(sk, &s);
}

/* SYN to outcome; 0: not known. With TCP_FASTOPEN_CONNECT the SYN may leave long after connect() has returned, with the first
 * write: then the first round trip tells, or the stamp of the first SYN in milliseconds (tcp_connect; struct tcp_sock). */
static __always_inline __u64 handshake_duration(const struct tcp_sock *tp, const struct socket_info *s, __u64 now, bool done)
{
	if (!BPF_CORE_READ_BITFIELD(tp, fastopen_connect))
		return now - s->syn_ktime_ns;
	if (done)
		return s->syn_retransmits ? 0 : (__u64)(tp->srtt_us >> 3) * 1000;
	return tp->retrans_stamp ? (__u64)((__u32)(now / 1000000) - tp->retrans_stamp) * 1000000 : 0;
}

/* SYN_SENT or, in a simultaneous open, SYN_RECV -> ESTABLISHED or CLOSE. */
static __always_inline void handshake_ended(struct sock *sk, struct socket_info *s, int old_state, int new_state)
{
	__u64 now = bpf_ktime_get_ns(), duration_ns = 0;
	struct tcp_sock *tp = tcp_of(sk);
	__u8 outcome = OUTCOME_OK;
	__u32 retransmits = 0;
	bool unsent = 0;
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
		count_syn_retransmits(s, tp, 1);
		retransmits = s->syn_retransmits;
		duration_ns = handshake_duration(tp, s, now, outcome == OUTCOME_OK);
		if (duration_ns)
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

/* A socket that was aborted is in CLOSE by the time its RST goes out. If its thread aborts it that may be on another CPU, so
 * the state goes into the table. In softirq the RST follows at once, if at all, and most sockets just pass through TIME_WAIT. */
static __always_inline void remember_state(struct sock *sk, struct socket_info *s, int old_state)
{
	__u32 zero = 0;
	struct departed *d;

	if (!s && in_owners_call(sk))
		s = find_or_add_socket(sk);
	if (s) {
		s->state_before_close = old_state;
		return;
	}
	d = bpf_map_lookup_elem(&last_departed, &zero);
	if (!d)
		return;
	d->sk = (__u64)sk;
	d->info.cookie = socket_cookie(sk);
	d->info.state_before_close = old_state;
	d->info.flags = 0;
}

/* ESTABLISHED or CLOSE_WAIT -> FIN_WAIT1 by close(), not by shutdown(): data that comes from now on is answered with a RST. */
static __always_inline void orphaned(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct socket_info *s;

	if (!tp || !(sk->sk_shutdown & RCV_SHUTDOWN))
		return;
	s = find_or_add_socket(sk);
	if (!s)
		return;
	s->data_segs_in_orphaned = tp->data_segs_in;
	s->flags |= SOCKET_ORPHANED;
}

static __always_inline void state_changed(struct sock *sk, int old_state, int new_state)
{
	struct socket_info *s;

	if (new_state == TCP_FIN_WAIT1) {
		orphaned(sk);
		return;
	}
	if (new_state != TCP_CLOSE && (new_state != TCP_ESTABLISHED || (old_state != TCP_SYN_SENT && old_state != TCP_SYN_RECV)))
		return;
	if (!is_tcp(sk))
		return;
	s = find_socket(sk);
	if (old_state == TCP_SYN_SENT || (old_state == TCP_SYN_RECV && s && s->syn_ktime_ns))
		handshake_ended(sk, s, old_state, new_state);
	if (new_state == TCP_CLOSE && old_state != TCP_LISTEN)
		remember_state(sk, s, old_state);
}

static __always_inline void state_was_missed(struct sock *sk, int old_state, int new_state)
{
	struct socket_info *s;

	if ((old_state != TCP_SYN_SENT && old_state != TCP_SYN_RECV) || (new_state != TCP_ESTABLISHED && new_state != TCP_CLOSE))
		return;
	s = find_socket(sk);
	if (s && s->syn_ktime_ns)
		handshake_ended(sk, s, old_state, new_state);
}

static __always_inline void socket_gone(struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct socket_info *s = bpf_map_lookup_elem(&sockets, &key);
	struct departed *d;
	__u32 zero = 0;

	if (!s)
		return;
	d = bpf_map_lookup_elem(&last_departed, &zero);
	if (d) {
		d->sk = key;
		d->info = *s;
	}
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

/* In a thread's own call on the socket: connect, close, and what came meanwhile and waited for it. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_in_call, struct sock *sk, int old_state, int new_state)
{
	if (!in_owners_call(sk))
		return 0;
	if (new_state == TCP_SYN_SENT)
		handshake_began(sk);
	else
		state_changed(sk, old_state, new_state);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_in_softirq, struct sock *sk, int old_state, int new_state)
{
	if (!in_owners_call(sk))
		state_changed(sk, old_state, new_state);
	return 0;
}

/* The understudy: should a softirq find state_in_softirq in the few nanoseconds in which it leaves a thread's socket alone, the
 * kernel skips that, but not this. Normally the handshake is no longer open when it looks. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_missed_in_softirq, struct sock *sk, int old_state, int new_state)
{
	if (!in_owners_call(sk))
		state_was_missed(sk, old_state, new_state);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(socket_destroy, struct sock *sk)
{
	socket_gone(sk);
	return 0;
}
