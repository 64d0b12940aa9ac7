// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Segments sent again: data, FIN, SYN and SYN-ACK. */
#include "owner.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline enum segment_type segment_of(__u8 tcp_flags)
{
	if (tcp_flags & TCPHDR_SYN)
		return tcp_flags & TCPHDR_ACK ? SEGMENT_SYNACK : SEGMENT_SYN;
	return tcp_flags & TCPHDR_FIN ? SEGMENT_FIN : SEGMENT_DATA;
}

/* The state first: a tail-loss probe may still be pending when fast recovery sends. A handshake has no recovery, only its timer. */
static __always_inline enum retransmit_type type_of(const struct tcp_sock *tp, enum segment_type segment)
{
	__u8 ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);

	if (segment == SEGMENT_SYN || segment == SEGMENT_SYNACK || ca_state == TCP_CA_LOSS)
		return RETRANSMIT_TIMEOUT;
	if (ca_state == TCP_CA_RECOVERY)
		return RETRANSMIT_FAST;
	if (tp->inet_conn.icsk_pending == ICSK_TIME_LOSS_PROBE)
		return RETRANSMIT_TAIL_LOSS_PROBE;
	return RETRANSMIT_UNKNOWN;
}

/* It never left: connect must not tell it as a SYN sent again. */
static __always_inline void retransmit_failed(struct sock *sk)
{
	struct socket_info *s = find_socket(sk);
	struct tcp_sock *tp = tcp_of(sk);

	if (s && tp && s->syn_ktime_ns)
		count_syn_retransmits(s, tp, 0);
}

static __always_inline void segment_was_sent(struct sock *sk, const struct sk_buff *skb)
{
	enum segment_type segment = segment_of(skb_tcp_flags(skb));
	struct tcp_sock *tp = tcp_of(sk);
	bool handshake = segment == SEGMENT_SYN || segment == SEGMENT_SYNACK;
	enum retransmit_type type;
	struct socket_info *s;
	__u32 segments, attempt;
	struct event *e;

	if (!tp)
		return;
	type = type_of(tp, segment);
	segments = skb_gso_segs(skb);
	s = find_socket(sk);
	if (is_excluded(s))
		return;
	count(retransmits[segment & 3][type & 3], segments);
	attempt = tp->total_retrans; /* of a socket that has not been seen before */
	if (handshake && s && s->syn_ktime_ns) {
		count_syn_retransmits(s, tp, 1);
		attempt = s->syn_retransmits;
	}
	e = reserve(handshake ? EVENT_SYN_RETRANSMITTED : EVENT_SEGMENT_RETRANSMITTED, bpf_ktime_get_ns());
	if (!e)
		return;
	e->state = sk->__sk_common.skc_state;
	e->segment = segment;
	e->retransmit = type;
	/* in a simultaneous open the client sends SYN-ACKs */
	e->role = segment == SEGMENT_SYNACK && !(s && s->syn_ktime_ns) ? ROLE_SERVER : ROLE_CLIENT;
	e->count = segments;
	if (handshake) {
		e->count = attempt;
	} else {
		if (!s)
			s = find_or_add_socket(sk);
		if (s)
			s->flags |= SOCKET_RETRANSMITTED;
	}
	read_flow(e, sk, tp);
	read_snapshot(e, sk, tp, s);
	own_by_opener(e, s);
	submit(e);
}

/* A request socket is not a full one; who listens is not known from it. */
static __always_inline void synack_was_sent(const struct request_sock *req)
{
	struct event *e;

	count(retransmits[SEGMENT_SYNACK][RETRANSMIT_TIMEOUT], 1);
	e = reserve(EVENT_SYN_RETRANSMITTED, bpf_ktime_get_ns());
	if (!e)
		return;
	e->state = TCP_NEW_SYN_RECV;
	e->segment = SEGMENT_SYNACK;
	e->retransmit = RETRANSMIT_TIMEOUT;
	e->role = ROLE_SERVER;
	e->count = req->num_retrans + 1; /* inet_rtx_syn_ack counts it after rtx_syn_ack has returned */
	read_common(e, &req->__req_common);
	e->local_port = req->__req_common.skc_num;
	submit(e);
}

/* Told with the result from 6.18 on, also when it failed. As with all hooks, a thread that works on what came while it held its
 * socket must not keep a softirq from telling of another socket. */
static __always_inline void retransmitted(struct sock *sk, const struct sk_buff *skb, int error, bool in_call)
{
	if (in_owners_call(sk) != in_call)
		return;
	if (error)
		retransmit_failed(sk);
	else
		segment_was_sent(sk, skb);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit_in_call, struct sock *sk, struct sk_buff *skb, int error)
{
	retransmitted(sk, skb, error, 1);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit_in_softirq, struct sock *sk, struct sk_buff *skb, int error)
{
	retransmitted(sk, skb, error, 0);
	return 0;
}

/* Before, only what was sent was told. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit_in_call_sent, struct sock *sk, struct sk_buff *skb)
{
	retransmitted(sk, skb, 0, 1);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit_in_softirq_sent, struct sock *sk, struct sk_buff *skb)
{
	retransmitted(sk, skb, 0, 0);
	return 0;
}

SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(synack_retransmit, struct sock *sk, struct request_sock *req)
{
	synack_was_sent(req);
	return 0;
}
