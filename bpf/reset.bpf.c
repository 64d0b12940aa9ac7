// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* RSTs sent and received. */
#include "owner.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void count_reset(enum direction direction, __u32 reason)
{
	if (reason >= RESET_REASONS)
		reason = RESET_REASONS - 1;
	/* The verifier must see a bound on the register that is added, and the compiler would compare one and add another. */
	asm volatile("" : "+r"(reason));
	reason &= RESET_REASONS - 1;
	count(resets[direction][reason], 1);
}

/* The state before the socket was closed: an aborted one is in CLOSE already when its RST goes out. */
static __always_inline __u8 state_before(const struct sock *sk, __u8 state, const struct socket_info *s)
{
	struct closing *c;

	if (state != TCP_CLOSE)
		return state;
	if (s)
		return s->state_before_close;
	c = find_closing(sk->__sk_common.skc_cookie.counter);
	return c && c->state_before_close ? c->state_before_close : state;
}

/*
 * With a packet the RST answers it, mostly in softirq: the packet has the flow, and the socket, if there is one, may be a
 * mini-socket or the listener. Without one the socket itself gives up: its thread closed it (then that thread holds its lock),
 * or a timer did.
 */
static __always_inline void reset_was_sent(struct sock *sk, const struct sk_buff *skb, bool by_thread, __u32 reason)
{
	struct socket_info *s = 0;
	struct tcp_sock *tp = 0;
	struct event *e;
	__u8 state = 0;

	if (sk) {
		state = sk->__sk_common.skc_state;
		if (!is_mini(state) && !is_tcp(sk))
			return;
		if (!is_mini(state) && state != TCP_LISTEN)
			tp = tcp_of(sk);
	}
	if (sk && tp)
		s = find_socket(sk) ?: find_departed(sk);
	if (is_excluded(s))
		return;
	count_reset(DIRECTION_TRANSMIT, reason);
	if (!cfg.reset_no_socket && (!sk || state == TCP_LISTEN)) /* strays: anybody can send any number of them */
		return;
	e = reserve(EVENT_RESET_SENT, bpf_ktime_get_ns());
	if (!e)
		return;
	e->reason = reason;
	e->state = state;
	if (sk && tp) {
		read_flow(e, sk, tp);
		e->state = state_before(sk, state, s);
		read_snapshot(e, sk, tp, s);
		if (by_thread)
			own_by_current(e, s);
		else
			own_by_opener(e, s);
	} else if (sk) {
		read_common(e, &sk->__sk_common);
	}
	if (skb)
		read_packet(e, skb);
	submit(e);
}

/* A refused handshake is told as what it is, not as a reset. */
static __always_inline bool is_refused_handshake(__u8 state, const struct socket_info *s)
{
	return state == TCP_SYN_SENT || (state == TCP_SYN_RECV && s && s->syn_ktime_ns);
}

/*
 * The kernel resets a connection in the same way, without any RST, when data comes for a socket that its process has closed
 * (tcp_rcv_state_process, TCPAbortOnData). Two things tell: data has come since it was closed, and tcp_ack, which data gets to and a
 * RST does not, has just set rcv_tstamp. Only the second is known if many others were closed since: then a RST within the same
 * tick as the last ACK is taken for data.
 */
static __always_inline bool is_data_after_close(const struct sock *sk, const struct tcp_sock *tp, __u8 state)
{
	struct closing *c;

	if ((state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2) || !(sk->sk_shutdown & RCV_SHUTDOWN))
		return 0;
	if (tp->rcv_tstamp != (__u32)bpf_jiffies64())
		return 0;
	c = find_closing(sk->__sk_common.skc_cookie.counter);
	return !c || c->data_segs_in == ~0U || tp->data_segs_in != c->data_segs_in;
}

static __always_inline void reset_was_received(struct sock *sk)
{
	struct socket_info *s = find_socket(sk);
	__u8 state = sk->__sk_common.skc_state;
	struct tcp_sock *tp = tcp_of(sk);
	struct event *e;

	if (!tp || is_excluded(s) || is_refused_handshake(state, s) || is_data_after_close(sk, tp, state))
		return;
	count_reset(DIRECTION_RECEIVE, 0);
	e = reserve(EVENT_RESET_RECEIVED, bpf_ktime_get_ns());
	if (!e)
		return;
	e->state = state;
	read_flow(e, sk, tp);
	read_snapshot(e, sk, tp, s);
	own_by_opener(e, s);
	submit(e);
}

/* Of a thread that gives up its own socket, or of the kernel; each of two programs takes its part. */
static __always_inline void send_reset(struct sock *sk, const struct sk_buff *skb, bool by_thread, __u32 reason)
{
	if (!sk || !is_set(sk))
		sk = 0;
	if (!skb || !is_set(skb))
		skb = 0;
	if ((sk && !skb && in_owners_call(sk)) == by_thread)
		reset_was_sent(sk, skb, by_thread, reason);
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(reset_by_thread, struct sock *sk, struct sk_buff *skb, unsigned int reason)
{
	send_reset(sk, skb, 1, reason);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(reset_by_kernel, struct sock *sk, struct sk_buff *skb, unsigned int reason)
{
	send_reset(sk, skb, 0, reason);
	return 0;
}

/* The reason is told from 6.12 on. */
SEC("tp_btf/tcp_send_reset")
int BPF_PROG(reset_by_thread_no_reason, struct sock *sk, struct sk_buff *skb)
{
	send_reset(sk, skb, 1, 0);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(reset_by_kernel_no_reason, struct sock *sk, struct sk_buff *skb)
{
	send_reset(sk, skb, 0, 0);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(reset_received_in_call, struct sock *sk)
{
	if (in_owners_call(sk))
		reset_was_received(sk);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(reset_received_in_softirq, struct sock *sk)
{
	if (!in_owners_call(sk))
		reset_was_received(sk);
	return 0;
}
