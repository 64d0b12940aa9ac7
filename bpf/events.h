/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ABI between the kernel side and internal/probe. bpf2go makes the Go types from these definitions (by BTF), so no layout is
 * written twice; the numbers of the enums are those of internal/event, and a test holds the two together.
 */
#ifndef EBPFNET_EVENTS_H
#define EBPFNET_EVENTS_H

#include "types.h"

enum event_kind {
	EVENT_UNKNOWN,
	EVENT_CONNECT_COMPLETED,
	EVENT_CONNECT_FAILED,
	EVENT_SYN_RETRANSMITTED,
	EVENT_RESET_SENT,
	EVENT_RESET_RECEIVED,
	EVENT_SEGMENT_RETRANSMITTED,
	EVENT_SOCKET_CLOSED, /* a socket that retransmitted is gone; only ktime_ns, cookie and kind count */
	EVENT_ACCEPT_COMPLETED,
	EVENT_LOSS_ENTERED,
	EVENT_RECOVERY_ENTERED,
	EVENT_KINDS,
};

enum role {
	ROLE_CLIENT,
	ROLE_SERVER,
	ROLES,
};

enum outcome {
	OUTCOME_OK,
	OUTCOME_REFUSED,
	OUTCOME_TIMED_OUT,
	OUTCOME_HOST_UNREACHABLE,
	OUTCOME_NETWORK_UNREACHABLE,
	OUTCOME_RESET,
	OUTCOME_ADDRESS_NOT_AVAILABLE,
	OUTCOME_ABORTED,
	OUTCOME_OTHER,
	OUTCOMES,
};

enum segment_type {
	SEGMENT_SYN,
	SEGMENT_SYNACK,
	SEGMENT_DATA,
	SEGMENT_FIN,
	SEGMENT_TYPES,
};

enum retransmit_type {
	RETRANSMIT_UNKNOWN,
	RETRANSMIT_FAST,
	RETRANSMIT_TIMEOUT,
	RETRANSMIT_TAIL_LOSS_PROBE,
	RETRANSMIT_TYPES,
};

enum direction {
	DIRECTION_TRANSMIT,
	DIRECTION_RECEIVE,
	DIRECTIONS,
};

enum owner_source {
	OWNER_NONE,
	OWNER_CURRENT,
	OWNER_OPENER,
	OWNER_SCAN,
	OWNER_SOURCES,
};

enum report {
	REPORT_NONE,
	REPORT_FAILED,
	REPORT_SLOW,
	REPORT_ALL,
};

enum event_flag {
	EVENT_HAS_SNAPSHOT = 1,
	EVENT_HAS_DURATION = 2, /* duration_ns counts: the SYN was seen too */
	EVENT_HAS_WAIT = 4,	/* wait_ns counts: the end of the handshake was seen too */
};

#define TCP_CA_STATES 5		/* enum tcp_ca_state, the same on all kernels: Open, Disorder, CWR, Recovery, Loss */
#define RESET_REASONS 64	/* reset reasons counted apart; the last takes those above */
#define HISTOGRAM_BOUNDS 192	/* buckets of a histogram but for the one above all bounds */
#define SEARCH_BOUNDS 256	/* HISTOGRAM_BOUNDS rounded up to a power of two */
#define COMM_SIZE 16
#define EXECUTABLE_SIZE 48

/* A process and a thread, taken in process context. */
struct owner {
	__u32 pid;	/* thread group id, host's pid namespace */
	__u32 tid;	/* thread id, host's pid namespace */
	__u32 vpid;	/* thread group id, the process's innermost pid namespace */
	__u32 vtid;	/* thread id, the thread's innermost pid namespace */
	__u64 start_boottime_ns;
	__u64 cgroup_id; /* inode number of the cgroup */
	char comm[COMM_SIZE];
	char executable[EXECUTABLE_SIZE]; /* last element of its path; cut to EXECUTABLE_SIZE - 1 */
};
_Static_assert(sizeof(struct owner) == 96, "struct owner");

/* State of a full TCP socket. Meanings and units are those of struct tcp_sock unless the name says otherwise. */
struct snapshot {
	__u32 srtt_us;	/* smoothed round-trip time */
	__u32 rttvar_us;
	__u32 rto_jiffies;
	__u32 cwnd;	/* segments */
	__u32 ssthresh; /* segments */
	__u32 total_retrans;
	__u32 lost;
	__u32 outstanding;
	__u32 dsack_dups;
	__u32 snd_wnd;		/* bytes */
	__u32 rcv_wnd;		/* bytes */
	__u32 send_queue;	/* bytes, unacknowledged and unsent */
	__u32 receive_queue;	/* bytes, unread */
	__u32 last_send_age_jiffies;	/* ~0: never sent data */
	__u32 last_receive_age_jiffies; /* ~0: never received data */
	__u32 pad;
	__u64 established_age_ns;	/* 0: not known */
};
_Static_assert(sizeof(struct snapshot) == 72, "struct snapshot");

/* One happening. What is not known is zero. */
struct event {
	__u64 ktime_ns;		/* CLOCK_MONOTONIC */
	__u64 cookie;		/* socket cookie */
	__u32 netns;		/* inode number of the network namespace */
	__u16 local_port;	/* host order */
	__u16 peer_port;	/* host order */
	__u8 local_addr[16];	/* IPv4 as ::ffff:a.b.c.d */
	__u8 peer_addr[16];
	__u8 kind;		/* enum event_kind */
	__u8 state;		/* TCP state before the event, the kernel's number */
	__u8 owner_source;	/* enum owner_source; OWNER_NONE: owner does not count */
	__u8 flags;		/* enum event_flag */
	__u8 role;		/* enum role */
	__u8 outcome;		/* enum outcome */
	__u8 segment;		/* enum segment_type */
	__u8 retransmit;	/* enum retransmit_type */
	__u64 duration_ns;	/* SYN, or first SYN-ACK, to outcome */
	__u64 wait_ns;		/* in the accept queue */
	__u32 count;		/* SYN retransmits of a handshake; attempt of a SYN retransmit; segments of a retransmit */
	__u16 error;		/* errno of a failed connect */
	__u16 reason;		/* the kernel's enum sk_rst_reason */
	struct owner owner;
	struct snapshot snapshot;
};
_Static_assert(sizeof(struct event) == 256, "struct event");

/* Durations by bucket: bucket[i] holds those in (bounds[i - 1], bounds[i]], the last one those above all bounds. */
struct histogram {
	__u64 sum_ns;
	__u64 bucket[HISTOGRAM_BOUNDS + 1];
};

/* What is counted before any threshold or limit; one of these per CPU. */
struct counts {
	__u64 connections[ROLES][OUTCOMES];
	__u64 retransmits[SEGMENT_TYPES][RETRANSMIT_TYPES];
	__u64 resets[DIRECTIONS][RESET_REASONS];
	__u64 congestion[TCP_CA_STATES]; /* states entered */
	__u64 seen[EVENT_KINDS];	/* events that were to become records */
	__u64 ring_full[EVENT_KINDS];	/* of those, lost for want of room */
	__u64 sockets_added;
	__u64 sockets_removed;
	__u64 sockets_refused;		/* the table of sockets was full */
};

/* Set before load from one Go function. */
struct config {
	__u64 slow_threshold_ns;
	__u64 slow_wait_threshold_ns;
	__u64 wakeup_bytes;	/* fill of the ring buffer at which the reader is woken */
	__s32 cgroup_subsys;	/* cgroup v1: index of the subsystem whose cgroup identifies a container; -1: cgroup v2 */
	__u8 records;		/* 0: nobody reads records, count only */
	__u8 report;		/* enum report */
	__u8 reset_no_socket;	/* answers to strays become records */
	__u8 accept_report;	/* enum report */
	__u32 self;		/* the collector's thread group id, host's pid namespace */
	__u8 exclude_self;	/* the collector's own connections are neither told nor counted */
	__u8 pad[3];
};
_Static_assert(sizeof(struct config) == 40, "struct config");

#endif
