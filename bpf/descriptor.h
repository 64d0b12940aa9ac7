/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a descriptor of the current task to its TCP socket, at the exit of a system call. */
#ifndef EBPFNET_DESCRIPTOR_H
#define EBPFNET_DESCRIPTOR_H

#include "owner.h"

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

/* The same, if it is a TCP socket; of an MPTCP socket its first subflow. */
static __always_inline struct sock *tcp_socket_of(struct task_struct *task, __u32 fd)
{
	struct sock *sk = socket_of(task, fd);
	__u16 protocol = BPF_CORE_READ(sk, sk_protocol);

	if (sk && protocol == IPPROTO_MPTCP && bpf_core_type_exists(struct mptcp_sock)) {
		sk = BPF_CORE_READ((struct mptcp_sock *)sk, first);
		protocol = BPF_CORE_READ(sk, sk_protocol);
	}
	return sk && protocol == IPPROTO_TCP && BPF_CORE_READ(sk, sk_type) == SOCK_STREAM ? sk : 0;
}

/* Flow and snapshot of a connected socket that was found so. */
static __always_inline void read_found(struct event *e, struct sock *sk, const struct socket_info *info)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct in6_addr peer = {}, local = {};

	if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		BPF_CORE_READ_INTO(&peer, sk, __sk_common.skc_v6_daddr);
		BPF_CORE_READ_INTO(&local, sk, __sk_common.skc_v6_rcv_saddr);
	}
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6 && !is_mapped(&peer)) {
		put_ipv6(e->local_addr, &local);
		put_ipv6(e->peer_addr, &peer);
	} else {
		put_ipv4(e->local_addr, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
		put_ipv4(e->peer_addr, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	}
	e->local_port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	e->peer_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	e->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	e->cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	READ_SNAPSHOT(e, sk, tp, info, BPF_CORE_READ);
}

/* The context is the format of sys_exit tracepoints, the same on all 64-bit kernels. */
struct syscall_exit {
	__u64 common;
	__s64 number;
	__s64 result;
};

#endif
