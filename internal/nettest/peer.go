// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// Listener accepts connections in a namespace.
type Listener struct {
	*net.TCPListener
	Addr netip.AddrPort
}

// Listen makes a plain TCP listener on a free port of the address. Go's own net.Listen would make an MPTCP one.
func (n *Namespace) Listen(t testing.TB, addr netip.Addr) *Listener {
	t.Helper()
	return n.listen(t, netip.AddrPortFrom(addr, 0), false)
}

// ListenPort does so on a port of the test's choice.
func (n *Namespace) ListenPort(t testing.TB, addr netip.AddrPort) *Listener {
	t.Helper()
	return n.listen(t, addr, false)
}

// ListenMPTCP makes an MPTCP listener.
func (n *Namespace) ListenMPTCP(t testing.TB, addr netip.Addr) *Listener {
	t.Helper()
	return n.listen(t, netip.AddrPortFrom(addr, 0), true)
}

func (n *Namespace) listen(t testing.TB, addr netip.AddrPort, multipath bool) *Listener {
	t.Helper()
	l := &Listener{}
	n.Do(t, func() error {
		var lc net.ListenConfig
		lc.SetMultipathTCP(multipath)
		ln, err := lc.Listen(context.Background(), "tcp", addr.String())
		if err != nil {
			return err
		}
		l.TCPListener = ln.(*net.TCPListener)
		l.Addr = ln.Addr().(*net.TCPAddr).AddrPort()
		return nil
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Next accepts one connection within ten seconds; it is closed with the test unless the test closes it.
func (l *Listener) Next(t testing.TB) *net.TCPConn {
	t.Helper()
	if err := l.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Serve hands each connection to a goroutine of its own that runs serve and closes it, until the test ends.
func (l *Listener) Serve(t testing.TB, serve func(*net.TCPConn)) {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[*net.TCPConn]bool{} // nil once the test has ended
	running.Go(func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			mu.Lock()
			if open == nil {
				mu.Unlock()
				_ = conn.Close()
				return
			}
			open[conn] = true
			mu.Unlock()
			running.Go(func() {
				serve(conn)
				_ = conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		open = nil
		mu.Unlock()
		running.Wait()
	})
}

// Drain reads until the peer closes.
func Drain(conn *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

// Reset closes the connection with a RST.
func Reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
