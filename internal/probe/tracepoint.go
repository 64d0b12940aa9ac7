// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// tracepoint is a program on a classic tracepoint. It is detached when the perf event closes, by whatever means.
type tracepoint struct{ event *os.File }

const maxProcessors = 8192 // the most that a kernel can be built for

// attachTracepoint attaches prog to the tracepoint "group/name". Unlike cilium/ebpf's it needs no mounted tracefs.
func attachTracepoint(prog *ebpf.Program, name string) (*tracepoint, error) {
	id, err := tracepointID(name)
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER1, Config: id,
		Sample_type: unix.PERF_SAMPLE_RAW, Sample: 1, Wakeup: 1}
	// One event on one processor that is online suffices: a program on a tracepoint runs wherever it fires.
	fd, err := -1, error(unix.ENODEV)
	for cpu := 0; errors.Is(err, unix.ENODEV) && cpu < maxProcessors; cpu++ {
		fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("open perf event: %w", err)
	}
	t := &tracepoint{event: os.NewFile(uintptr(fd), name)}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		return nil, errors.Join(fmt.Errorf("attach to perf event: %w", err), t.Close())
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("enable perf event: %w", err), t.Close())
	}
	return t, nil
}

// Close detaches the program.
func (t *tracepoint) Close() error { return t.event.Close() }

// tracepointID reads the number of a tracepoint from tracefs, wherever it is mounted, or from an instance of it that nobody else
// sees: containers and minimal systems have none mounted.
func tracepointID(name string) (uint64, error) {
	file := "events/" + name + "/id"
	var refusals []error
	for _, root := range []string{"/sys/kernel/tracing/", "/sys/kernel/debug/tracing/"} {
		f, err := os.Open(root + file)
		if err == nil {
			return readID(f)
		}
		refusals = append(refusals, err)
	}
	mount, err := detachedTracefs()
	if err != nil {
		refusals = append(refusals, fmt.Errorf("mount tracefs for this process: %w", err))
		return 0, fmt.Errorf("%w (where it is not mounted at /sys/kernel/tracing, mount it there or run as root): %w",
			errTracefs, oneLine(refusals))
	}
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: open %s: %w", errTracefs, file, err)
	}
	return readID(os.NewFile(uintptr(fd), file))
}

// detachedTracefs is a descriptor of a tracefs that is mounted nowhere and goes when the descriptor is closed.
func detachedTracefs() (int, error) {
	fs, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

func readID(f *os.File) (uint64, error) {
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0, fmt.Errorf("read tracepoint id: %w", err)
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse tracepoint id: %w", err)
	}
	return id, nil
}
