// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// needed are the capabilities that loading and attaching takes, and for what (kernel/bpf/syscall.c, bpf_prog_load; from 5.8 on).
var needed = []struct {
	capability capability.Cap
	name, why  string
}{
	{capability.CAP_BPF, "CAP_BPF", "load programs"},
	{capability.CAP_PERFMON, "CAP_PERFMON", "trace and read kernel data"},
}

// explain adds to a refusal for want of privilege which capability is missing for what, and how to give it.
func explain(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	have, capErr := capability.NewPid2(0)
	if capErr != nil || have.Load() != nil {
		return err
	}
	if have.Get(capability.EFFECTIVE, capability.CAP_SYS_ADMIN) {
		return err // it contains both
	}
	var missing, names []string
	for _, n := range needed {
		if !have.Get(capability.EFFECTIVE, n.capability) {
			missing = append(missing, fmt.Sprintf("%s (to %s)", n.name, n.why))
			names = append(names, strings.ToLower(n.name))
		}
	}
	if len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%w: this process lacks %s; run it as root, or give the collector's binary what it needs: setcap %s=ep BINARY",
		err, strings.Join(missing, " and "), strings.Join(names, ","))
}
