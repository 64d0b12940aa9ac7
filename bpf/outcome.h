/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a handshake ended, and whether that becomes a record. */
#ifndef EBPFNET_OUTCOME_H
#define EBPFNET_OUTCOME_H

#include "owner.h"

static __always_inline __u8 outcome_of(__u16 error)
{
	switch (error) {
	case 0:
		return OUTCOME_ABORTED;
	case ECONNREFUSED:
		return OUTCOME_REFUSED;
	case ETIMEDOUT:
		return OUTCOME_TIMED_OUT;
	case EHOSTUNREACH:
		return OUTCOME_HOST_UNREACHABLE;
	case ENETUNREACH:
		return OUTCOME_NETWORK_UNREACHABLE;
	case ECONNRESET:
		return OUTCOME_RESET;
	case EADDRNOTAVAIL:
		return OUTCOME_ADDRESS_NOT_AVAILABLE;
	}
	return OUTCOME_OTHER;
}

static __always_inline bool is_reported(__u8 outcome, __u64 duration_ns, __u32 retransmits)
{
	switch (cfg.report) {
	case REPORT_ALL:
		return 1;
	case REPORT_SLOW:
		return outcome != OUTCOME_OK || duration_ns >= cfg.slow_threshold_ns || retransmits;
	case REPORT_FAILED:
		return outcome != OUTCOME_OK;
	}
	return 0;
}

#endif
