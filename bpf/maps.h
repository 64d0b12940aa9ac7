/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that all objects share by name, the tunables, and the two ways to tell user space something: a record, a count. */
#ifndef EBPFNET_MAPS_H
#define EBPFNET_MAPS_H

#include "events.h"
#include <bpf/bpf_helpers.h>

const volatile struct config cfg = {};

/* Inclusive upper bounds of the histograms in nanoseconds, ascending; the rest is ~0. */
const volatile __u64 bounds[SEARCH_BOUNDS] = {};

/* Records. Inserted by reserve(), consumed by probe.Source. Full: the event is counted in ring_full and lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20); /* set before load */
} events SEC(".maps");

/* Key: 0. Counters since load, one copy per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct counts);
	__uint(max_entries, 1);
} counters SEC(".maps");

/* Key: role * OUTCOMES + outcome. Durations of handshakes, one copy per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct histogram);
	__uint(max_entries, ROLES *OUTCOMES);
} handshakes SEC(".maps");

/* Key: 0. Waits in the accept queue, one copy per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct histogram);
	__uint(max_entries, 1);
} accept_waits SEC(".maps");

/* Atomic although the map is per CPU: a softirq can interrupt another program between load and store. */
#define count(field, n) ({						\
	__u32 zero = 0;							\
	struct counts *c = bpf_map_lookup_elem(&counters, &zero);		\
	if (c)								\
		__sync_fetch_and_add(&c->field, n);			\
})

/* The first bound that is not less than the value, by bisection: exact, and the same eight steps for every table of bounds. */
static __always_inline __u32 bucket_of(__u64 value)
{
	__u32 i = 0;

#pragma unroll
	for (__u32 step = SEARCH_BOUNDS / 2; step; step /= 2)
		if (bounds[(i + step - 1) & (SEARCH_BOUNDS - 1)] < value)
			i += step;
	return i > HISTOGRAM_BOUNDS ? HISTOGRAM_BOUNDS : i;
}

static __always_inline void count_in(struct histogram *h, __u64 duration_ns)
{
	if (!h)
		return;
	__sync_fetch_and_add(&h->sum_ns, duration_ns);
	__sync_fetch_and_add(&h->bucket[bucket_of(duration_ns)], 1);
}

static __always_inline void count_duration(__u32 role, __u32 outcome, __u64 duration_ns)
{
	__u32 key = role * OUTCOMES + outcome;

	count_in(bpf_map_lookup_elem(&handshakes, &key), duration_ns);
}

static __always_inline void count_wait(__u64 wait_ns)
{
	__u32 key = 0;

	count_in(bpf_map_lookup_elem(&accept_waits, &key), wait_ns);
}

/* A zeroed record, or NULL when nobody reads records or there is no room; either way it is counted. */
static __always_inline struct event *reserve(enum event_kind kind, __u64 now)
{
	struct event *e;

	if (!cfg.records)
		return 0;
	count(seen[kind], 1);
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(ring_full[kind], 1);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->ktime_ns = now;
	return e;
}

/* Waking the reader costs some 11 us, many times the event: it polls, and is woken only when the ring fills up faster than that. */
static __always_inline void submit(struct event *e)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(e, waiting >= cfg.wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

#endif
