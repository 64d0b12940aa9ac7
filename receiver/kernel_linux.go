// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package ebpfnetreceiver

import (
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

func hostKernel() kernel {
	return kernel{
		open: func(s probe.Settings) (source, error) {
			src, err := probe.Open(s)
			if err != nil {
				return nil, err // not src: a nil pointer in an interface is not nil
			}
			return src, nil
		},
		now: func() uint64 {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				return 0 // it cannot fail; at time zero no interval is over
			}
			return uint64(now.Nano())
		},
	}
}
