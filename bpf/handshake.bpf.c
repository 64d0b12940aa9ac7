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

/* Nothing was sent. Either no source port was free: then the socket has none, or still the one of an earlier connect, or one of its
 * own that it shares. Or the SYN was put off until the first write (TCP_FASTOPEN_CONNECT), and the socket closed before: 0. Or the
 * kernel could not send, for which ip_route_newports and tcp_connect's rebuild_header have no other error that comes this far. */
static __always_inline __u16 errno_of_unsent(const struct sock *sk, const struct tcp_sock *tp, const struct socket_info *s)
{
	__be16 port = tp->inet_conn.icsk_inet.inet_sport;

	if (!port || (s && port == s->port_before && !(sk->sk_userlocks & SOCK_BINDPORT_LOCK)))
		return EADDRNOTAVAIL;
	if (BPF_CORE_READ_BITFIELD(tp, fastopen_connect))
		return 0;
	return sk->sk_userlocks & SOCK_BINDPORT_LOCK ? EADDRNOTAVAIL : EHOSTUNREACH;
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
	s.error_before = sk->sk_err;
	s.port_before = tp->inet_conn.icsk_inet.inet_sport;
	if (capture_owner(&s.owner))
		s.flags = flags_of_owned(&s.owner);
	add_socket(sk, &s);
}

/* SYN to outcome; 0: not known. With TCP_FASTOPEN_CONNECT the SYN may leave long after connect() has returned, with the first
 * write: then the first round trip tells, or the stamp of the first SYN in milliseconds (tcp_connect; struct tcp_sock). */
static __always_inline __u64 handshake_duration(struct tcp_sock *tp, const struct socket_info *s, __u64 now, bool done)
{
	__u32 began_ms = s->syn_ktime_ns / 1000000;

	if (!BPF_CORE_READ_BITFIELD(tp, fastopen_connect))
		return now - s->syn_ktime_ns;
	if (done)
		return s->syn_retransmits ? 0 : (__u64)(tp->srtt_us >> 3) * 1000;
	if (!tp->retrans_stamp || (bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts)))
		return 0;
	if (tp->retrans_stamp - began_ms <= 1) /* it left at once */
		return now - s->syn_ktime_ns;
	return (__u64)((__u32)(now / 1000000) - tp->retrans_stamp) * 1000000;
}

/* SYN_SENT or, in a simultaneous open, SYN_RECV -> ESTABLISHED or CLOSE. */
static __always_inline void handshake_ended(struct sock *sk, struct socket_info *s, int old_state, int new_state, bool late)
{
	__u64 now = bpf_ktime_get_ns(), duration_ns = 0;
	struct tcp_sock *tp = tcp_of(sk);
	__u8 outcome = OUTCOME_OK;
	__u32 retransmits = 0;
	struct closing *c;
	bool unsent = 0;
	__u16 error = 0;
	struct event *e;

	if (!tp)
		return;
	if (new_state == TCP_CLOSE) {
		error = sk->sk_err;
		unsent = !tp->segs_out && (!error || (s && error == s->error_before));
		if (unsent)
			error = errno_of_unsent(sk, tp, s);
		/* Late, the error may have been fetched, and nobody knows any more what it was. */
		outcome = late && !error ? OUTCOME_OTHER : outcome_of(error);
	} else if (!tp->segs_out) { /* restored by TCP_REPAIR: there was no handshake */
		if (s)
			s->syn_ktime_ns = 0;
		return;
	}
	if (s && !unsent && s->syn_ktime_ns) {
		count_syn_retransmits(s, tp, 1);
		retransmits = s->syn_retransmits;
		duration_ns = handshake_duration(tp, s, now, outcome == OUTCOME_OK);
		if (duration_ns && !is_excluded(s))
			count_duration(ROLE_CLIENT, outcome, duration_ns);
	} else if (!unsent && !late) { /* its beginning was not seen; late, what is counted may be data */
		retransmits = s ? s->syn_retransmits + tp->total_retrans - s->retrans_seen : tp->total_retrans;
	}
	if (!is_excluded(s))
		count(connections[ROLE_CLIENT][outcome], 1);
	if (outcome != OUTCOME_OK) {
		c = take_closing(bpf_get_socket_cookie(sk));
		if (c)
			c->told_errno = unsent ? ANY_ERRNO : error;
	}
	if (s) {
		s->syn_ktime_ns = 0;
		if (outcome == OUTCOME_OK)
			s->established_ktime_ns = now;
	}
	if (is_excluded(s) || !is_reported(outcome, duration_ns, retransmits))
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
	if (unsent && error == EADDRNOTAVAIL && !(sk->sk_userlocks & SOCK_BINDPORT_LOCK))
		e->local_port = 0; /* what stands there is of an earlier connect */
	read_snapshot(e, sk, tp, 0);
	/* Giving up, like running out of ports, is something a thread does; everything else happens to it. */
	if ((outcome == OUTCOME_ABORTED || unsent) && in_owners_call(sk))
		own_by_current(e, s);
	else
		own_by_opener(e, s);
	submit(e);
}

/* First SYN-ACK to final ACK; 0: not known (SYN cookies, or an old kernel that has sent the SYN-ACK again). srtt holds the round trip
 * unless the SYN-ACK was sent again; total_rto_time, in milliseconds, is what passed since the first one (tcp_create_openreq_child). */
static __always_inline __u64 inbound_duration(struct tcp_sock *tp)
{
	if (!tp->total_retrans)
		return (__u64)(tp->srtt_us >> 3) * 1000;
	if (bpf_core_field_exists(tp->total_rto_time))
		return (__u64)tp->total_rto_time * 1000000;
	return 0;
}

/* SYN_RECV -> ESTABLISHED of a socket that a listener has made: from now on it waits for accept(). */
static __always_inline void connection_queued(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct socket_info s = {};

	if (!tp)
		return;
	s.established_ktime_ns = bpf_ktime_get_ns();
	s.handshake_ns = inbound_duration(tp);
	s.syn_retransmits = tp->total_retrans;
	s.flags = SOCKET_IN_QUEUE;
	count(connections[ROLE_SERVER][OUTCOME_OK], 1);
	if (s.handshake_ns)
		count_duration(ROLE_SERVER, OUTCOME_OK, s.handshake_ns);
	add_socket(sk, &s);
}

/* A socket that was aborted is in CLOSE by the time its RST goes out. */
static __always_inline void remember_state(struct sock *sk, struct socket_info *s, int old_state)
{
	struct closing *c;

	if (s) {
		s->state_before_close = old_state;
		return;
	}
	/* In softirq only what its process has closed already can still be answered with a RST. */
	if (!in_owners_call(sk) && (old_state == TCP_LAST_ACK || old_state == TCP_CLOSING))
		return;
	c = take_closing(bpf_get_socket_cookie(sk));
	if (c)
		c->state_before_close = old_state;
}

/* To FIN_WAIT1, or FIN_WAIT1 and FIN_WAIT2 to themselves, by close() (tcp_close_state): data that comes from now on is answered with
 * a RST. shutdown() alone leaves the receiving side open. */
static __always_inline void orphaned(struct sock *sk)
{
	struct tcp_sock *tp;
	struct closing *c;

	if (!(sk->sk_shutdown & RCV_SHUTDOWN))
		return;
	tp = tcp_of(sk);
	if (!tp)
		return;
	c = take_closing(bpf_get_socket_cookie(sk));
	if (c)
		c->data_segs_in = tp->data_segs_in;
}

static __always_inline void state_changed(struct sock *sk, int old_state, int new_state)
{
	struct socket_info *s;

	if (new_state == TCP_FIN_WAIT1 || (new_state == TCP_FIN_WAIT2 && old_state == TCP_FIN_WAIT2)) {
		orphaned(sk);
		if (old_state == TCP_SYN_RECV && is_tcp(sk)) { /* given up in the middle of a simultaneous open */
			s = find_socket(sk);
			if (s && s->syn_ktime_ns)
				handshake_ended(sk, s, old_state, TCP_CLOSE, 0);
		}
		return;
	}
	if (new_state != TCP_CLOSE && (new_state != TCP_ESTABLISHED || (old_state != TCP_SYN_SENT && old_state != TCP_SYN_RECV)))
		return;
	if (!is_tcp(sk))
		return;
	s = find_socket(sk);
	if (old_state == TCP_SYN_SENT || (old_state == TCP_SYN_RECV && s && s->syn_ktime_ns))
		handshake_ended(sk, s, old_state, new_state, 0);
	else if (new_state == TCP_ESTABLISHED && !s)
		connection_queued(sk);
	if (new_state == TCP_CLOSE && old_state != TCP_LISTEN)
		remember_state(sk, s, old_state);
}

/* The softirq that ended this handshake found state_in_softirq running on its CPU, and the kernel skipped it. Told late, and
 * without a duration, is better than never. A socket that has a sequence number of its peer was connected. */
static __always_inline void handshake_was_missed(struct sock *sk, struct socket_info *s)
{
	struct tcp_sock *tp = tcp_of(sk);

	if (!tp)
		return;
	s->syn_ktime_ns = 0;
	handshake_ended(sk, s, TCP_SYN_SENT, tp->rcv_nxt ? TCP_ESTABLISHED : TCP_CLOSE, 1);
}

static __always_inline void socket_gone(struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct socket_info *s = bpf_map_lookup_elem(&sockets, &key);
	struct departed *d;
	__u32 zero = 0;

	if (!s)
		return;
	if (s->syn_ktime_ns && s->cookie == sk->__sk_common.skc_cookie.counter)
		handshake_was_missed(sk, s);
	if (s->state_before_close == TCP_FIN_WAIT1 || s->state_before_close == TCP_FIN_WAIT2) {
		d = bpf_map_lookup_elem(&last_departed, &zero);
		if (d) {
			d->sk = key;
			d->info = *s;
		}
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

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(socket_destroy, struct sock *sk)
{
	socket_gone(sk);
	return 0;
}
