// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Thread is an operating-system thread of this process, with a name of its own, in a namespace.
type Thread struct {
	Comm string
	TID  int
	work chan func()
}

// Thread starts a thread in the namespace; it ends with the test. comm is at most 15 bytes long.
func (n *Namespace) Thread(t testing.TB, comm string) *Thread {
	t.Helper()
	th := &Thread{Comm: comm, work: make(chan func())}
	started := make(chan error, 1)
	ended := make(chan struct{})
	go lockedToSpareThread(func() {
		defer close(ended)
		err := netns.Set(n.ns)
		if err == nil {
			err = SetComm(comm)
		}
		th.TID = unix.Gettid()
		started <- err
		for f := range th.work {
			f()
		}
	})
	if err := <-started; err != nil {
		t.Fatalf("start thread %s: %v", comm, err)
	}
	t.Cleanup(func() {
		close(th.work)
		<-ended
	})
	return th
}

// Do runs f on the thread and returns when it has. f must not end the test: that is for the test's own goroutine.
func (th *Thread) Do(f func()) {
	<-th.Go(f)
}

// Go runs f on the thread; the channel is closed when it has ended.
func (th *Thread) Go(f func()) <-chan struct{} {
	done := make(chan struct{})
	th.work <- func() {
		defer close(done)
		f()
	}
	return done
}

// SetComm names the calling thread.
func SetComm(comm string) error {
	name, err := unix.BytePtrFromString(comm)
	if err != nil {
		return err
	}
	return prctlName(name)
}
