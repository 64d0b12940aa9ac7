/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose a socket is: taken from a task, or from what the table knows. */
#ifndef EBPFNET_OWNER_H
#define EBPFNET_OWNER_H

#include "socket.h"

static __always_inline __u32 innermost_number(struct pid *pid, __u32 outermost)
{
	__u32 level = pid->level;
	int nr = 0;

	if (!level) /* the host's own namespace: the number is known */
		return outermost;
	bpf_probe_read_kernel(&nr, sizeof(nr),
			      (void *)pid + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid) +
				      bpf_core_field_offset(struct upid, nr));
	return nr;
}

static __always_inline __u64 cgroup_of(const struct task_struct *task)
{
	if (cfg.cgroup_subsys < 0)
		return task->cgroups->dfl_cgrp->kn->id;
	/* On a v1 or hybrid host the root of cgroup v2 holds every process. */
	return task->cgroups->subsys[cfg.cgroup_subsys]->cgroup->kn->id;
}

/* The task as an owner. False for threads of the kernel (NFS, iSCSI and the like connect from a kworker): nobody's process. */
static __always_inline bool take_owner(struct owner *o, const struct task_struct *task)
{
	const struct task_struct *leader = task->group_leader;
	struct mm_struct *mm;
	struct file *exe;

	if (task->flags & PF_KTHREAD)
		return 0;
	o->pid = task->tgid;
	o->tid = task->pid;
	o->vpid = innermost_number(leader->thread_pid, o->pid);
	o->vtid = innermost_number(task->thread_pid, o->tid);
	o->start_boottime_ns = leader->start_boottime;
	o->cgroup_id = cgroup_of(task);
	bpf_probe_read_kernel(o->comm, sizeof(o->comm), task->comm);
	mm = task->mm;
	if (!mm) /* exiting: do_exit has let go of its memory before its descriptors are closed */
		return 1;
	exe = mm->exe_file;
	if (exe)
		bpf_probe_read_kernel_str(o->executable, sizeof(o->executable), exe->f_path.dentry->d_name.name);
	return 1;
}

/* The current thread. Only in process context: in a softirq the current thread is whoever was interrupted. */
static __always_inline bool capture_owner(struct owner *o)
{
	return take_owner(o, (void *)bpf_get_current_task_btf());
}

/* The thread that opened the socket, or the process that had it when the collector started. */
static __always_inline void own_by_opener(struct event *e, const struct socket_info *s)
{
	if (!s || !(s->flags & SOCKET_HAS_OWNER))
		return;
	e->owner = s->owner;
	e->owner_source = s->flags & SOCKET_SCANNED ? OWNER_SCAN : OWNER_OPENER;
}

/* Whether the collector only happens to close somebody's socket: as long as the scan looks at a descriptor it holds it, and if it is
 * closed meanwhile, the last to let go does the work. */
static __always_inline bool is_in_passing(const struct owner *current, const struct socket_info *s)
{
	return current->pid == cfg.self && !(s && s->flags & SOCKET_HAS_OWNER && s->owner.pid == cfg.self);
}

/* The thread that does something to its own socket; a kernel thread does it for whoever opened it. */
static __always_inline void own_by_current(struct event *e, const struct socket_info *s)
{
	if (!capture_owner(&e->owner) || is_in_passing(&e->owner, s)) {
		__builtin_memset(&e->owner, 0, sizeof(e->owner));
		own_by_opener(e, s);
		return;
	}
	e->owner_source = OWNER_CURRENT;
	if (!e->owner.executable[0] && s && s->owner.pid == e->owner.pid &&
	    s->owner.start_boottime_ns == e->owner.start_boottime_ns)
		__builtin_memcpy(e->owner.executable, s->owner.executable, sizeof(e->owner.executable));
}

#endif
