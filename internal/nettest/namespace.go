// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// RequireVariable is the environment variable that, set to 1, makes a test fail where it would otherwise skip for lack of
// privilege, so that a skip cannot hide a broken probe in CI.
const RequireVariable = "EBPFNET_REQUIRE_LIVE"

// Require skips the test where namespaces cannot be made, or fails it where RequireVariable forbids skipping.
func Require(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Unavailable(t, "network namespaces need root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		Unavailable(t, "packet filters need nft, of the Debian package nftables")
	}
}

// Unavailable skips the test for the reason given, or fails it where RequireVariable forbids skipping.
func Unavailable(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(RequireVariable) == "1" {
		t.Fatalf("%s=1 and %s", RequireVariable, reason)
	}
	t.Skip(reason)
}

// Namespace is a network namespace without a name: it goes when the test ends and its sockets are closed.
type Namespace struct {
	Inode uint32 // as events tell it; a later namespace may have the same
	Made  uint64 // when, in nanoseconds of the monotonic clock
	ns    netns.NsHandle
}

// NewNamespace makes a namespace whose loopback interface is up.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	Require(t)
	n := &Namespace{Made: Monotonic()}
	err := inThread(func() error {
		ns, err := netns.New() // moves this thread into it
		if err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		n.ns = ns
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.ns.Close() })
	var st unix.Stat_t
	if err := unix.Fstat(int(n.ns), &st); err != nil {
		t.Fatalf("stat network namespace: %v", err)
	}
	n.Inode = uint32(st.Ino)
	n.Sysctl(t, "net.ipv6.conf.default.accept_dad", "0")
	n.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		return netlink.LinkSetUp(lo)
	})
	return n
}

// Do runs f on a thread in the namespace and fails the test with the error it returns.
func (n *Namespace) Do(t testing.TB, f func() error) {
	t.Helper()
	if err := n.do(f); err != nil {
		t.Fatal(err)
	}
}

func (n *Namespace) do(f func() error) error {
	return inThread(func() error {
		if err := netns.Set(n.ns); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// inThread runs f on a thread of its own, which ends with it: what f changes of the thread reaches nobody else.
func inThread(f func() error) error {
	result := make(chan error, 1)
	go lockedToSpareThread(func() { result <- f() })
	return <-result
}

// lockedToSpareThread runs f on a locked thread that is not the process's first one, and lets the thread end with the calling
// goroutine. The first thread cannot end, and /proc/self shows its namespaces.
func lockedToSpareThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	started := make(chan struct{})
	go lockedToSpareThread(func() {
		close(started)
		f()
	})
	<-started // until then the first thread is taken, so the other goroutine is on another one
	runtime.UnlockOSThread()
}

// Sysctl sets a sysctl of the namespace, named with dots.
func (n *Namespace) Sysctl(t testing.TB, name, value string) {
	t.Helper()
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	n.Do(t, func() error { return os.WriteFile(path, []byte(value), 0o644) })
}

// NFT adds rules in nft's syntax. Rules in a table of their own can be taken away again with RemoveTable.
func (n *Namespace) NFT(t testing.TB, rules string) {
	t.Helper()
	n.Run(t, rules, "nft", "-f", "-")
}

// Run runs a program in the namespace to its end.
func (n *Namespace) Run(t testing.TB, stdin, name string, args ...string) {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	n.Do(t, func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s given %s", name, err, bytes.TrimSpace(out), stdin)
		}
		return nil
	})
}

// Filter adds rules to a chain at the given hook of the inet family, in a table of its own, known by the name.
func (n *Namespace) Filter(t testing.TB, table, hook string, rules ...string) {
	t.Helper()
	n.NFT(t, fmt.Sprintf("table inet test_%s {\n chain c {\n  type filter hook %s priority 0; policy accept;\n  %s\n }\n}\n",
		table, hook, strings.Join(rules, "\n  ")))
}

// RemoveTable takes away a table made by Filter.
func (n *Namespace) RemoveTable(t testing.TB, table string) {
	t.Helper()
	n.NFT(t, "delete table inet test_"+table+"\n")
}

// DropFirst is a rule that drops the first count packets that match, and no others.
func DropFirst(count int, match string) string {
	return fmt.Sprintf("%s numgen inc mod 1000000000 < %d drop", match, count)
}

// DropNth is a rule that drops the nth packet, from 0, of those that match.
func DropNth(nth int, match string) string {
	return fmt.Sprintf("%s numgen inc mod 1000000000 == %d drop", match, nth)
}

// Matches of TCP segments by their flags, for the rules of Filter; the port is to be matched beside them.
const (
	MatchSYN    = "tcp flags & (syn|ack) == syn"
	MatchSYNACK = "tcp flags & (syn|ack) == syn|ack"
	MatchFIN    = "tcp flags & fin == fin"
	MatchRST    = "tcp flags & rst == rst"
	MatchPush   = "tcp flags & psh == psh"
)

// KernelCounters are the kernel's counters of a namespace by protocol and name: "Tcp.ActiveOpens", "TcpExt.TCPAbortOnClose".
type KernelCounters map[string]uint64

// Counters reads /proc/net/snmp and /proc/net/netstat of the namespace.
func (n *Namespace) Counters(t testing.TB) KernelCounters {
	t.Helper()
	counters := KernelCounters{}
	n.Do(t, func() error { return counters.read() })
	return counters
}

// HostCounters reads the same of the namespace that the test itself runs in.
func HostCounters(t testing.TB) KernelCounters {
	t.Helper()
	counters := KernelCounters{}
	if err := counters.read(); err != nil {
		t.Fatal(err)
	}
	return counters
}

func (c KernelCounters) read() error {
	for _, file := range []string{"/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read kernel counters: %w", err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for i := 0; i+1 < len(lines); i += 2 { // a line of names, a line of values
			names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
			for j := 1; j < len(names) && j < len(values); j++ {
				v, err := strconv.ParseInt(values[j], 10, 64) // MaxConn is -1
				if err != nil {
					return fmt.Errorf("parse %s: %w", file, err)
				}
				c[strings.TrimSuffix(names[0], ":")+"."+names[j]] = uint64(v)
			}
		}
	}
	return nil
}

// TCPSockets is the number of TCP sockets of the namespace that have a port or a peer, be they held by a process or not.
func (n *Namespace) TCPSockets(t testing.TB) int {
	t.Helper()
	var sockets int
	n.Do(t, func() error {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read TCP sockets: %w", err)
			}
			sockets += bytes.Count(text, []byte("\n")) - 1 // less the headings
		}
		return nil
	})
	return sockets
}

// Since is what was counted after before was read.
func (c KernelCounters) Since(before KernelCounters) KernelCounters {
	delta := KernelCounters{}
	for name, v := range c {
		delta[name] = v - before[name]
	}
	return delta
}

// Steer makes the CPUs of the mask process what the interface receives (receive packet steering).
func (n *Namespace) Steer(t testing.TB, iface, mask string) {
	t.Helper()
	n.Do(t, func() error {
		// /sys shows the interfaces of the namespace it was mounted in, so this thread mounts its own.
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return fmt.Errorf("make mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return fmt.Errorf("mount sysfs: %w", err)
		}
		return os.WriteFile(filepath.Join("/sys/class/net", iface, "queues/rx-0/rps_cpus"), []byte(mask), 0o644)
	})
}
