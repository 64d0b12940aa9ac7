// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

// Package incidents_test provokes real incidents with the programs that have them, and reads what the built collector tells of
// them. It needs root, Debian's nginx and gunicorn, and the collector, which `make build` makes.
package incidents_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

func TestMain(m *testing.M) {
	nettest.RunChild(map[string]func([]string) error{"connect": connectWhenAsked})
	os.Exit(m.Run())
}

// connectWhenAsked is a child that, at each line it reads, connects to the IPv4 address and port given to it, which fails. It
// prints its local port and its thread.
func connectWhenAsked(args []string) error {
	to, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		s, err := nettest.NewSocket(nettest.V4)
		if err != nil {
			return err
		}
		if err := s.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			return err
		}
		local, err := s.Local()
		if err != nil {
			return err
		}
		if err := s.Connect(to); err == nil {
			return fmt.Errorf("connected to %s", to)
		}
		fmt.Println(local.Port(), unix.Gettid())
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil // the test has ended
}

// attempt has the child connect and tells its thread and local port.
func attempt(t *testing.T, child *nettest.Child) (tid, port int) {
	t.Helper()
	child.Send(t, "")
	_, err := fmt.Sscan(child.Line(t), &port, &tid)
	require.NoError(t, err)
	return tid, port
}
