// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	RunChild(map[string]func([]string) error{"echo": func(args []string) error {
		fmt.Println(unix.Getpid(), unix.Gettid(), strings.Join(args, " "))
		_, err := io.Copy(os.Stdout, bufio.NewReader(os.Stdin))
		return err
	}})
	os.Exit(m.Run())
}

func connect(t *testing.T, ns *Namespace, f Family, to netip.AddrPort) error {
	t.Helper()
	var result error
	ns.Do(t, func() error {
		s, err := NewSocket(f)
		if err != nil {
			return err
		}
		s.CloseAtEnd(t)
		result = s.Connect(to)
		return nil
	})
	return result
}

func TestClientReachesServerInEveryFamilyAtOnce(t *testing.T) {
	Require(t)
	for name, make := range map[string]func(testing.TB) *Net{"direct": New, "routed": NewRouted} {
		for _, f := range Families() {
			t.Run(name+"/"+f.String(), func(t *testing.T) {
				n := make(t)
				l := n.Server.Listen(t, n.ServerAddr(f))
				l.Serve(t, Drain)
				if err := connect(t, n.Client, f, l.Addr); err != nil {
					t.Fatal(err)
				}
				if again := n.Client.Counters(t)["Tcp.RetransSegs"]; again != 0 {
					t.Errorf("%d segments were lost in a network that loses none", again)
				}
			})
		}
	}
}

func TestNamespacesShareNothing(t *testing.T) {
	a, b := NewNamespace(t), NewNamespace(t)
	if a.Inode == b.Inode {
		t.Errorf("both are %d", a.Inode)
	}
	l := a.ListenPort(t, netip.MustParseAddrPort("127.0.0.1:80"))
	l.Serve(t, Reset)
	if err := connect(t, a, V4, l.Addr); err != nil {
		t.Error(err)
	}
	if err := connect(t, b, V4, l.Addr); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v instead of a refusal", err)
	}
	if opens := b.Counters(t).Since(KernelCounters{})["Tcp.ActiveOpens"]; opens != 1 {
		t.Errorf("%d connects counted instead of one", opens)
	}
	a.Sysctl(t, "net.ipv4.tcp_syn_retries", "1")
	var got string
	b.Do(t, func() error {
		text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syn_retries")
		got = strings.TrimSpace(string(text))
		return err
	})
	if got == "1" {
		t.Error("a sysctl of one namespace shows in the other")
	}
}

func TestFilterDropsJustTheFirst(t *testing.T) {
	n := New(t)
	l := n.Server.Listen(t, n.ServerAddr(V4))
	l.Serve(t, Drain)
	n.Server.Filter(t, "loss", "input", DropFirst(1, MatchSYN))
	for range 2 {
		if err := connect(t, n.Client, V4, l.Addr); err != nil {
			t.Fatal(err)
		}
	}
	if lost := n.Client.Counters(t)["TcpExt.TCPSynRetrans"]; lost != 1 {
		t.Errorf("%d SYNs were lost instead of one", lost)
	}
	n.Server.Filter(t, "wall", "input", "tcp dport 81 reject with tcp reset")
	n.Server.RemoveTable(t, "wall")
}

func TestThreadHasItsNameAndTheProcessKeepsIts(t *testing.T) {
	ns := NewNamespace(t)
	before, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	th := ns.Thread(t, "fifteen letters")
	var comm []byte
	var tid int
	th.Do(func() {
		tid = unix.Gettid()
		comm, err = os.ReadFile("/proc/thread-self/comm")
	})
	if err != nil || strings.TrimSpace(string(comm)) != th.Comm {
		t.Errorf("thread is called %q, %v", comm, err)
	}
	if tid != th.TID || tid == os.Getpid() {
		t.Errorf("thread %d instead of %d", tid, th.TID)
	}
	after, err := os.ReadFile("/proc/self/comm")
	if err != nil || string(after) != string(before) {
		t.Errorf("process is called %q, %v", after, err)
	}
}

func TestChildHasPIDsOfItsOwn(t *testing.T) {
	ns := NewNamespace(t)
	child := ns.Child(t, true, "echo", "hello", "there")
	fields := strings.SplitN(child.Line(t), " ", 3)
	if fields[0] != "1" || fields[2] != "hello there" {
		t.Errorf("child said %q", fields)
	}
	vtid, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	if tid := child.TIDOf(t, vtid); tid < child.PID {
		t.Errorf("thread %d of process %d", tid, child.PID)
	}
	child.Send(t, "again")
	if line := child.Line(t); line != "again" {
		t.Errorf("child said %q", line)
	}
	child.Kill()
	if _, err := os.Stat(fmt.Sprint("/proc/", child.PID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("child is still there: %v", err)
	}
}

func TestHandmadeSegmentIsAnswered(t *testing.T) {
	for _, f := range []Family{V4, V6} {
		n := New(t)
		n.Client.Do(t, Segment{From: netip.AddrPortFrom(n.ClientAddr(f), 1000), To: netip.AddrPortFrom(n.ServerAddr(f), 1001),
			Flags: ACK | PSH, Payload: []byte("odd")}.Send)
		counters := n.Server.Counters(t)
		if counters["Tcp.OutRsts"] != 1 || counters["Tcp.InCsumErrors"] != 0 {
			t.Errorf("%s: %d resets, %d wrong checksums", f, counters["Tcp.OutRsts"], counters["Tcp.InCsumErrors"])
		}
	}
}
