// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Family is how a client speaks to an address.
type Family int

// The families. Mapped is an IPv6 socket that connects to an IPv4-mapped address.
const (
	V4 Family = iota
	V6
	Mapped
)

// Families are all of them.
func Families() []Family { return []Family{V4, V6, Mapped} }

// String names the family.
func (f Family) String() string { return [...]string{"IPv4", "IPv6", "IPv4-mapped"}[f] }

// NFT is the family's nft name of the network header.
func (f Family) NFT() string {
	if f == V6 {
		return "ip6"
	}
	return "ip"
}

// Loopback is the loopback address.
func (f Family) Loopback() netip.Addr {
	if f == V6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func (f Family) domain() int {
	if f == V4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (f Family) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if f == V4 {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()} // As16 maps IPv4
}

// Socket is a TCP socket used by system calls alone, so that a test says which thread does what.
type Socket struct {
	FD     int
	Family Family
	closed bool
}

// NewSocket makes a blocking TCP socket in the calling thread's namespace.
func NewSocket(f Family) (*Socket, error) { return newSocket(f, unix.SOCK_STREAM, unix.IPPROTO_TCP) }

// NewMPTCPSocket makes a blocking MPTCP socket.
func NewMPTCPSocket(f Family) (*Socket, error) {
	return newSocket(f, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
}

// NewUDPSocket makes a UDP socket.
func NewUDPSocket(f Family) (*Socket, error) { return newSocket(f, unix.SOCK_DGRAM, unix.IPPROTO_UDP) }

// NewRawSocket makes a raw socket of the TCP protocol, which is no TCP socket.
func NewRawSocket(f Family) (*Socket, error) { return newSocket(f, unix.SOCK_RAW, unix.IPPROTO_TCP) }

func newSocket(f Family, kind, protocol int) (*Socket, error) {
	fd, err := unix.Socket(f.domain(), kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("make %s socket: %w", f, err)
	}
	return &Socket{FD: fd, Family: f}, nil
}

// Connect connects; the error is the system call's.
func (s *Socket) Connect(to netip.AddrPort) error { return unix.Connect(s.FD, s.Family.sockaddr(to)) }

// Accept waits for a connection.
func (s *Socket) Accept() (*Socket, error) {
	for {
		fd, _, err := unix.Accept4(s.FD, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("accept: %w", err)
		}
		return &Socket{FD: fd, Family: s.Family}, nil
	}
}

// Bind binds to a local address, which others may share.
func (s *Socket) Bind(to netip.AddrPort) error {
	if err := unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	return unix.Bind(s.FD, s.Family.sockaddr(to))
}

// SetNonblock makes the calls return at once.
func (s *Socket) SetNonblock() error { return unix.SetNonblock(s.FD, true) }

// SetOption sets an integer socket option.
func (s *Socket) SetOption(level, name, value int) error {
	return unix.SetsockoptInt(s.FD, level, name, value)
}

// SetLinger0 makes Close send a RST.
func (s *Socket) SetLinger0() error {
	return unix.SetsockoptLinger(s.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// Error takes the pending error from the socket (SO_ERROR).
func (s *Socket) Error() error {
	errno, err := unix.GetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// AwaitWritable waits until a connect on a non-blocking socket has its result.
func (s *Socket) AwaitWritable() error { return s.await(unix.POLLOUT) }

// AwaitReadable waits until there is something to read, be it the end.
func (s *Socket) AwaitReadable() error { return s.await(unix.POLLIN) }

func (s *Socket) await(what int16) error {
	fds := []unix.PollFd{{Fd: int32(s.FD), Events: what}}
	for {
		n, err := unix.Poll(fds, 30_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			return unix.ETIMEDOUT
		}
		return err
	}
}

// Unread is the number of bytes that wait to be read.
func (s *Socket) Unread() (int, error) { return unix.IoctlGetInt(s.FD, unix.SIOCINQ) }

// Info is the kernel's view of the connection.
func (s *Socket) Info() (*unix.TCPInfo, error) {
	return unix.GetsockoptTCPInfo(s.FD, unix.IPPROTO_TCP, unix.TCP_INFO)
}

// Cookie is the socket's cookie.
func (s *Socket) Cookie() (uint64, error) {
	return unix.GetsockoptUint64(s.FD, unix.SOL_SOCKET, unix.SO_COOKIE)
}

// Local is the local end, unmapped.
func (s *Socket) Local() (netip.AddrPort, error) {
	sa, err := unix.Getsockname(s.FD)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("socket address is a %T", sa)
}

// Write writes all of b.
func (s *Socket) Write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(s.FD, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Fill makes the socket non-blocking and writes until it takes no more.
func (s *Socket) Fill() error {
	if err := s.SetNonblock(); err != nil {
		return err
	}
	for b := make([]byte, 64<<10); ; {
		if err := s.Write(b); err != nil {
			if errors.Is(err, unix.EAGAIN) {
				return nil
			}
			return err
		}
	}
}

// Read reads once.
func (s *Socket) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(s.FD, b)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Shutdown closes the sending side.
func (s *Socket) Shutdown() error { return unix.Shutdown(s.FD, unix.SHUT_WR) }

// Close closes the socket; a second time does nothing.
func (s *Socket) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	starting.RLock()
	defer starting.RUnlock()
	return unix.Close(s.FD)
}

// CloseAtEnd closes the socket with the test, unless the test has.
func (s *Socket) CloseAtEnd(t testing.TB) *Socket {
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Monotonic is the kernel's monotonic clock, as BPF programs read it, in nanoseconds.
func Monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock always exists
	}
	return uint64(ts.Nano())
}

func prctlName(name *byte) error {
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
}
