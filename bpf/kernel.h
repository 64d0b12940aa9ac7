/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's fields that the programs read, and no others. Offsets are relocated to the running kernel when the objects are
 * loaded (preserve_access_index), so neither the order nor the size of anything here matters.
 */
#ifndef EBPFNET_KERNEL_H
#define EBPFNET_KERNEL_H

#include "types.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/net/net_namespace.h, include/linux/ns_common.h */
struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net;
} possible_net_t;

/* include/linux/types.h, include/uapi/linux/in6.h */
typedef struct {
	__s64 counter;
} atomic64_t;
typedef struct {
	int counter;
} atomic_t;
struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

/* include/net/sock.h */
struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	unsigned long skc_flags;
};
typedef struct {
	int owned;
} socket_lock_t;
struct socket;
struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	struct socket *sk_socket;
	int sk_err;
	__u16 sk_protocol;
	__u16 sk_type;
	__u8 sk_userlocks;
	__u8 sk_shutdown;
};

/* include/linux/net.h, include/linux/fs.h, include/linux/fdtable.h */
struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct qstr d_name;
};
struct path {
	struct dentry *dentry;
};
struct file {
	struct path f_path;
	void *private_data;
};
struct socket {
	struct file *file;
	struct sock *sk;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};

/* include/net/inet_sock.h, include/net/inet_connection_sock.h, include/linux/tcp.h, net/mptcp/protocol.h */
struct inet_sock {
	__be16 inet_sport;
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u32 icsk_rto;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
	__u8 icsk_pending;
	struct {
		__u32 lrcvtime;
	} icsk_ack;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 srtt_us;
	__u32 mdev_us;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 total_retrans;
	__u32 lost_out;
	__u32 packets_out;
	__u32 dsack_dups;
	__u32 snd_wnd;
	__u32 rcv_wnd;
	__u32 write_seq;
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 lsndtime;
	__u32 segs_out;
	__u32 data_segs_in;
	__u32 data_segs_out;
	__u32 retrans_stamp;
	__u32 total_rto_time;
	__u32 rcv_tstamp;
	__u8 fastopen_connect : 1;
	__u8 tcp_usec_ts : 1;
};
struct mptcp_sock {
	struct sock *first;
};

/* include/net/request_sock.h */
struct request_sock {
	struct sock_common __req_common;
	__u8 num_retrans;
};

/* include/linux/skbuff.h, include/linux/netdevice.h, include/net/dst.h, include/net/tcp.h */
struct net_device {
	possible_net_t nd_net;
};
struct dst_entry {
	struct net_device *dev;
};
struct sk_buff {
	unsigned long _skb_refdst;
	char cb[48];
	__u16 transport_header;
	__u16 network_header;
	unsigned char *head;
};
struct tcp_skb_cb {
	__u16 tcp_gso_segs;
};

/* include/linux/pid.h */
struct upid {
	int nr;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/* include/linux/kernfs.h, include/linux/cgroup-defs.h */
struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct css_set {
	struct cgroup *dfl_cgrp;
	struct cgroup_subsys_state *subsys[16];
};

/* include/linux/sched.h, include/linux/mm_types.h */
struct mm_struct {
	struct file *exe_file;
};
struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	__u64 start_boottime;
	char comm[16];
	struct mm_struct *mm;
	struct files_struct *files;
	struct css_set *cgroups;
};

/* arch/x86/include/asm/ptrace.h, arch/arm64/include/asm/ptrace.h */
struct pt_regs {
#if defined(__TARGET_ARCH_x86)
	unsigned long di;
	unsigned long si;
	unsigned long dx;
#elif defined(__TARGET_ARCH_arm64)
	__u64 regs[31];
	__u64 orig_x0;
#endif
};

/* kernel/bpf/task_iter.c */
struct bpf_iter__task_file {
	struct task_struct *task;
	struct file *file;
};

#pragma clang attribute pop

/* Of include/uapi/linux/ip.h, ipv6.h, tcp.h, in.h, in6.h: formats of the wire and of the system calls, not of the kernel. */
struct ipv4_header {
	__u8 version_length;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};
struct ipv6_header {
	__u8 version_class;
	__u8 flow[3];
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__u8 source[16];
	__u8 destination[16];
};
struct tcp_ports {
	__be16 source;
	__be16 destination;
};
struct sockaddr_ipv4 {
	__u16 family;
	__be16 port;
	__be32 addr;
};
struct sockaddr_ipv6 {
	__u16 family;
	__be16 port;
	__be32 flow;
	__u8 addr[16];
};

enum { AF_INET = 2, AF_INET6 = 10 };
enum { IPPROTO_TCP = 6, IPPROTO_MPTCP = 262 };
enum { SOCK_STREAM = 1 };
enum { SOCKADDR_SIZE_MAX = 128 }; /* struct sockaddr_storage */

/* include/net/tcp_states.h */
enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT1,
	TCP_FIN_WAIT2,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
	TCP_CLOSING,
	TCP_NEW_SYN_RECV,
};

/* include/net/tcp.h, include/net/inet_connection_sock.h, include/net/sock.h, include/linux/sched.h */
enum { TCPHDR_FIN = 0x01, TCPHDR_SYN = 0x02, TCPHDR_ACK = 0x10 };
enum { TCP_CA_RECOVERY = 3, TCP_CA_LOSS = 4 };
enum { ICSK_TIME_LOSS_PROBE = 5 };
enum { SOCK_DONE_BIT = 1 };
enum { SOCK_BINDPORT_LOCK = 8 };
enum { RCV_SHUTDOWN = 1 };
enum { PF_KTHREAD = 0x00200000 };

/* include/uapi/asm-generic/errno*.h */
enum {
	EPERM = 1,
	ENOMEM = 12,
	EACCES = 13,
	ENODEV = 19,
	EINVAL = 22,
	EADDRNOTAVAIL = 99,
	ENETDOWN = 100,
	ENETUNREACH = 101,
	ECONNABORTED = 103,
	ECONNRESET = 104,
	ENOBUFS = 105,
	ETIMEDOUT = 110,
	ECONNREFUSED = 111,
	EHOSTUNREACH = 113,
};

#endif
