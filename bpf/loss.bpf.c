// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Loss and recovery: changes of the congestion state. */
#include "owner.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void tell(struct sock *sk, const struct tcp_sock *tp, const struct socket_info *s, enum event_kind kind)
{
	struct event *e = reserve(kind, bpf_ktime_get_ns());

	if (!e)
		return;
	e->state = sk->__sk_common.skc_state;
	read_flow(e, sk, tp);
	read_snapshot(e, sk, tp, s);
	own_by_opener(e, s);
	submit(e);
}

/*
 * The tracepoint fires before the state is set, and not only for changes of it: Loss again on each backoff, Open for each accepted
 * connection. During a handshake a timeout is a SYN sent again, which is told as such. Loss without a retransmission timeout is a
 * path whose MTU has shrunk (tcp_simple_retransmit): the timer's handler has cleared icsk_pending before it gets here, and there it
 * still runs.
 */
static __always_inline void state_set(struct sock *sk, __u8 new_state)
{
	struct tcp_sock *tp = tcp_of(sk);
	__u8 state = sk->__sk_common.skc_state;
	struct socket_info *s;

	if (!tp || state == TCP_SYN_SENT || state == TCP_SYN_RECV)
		return;
	if (new_state >= TCP_CA_STATES || BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) == new_state)
		return;
	s = find_socket(sk);
	if (is_excluded(s))
		return;
	count(congestion[new_state], 1);
	if (new_state == TCP_CA_RECOVERY)
		tell(sk, tp, s, EVENT_RECOVERY_ENTERED);
	else if (new_state == TCP_CA_LOSS && !tp->inet_conn.icsk_pending)
		tell(sk, tp, s, EVENT_LOSS_ENTERED);
}

/* Mostly in softirq, by an ACK or a timer; in the thread's own call what waited for it meanwhile. */
SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(congestion_in_softirq, struct sock *sk, __u8 new_state)
{
	if (!in_owners_call(sk))
		state_set(sk, new_state);
	return 0;
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(congestion_in_call, struct sock *sk, __u8 new_state)
{
	if (in_owners_call(sk))
		state_set(sk, new_state);
	return 0;
}
