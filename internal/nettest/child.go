// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const childVariable = "EBPFNET_NETTEST_CHILD"

// starting is held for writing while a process starts, and for reading while a socket is closed. Until a process runs its program
// it holds every descriptor of this one, and whoever lets go of a socket last is the one that closes it. syscall.ForkLock is not
// enough: the kernel lets the parent go on before it closes the child's descriptors (begin_new_exec).
var starting sync.RWMutex

// RunChild is to be called first in TestMain. In a process started by Namespace.Child it runs the child of that name, with the
// arguments given there, and exits; otherwise it does nothing.
func RunChild(children map[string]func(args []string) error) {
	name := os.Getenv(childVariable)
	if name == "" {
		return
	}
	child, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no child is called %q\n", name)
		os.Exit(2)
	}
	fmt.Println() // it runs: see Child
	if err := child(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is a process of the test's own binary.
type Child struct {
	PID    int // in the test's pid namespace
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// Child starts one of the children that RunChild knows, in the namespace, and with ownPIDs as the first process of a pid
// namespace. It ends with the test.
func (n *Namespace) Child(t testing.TB, ownPIDs bool, name string, args ...string) *Child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if ownPIDs {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
	}
	c := &Child{cmd: cmd}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(stdout)
	starting.Lock()
	defer starting.Unlock()
	n.Do(t, cmd.Start)
	c.PID = cmd.Process.Pid
	t.Cleanup(c.End)
	c.Line(t) // it runs
	return c
}

// Line is the next line that the child prints.
func (c *Child) Line(t testing.TB) string {
	t.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("read from child: %v", err)
	}
	return strings.TrimSpace(line)
}

// Send gives the child a line to read.
func (c *Child) Send(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.stdin, line); err != nil {
		t.Fatalf("write to child: %v", err)
	}
}

// Kill ends the child by SIGKILL.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// End closes the child's standard input, which it should take as its end, and waits for it.
func (c *Child) End() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

// TIDOf is the thread id, in the test's pid namespace, of the child's thread that has the given id in the child's own.
func (c *Child) TIDOf(t testing.TB, vtid int) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/task", c.PID)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(filepath.Join(dir, task.Name(), "status"))
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(status)) {
			ids, ok := strings.CutPrefix(line, "NSpid:")
			if !ok {
				continue
			}
			fields := strings.Fields(ids)
			if fields[len(fields)-1] == strconv.Itoa(vtid) {
				tid, err := strconv.Atoi(task.Name())
				if err != nil {
					t.Fatal(err)
				}
				return tid
			}
		}
	}
	t.Fatalf("process %d has no thread %d", c.PID, vtid)
	return 0
}
