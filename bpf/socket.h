/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a socket: its owner and history, kept in a table; its flow and TCP state, read from the kernel. */
#ifndef EBPFNET_SOCKET_H
#define EBPFNET_SOCKET_H

#include "maps.h"
#include "kernel.h"
#include "compat.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum socket_flag {
	SOCKET_HAS_OWNER = 1,
	SOCKET_RETRANSMITTED = 2, /* user space folds its retransmits and waits for its end */
	SOCKET_IN_QUEUE = 4,	  /* established, and nobody has accepted it yet */
	SOCKET_EXCLUDED = 16,	  /* the user's filter leaves it out */
	SOCKET_SCANNED = 8,	  /* was there before the collector; its owner is who had it then */
};

/* History of one socket. */
struct socket_info {
	__u64 cookie;		/* of the socket that this entry is about; another one at the same address has another */
	__u64 syn_ktime_ns;	/* when the SYN was sent; 0: not seen, or the handshake is over */
	__u64 established_ktime_ns;
	__u64 handshake_ns;	/* inbound: first SYN-ACK to final ACK; 0: not known */
	__u32 retrans_seen;	/* tcp_sock.total_retrans when last looked at: a socket can connect more than once */
	__u32 syn_retransmits;	/* of this handshake, up to retrans_seen; those that never left this host do not count */
	__u16 error_before;	/* sock.sk_err when this handshake began: one of before may still stand */
	__be16 port_before;	/* inet_sock.inet_sport then: the same */
	__u8 state_before_close;
	__u8 flags;		/* enum socket_flag */
	__u16 pad;
	struct owner owner;
};

/*
 * Key: address of the struct sock. Inserted when a connect begins, and by whatever else must be remembered of a socket. Deleted
 * when the kernel destroys the socket. An entry whose deletion was missed (the kernel skips a program that interrupts itself) is
 * told by its cookie and replaced by the next socket at that address, so such entries are no more than the sockets ever alive at
 * once. Full: the socket stays unknown (no owner, no duration), counted in sockets_refused. Not preallocated, so it costs what is
 * used. Socket storage would die with its socket by itself but is slower by a third and absent from 5.10.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct socket_info);
	__uint(max_entries, 262144);
} sockets SEC(".maps");

/*
 * Key: 0, one per CPU. The socket with an entry that was destroyed last on this CPU: data that arrives for a closed socket first
 * destroys it and then answers with a RST, within one softirq (tcp_rcv_state_process, tcp_v4_do_rcv).
 */
struct departed {
	__u64 sk;
	struct socket_info info;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct departed);
	__uint(max_entries, 1);
} last_departed SEC(".maps");

/*
 * Key: the low bits of the cookie. What must be remembered of sockets that are being closed or have failed to connect, whether they
 * have an entry or not, for a moment. Never full: a socket made CLOSING_SOCKETS later takes the place, and what it took is not known.
 */
struct closing {
	__u64 cookie;
	__u32 data_segs_in;	/* tcp_sock.data_segs_in when its process closed it; ~0: not known */
	__u16 told_errno;	/* of a failed connect that was told and that connect() has not returned yet; ANY_ERRNO: whichever */
	__u8 state_before_close; /* 0: not closed yet */
	__u8 pad;
};
#define ANY_ERRNO 0xffff
#define CLOSING_SOCKETS 16384
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct closing);
	__uint(max_entries, CLOSING_SOCKETS);
} closing SEC(".maps");

/* MPTCP, DCCP and SCTP sockets share the tracepoints. */
static __always_inline bool is_tcp(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_TCP;
}

/* The socket's TCP part; NULL for mini-sockets and for other protocols. Reading it through sk itself is refused by the verifier. */
static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	return (void *)bpf_skc_to_tcp_sock(sk);
}

static __always_inline bool is_mini(__u8 state)
{
	return state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV;
}

/* The entry of this very socket, or NULL. A socket that has an entry had its cookie made then. */
static __always_inline struct socket_info *find_socket(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct socket_info *s = bpf_map_lookup_elem(&sockets, &key);

	return s && s->cookie == sk->__sk_common.skc_cookie.counter ? s : 0;
}

static __always_inline bool is_excluded(const struct socket_info *s)
{
	return s && s->flags & SOCKET_EXCLUDED;
}

/* The flags of a socket with this owner. */
static __always_inline __u8 flags_of_owned(const struct owner *o)
{
	return cfg.exclude_self && o->pid == cfg.self ? SOCKET_HAS_OWNER | SOCKET_EXCLUDED : SOCKET_HAS_OWNER;
}

/* The entry of a socket that may just have been destroyed. */
static __always_inline struct socket_info *find_departed(const struct sock *sk)
{
	__u32 zero = 0;
	struct departed *d = bpf_map_lookup_elem(&last_departed, &zero);

	return d && d->sk == (__u64)sk && d->info.cookie && d->info.cookie == sk->__sk_common.skc_cookie.counter ? &d->info : 0;
}

/* The place of a socket among those being closed, if it still has it. */
static __always_inline struct closing *find_closing(__u64 cookie)
{
	__u32 key = cookie % CLOSING_SOCKETS;
	struct closing *c = cookie ? bpf_map_lookup_elem(&closing, &key) : 0;

	return c && c->cookie == cookie ? c : 0;
}

/* The same; takes the place if another has it. */
static __always_inline struct closing *take_closing(__u64 cookie)
{
	__u32 key = cookie % CLOSING_SOCKETS;
	struct closing *c = cookie ? bpf_map_lookup_elem(&closing, &key) : 0;

	if (c && c->cookie != cookie) {
		c->cookie = 0; /* whoever looks meanwhile finds nobody */
		barrier();
		c->data_segs_in = ~0U;
		c->told_errno = 0;
		c->state_before_close = 0;
		barrier();
		c->cookie = cookie;
	}
	return c;
}

static __always_inline void add_socket(struct sock *sk, struct socket_info *s)
{
	__u64 key = (__u64)sk;

	s->cookie = bpf_get_socket_cookie(sk);
	if (!bpf_map_update_elem(&sockets, &key, s, BPF_NOEXIST))
		count(sockets_added, 1);
	else if (bpf_map_update_elem(&sockets, &key, s, BPF_EXIST)) /* a second connect, or an entry whose deletion was missed */
		count(sockets_refused, 1);
}

static __always_inline struct socket_info *find_or_add_socket(struct sock *sk)
{
	struct socket_info none = {};
	struct socket_info *s = find_socket(sk);

	if (s)
		return s;
	add_socket(sk, &none);
	return find_socket(sk);
}

/* Brings syn_retransmits up to date; sent: whether what total_retrans has counted since was sent. The kernel reports failed
 * attempts too, some before and some after it has counted them (__tcp_retransmit_skb, 6.18). */
static __always_inline void count_syn_retransmits(struct socket_info *s, const struct tcp_sock *tp, bool sent)
{
	__u32 total = tp->total_retrans;

	if (sent)
		s->syn_retransmits += total - s->retrans_seen;
	s->retrans_seen = total;
}

/*
 * Whether the current thread holds the socket's lock, that is, runs a system call on it: a softirq leaves an owned socket alone
 * and queues its work for the owner (sk_add_backlog, sock_owned_by_user in the timers). This also divides the work on a hook
 * between two programs: the kernel skips a program that interrupts itself, and a softirq often interrupts a thread at work on
 * another socket. The one for softirq leaves owned sockets at once, so hardly anything ever finds it running.
 */
static __always_inline bool in_owners_call(const struct sock *sk)
{
	return sk->sk_lock.owned;
}

static __always_inline void put_ipv4(__u8 *addr, __be32 ipv4)
{
	*(__u64 *)addr = 0;
	*(__u32 *)(addr + 8) = bpf_htonl(0xffff);
	*(__be32 *)(addr + 12) = ipv4;
}

static __always_inline void put_ipv6(__u8 *addr, const struct in6_addr *ipv6)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		*(__be32 *)(addr + 4 * i) = ipv6->in6_u.u6_addr32[i];
}

static __always_inline bool is_mapped(const struct in6_addr *a)
{
	return !a->in6_u.u6_addr32[0] && !a->in6_u.u6_addr32[1] && a->in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

/* The addresses, the peer's port and the namespace of any kind of socket, mini-sockets included. */
static __always_inline void read_common(struct event *e, const struct sock_common *c)
{
	/* A mapped IPv6 socket has its local address first in the IPv4 fields: tcp_v6_connect sets the IPv6 one after
	 * tcp_v4_connect has returned, when a handshake over loopback is over already. */
	if (c->skc_family == AF_INET6 && bpf_core_field_exists(c->skc_v6_daddr) && !is_mapped(&c->skc_v6_daddr)) {
		put_ipv6(e->local_addr, &c->skc_v6_rcv_saddr);
		put_ipv6(e->peer_addr, &c->skc_v6_daddr);
	} else {
		put_ipv4(e->local_addr, c->skc_rcv_saddr);
		put_ipv4(e->peer_addr, c->skc_daddr);
	}
	e->peer_port = bpf_ntohs(c->skc_dport);
	e->netns = c->skc_net.net->ns.inum;
	e->cookie = c->skc_cookie.counter;
}

/* The flow of a full socket. The local port comes from inet_sport: __inet_put_port has cleared skc_num when a socket that is
 * being closed reports its end. */
static __always_inline void read_flow(struct event *e, struct sock *sk, const struct tcp_sock *tp)
{
	read_common(e, &sk->__sk_common);
	e->cookie = bpf_get_socket_cookie(sk);
	e->local_port = bpf_ntohs(tp->inet_conn.icsk_inet.inet_sport);
}

/* The flow of an incoming packet, seen from this host. False if it is no TCP over IP. */
static __always_inline bool read_packet(struct event *e, const struct sk_buff *skb)
{
	const unsigned char *network = skb->head + skb->network_header;
	struct tcp_ports ports;
	struct ipv6_header h6;
	__u8 version;

	if (bpf_probe_read_kernel(&version, sizeof(version), network))
		return 0;
	if (version >> 4 == 4) {
		struct ipv4_header h4;

		bpf_probe_read_kernel(&h4, sizeof(h4), network);
		put_ipv4(e->local_addr, h4.destination);
		put_ipv4(e->peer_addr, h4.source);
	} else if (version >> 4 == 6) {
		bpf_probe_read_kernel(&h6, sizeof(h6), network);
		__builtin_memcpy(e->local_addr, h6.destination, sizeof(e->local_addr));
		__builtin_memcpy(e->peer_addr, h6.source, sizeof(e->peer_addr));
	} else {
		return 0;
	}
	if (!e->netns) { /* no socket: the packet's route knows its namespace, as in tcp_v4_send_reset; its last bit is a flag */
		struct dst_entry *route = (void *)(skb->_skb_refdst & ~1UL);

		e->netns = BPF_CORE_READ(route, dev, nd_net.net, ns.inum);
	}
	bpf_probe_read_kernel(&ports, sizeof(ports), skb->head + skb->transport_header);
	e->local_port = bpf_ntohs(ports.destination);
	e->peer_port = bpf_ntohs(ports.source);
	return 1;
}

/*
 * Reads the snapshot of a full socket, by READ(pointer, field): directly where the verifier knows what sk and tp are, by probe reads
 * where they were found by way of a descriptor. C has no other way to say the same for both.
 * Queues are as SIOCOUTQ and SIOCINQ tell them (tcp_ioctl, tcp_inq): neither counts before the connection is established, and a FIN
 * takes a sequence number but is nothing to read. Closing a socket throws its queue away but leaves copied_seq. The ages only
 * count once there was data: tcp_init_transfer and tcp_finish_connect set both times without any.
 */
#define READ_SNAPSHOT(e, sk, tp, info, READ) ({								\
	bool opening = (e)->state == TCP_SYN_SENT || (e)->state == TCP_SYN_RECV;			\
	__u32 unread = READ(tp, rcv_nxt) - READ(tp, copied_seq), jiffies = bpf_jiffies64();		\
	struct snapshot *s = &(e)->snapshot;								\
													\
	(e)->flags |= EVENT_HAS_SNAPSHOT;								\
	s->srtt_us = READ(tp, srtt_us) >> 3;								\
	s->rttvar_us = READ(tp, mdev_us) >> 2; /* as tcp_get_info tells it */				\
	s->rto_jiffies = READ(tp, inet_conn.icsk_rto);							\
	s->cwnd = READ(tp, snd_cwnd);									\
	s->ssthresh = READ(tp, snd_ssthresh);								\
	s->total_retrans = READ(tp, total_retrans);							\
	s->lost = READ(tp, lost_out);									\
	s->outstanding = READ(tp, packets_out);								\
	s->dsack_dups = READ(tp, dsack_dups);								\
	s->snd_wnd = READ(tp, snd_wnd);									\
	s->rcv_wnd = READ(tp, rcv_wnd);									\
	s->send_queue = opening ? 0 : READ(tp, write_seq) - READ(tp, snd_una);				\
	if (unread && READ(sk, __sk_common.skc_flags) & (1UL << SOCK_DONE_BIT))				\
		unread--;										\
	s->receive_queue = opening ? 0 : unread;							\
	s->last_send_age_jiffies = READ(tp, data_segs_out) ? jiffies - READ(tp, lsndtime) : ~0U;	\
	s->last_receive_age_jiffies =									\
		READ(tp, data_segs_in) ? jiffies - READ(tp, inet_conn.icsk_ack.lrcvtime) : ~0U;		\
	if ((info) && (info)->established_ktime_ns)							\
		s->established_age_ns = (e)->ktime_ns - (info)->established_ktime_ns;			\
})
#define DIRECT(pointer, field) ((pointer)->field)

static __always_inline void read_snapshot(struct event *e, const struct sock *sk, const struct tcp_sock *tp,
					  const struct socket_info *info)
{
	READ_SNAPSHOT(e, sk, tp, info, DIRECT);
}

#endif
