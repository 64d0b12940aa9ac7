// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

package incidents_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// process is a program that runs for the test, and ends with it or with its process.
type process struct {
	name   string
	cmd    *exec.Cmd
	output output
	ended  chan struct{}
}

// start starts the program on the thread that on runs functions on, which must live as long as the program may.
func start(t *testing.T, name string, cmd *exec.Cmd, on func(func())) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // should the test die; it is of the thread that starts the program
	err := errors.New("not started")
	on(func() { err = cmd.Start() })
	require.NoError(t, err)
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.output.tail(8000))
		}
	})
	return p
}

// hostThread runs functions on one thread that lives until the test ends.
func hostThread(t *testing.T) func(func()) {
	work, done := make(chan func()), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range work {
			f()
			done <- struct{}{}
		}
	}()
	t.Cleanup(func() { close(work) })
	return func(f func()) {
		work <- f
		<-done
	}
}

// startServer starts a program in the namespace, as the first process of a pid namespace, as in a container: all of its processes
// end with it.
func startServer(t *testing.T, n *nettest.Namespace, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(installed(t, name), args...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	return start(t, name, cmd, n.Thread(t, "starter").Do)
}

// installed finds a program that Debian has, or skips the test.
func installed(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{"/usr/sbin/" + name, "/usr/bin/" + name, name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	nettest.Unavailable(t, fmt.Sprintf("there is no %s, of the Debian package of that name", name))
	return ""
}

// kill ends the program at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// wait waits until the program ends by itself and returns its exit code.
func (p *process) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		t.Fatalf("%s did not end within %s", p.name, within)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// output is what a program has printed.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) tail(most int) string {
	s := o.String()
	return s[max(0, len(s)-most):]
}

// identity is what /proc says of a process.
type identity struct {
	pid, vpid        int64
	executable, comm string
}

// worker awaits the one child process of a server and tells it.
func (p *process) worker(t *testing.T) identity {
	t.Helper()
	var children []int
	require.Eventually(t, func() bool {
		children = childrenOf(p.cmd.Process.Pid)
		return len(children) == 1
	}, 20*time.Second, 20*time.Millisecond, "%s has no worker: %s", p.name, &p.output)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", children[0]))
	require.NoError(t, err)
	id := identity{pid: int64(children[0])}
	for line := range strings.Lines(string(status)) {
		if ids, found := strings.CutPrefix(line, "NSpid:"); found {
			fields := strings.Fields(ids)
			id.vpid, err = strconv.ParseInt(fields[len(fields)-1], 10, 64)
			require.NoError(t, err)
		}
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", id.pid))
	require.NoError(t, err)
	id.executable = filepath.Base(exe)
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", id.pid))
	require.NoError(t, err)
	id.comm = strings.TrimSpace(string(comm))
	return id
}

// childrenOf are the processes whose parent is pid.
func childrenOf(pid int) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
		fields := strings.Fields(rest) // state, parent, …
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// startNginx starts nginx with a configuration of testdata and returns it and its error log.
func startNginx(t *testing.T, n *nettest.Namespace, configuration string, values any) (*process, func() string) {
	t.Helper()
	dir := t.TempDir()
	text, err := template.ParseFiles(filepath.Join("testdata", configuration))
	require.NoError(t, err)
	var filled bytes.Buffer
	require.NoError(t, text.Execute(&filled, values))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), filled.Bytes(), 0o644))
	log := filepath.Join(dir, "error.log")
	p := startServer(t, n, "nginx", "-p", dir, "-c", "nginx.conf", "-e", log)
	return p, func() string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return string(text)
	}
}

// awaitListening waits until something listens at the address in the namespace.
func awaitListening(t *testing.T, n *nettest.Namespace, p *process, address string) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := dial(t, n, address)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}, 20*time.Second, 50*time.Millisecond, "%s does not listen at %s: %s", p.name, address, &p.output)
}

// dial connects to an address in the namespace.
func dial(t *testing.T, n *nettest.Namespace, address string) (conn net.Conn, err error) {
	n.Do(t, func() error {
		conn, err = net.DialTimeout("tcp", address, 10*time.Second)
		return nil
	})
	return conn, err
}
