// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// errTracefs marks a refusal to look up a tracepoint, which takes other privileges than loading a program.
var errTracefs = errors.New("look up tracepoint in tracefs")

// need is a capability, and for what it is needed.
type need struct {
	capability capability.Cap
	name, why  string
}

// Loading and tracing: bpf_prog_load and bpf_raw_tp_link_attach in kernel/bpf/syscall.c, perf_event_open; from 5.8 on.
// Looking up: the directories of tracefs belong to root, with mode 0700; mounting an instance takes CAP_SYS_ADMIN.
var (
	needsToLoad = []need{
		{capability.CAP_BPF, "CAP_BPF", "load programs"},
		{capability.CAP_PERFMON, "CAP_PERFMON", "trace and read kernel data"},
	}
	needsToLookUp = []need{
		{capability.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "read tracefs"},
	}
)

// explain adds to a refusal for want of privilege which capability is missing for what, and how to give it.
func explain(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	needs := needsToLoad
	if errors.Is(err, errTracefs) {
		needs = needsToLookUp
	}
	have, capErr := capability.NewPid2(0)
	if capErr != nil || have.Load() != nil {
		return err
	}
	var missing []string
	for _, n := range needs {
		// CAP_SYS_ADMIN contains the two newer ones.
		if !have.Get(capability.EFFECTIVE, n.capability) && !have.Get(capability.EFFECTIVE, capability.CAP_SYS_ADMIN) {
			missing = append(missing, fmt.Sprintf("%s (to %s)", n.name, n.why))
		}
	}
	if len(missing) == 0 {
		return err
	}
	refusal := unix.EPERM // what else the error says, of MEMLOCK for instance, is about other causes
	if errors.Is(err, unix.EACCES) {
		refusal = unix.EACCES
	}
	return fmt.Errorf("this process lacks %s; run it as root, or give the collector's binary what it needs "+
		"(setcap cap_bpf,cap_perfmon,cap_dac_read_search=ep BINARY): %w", strings.Join(missing, " and "), refusal)
}

// oneLine joins errors in one line, unlike errors.Join; nil if there are none.
func oneLine(errs []error) error {
	var joined error
	for _, err := range errs {
		if joined == nil {
			joined = err
		} else {
			joined = fmt.Errorf("%w; %w", joined, err)
		}
	}
	return joined
}
