// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The flags of a Segment.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10
)

// Segment is a TCP segment made by hand, for what no socket sends.
type Segment struct {
	From, To netip.AddrPort
	Seq, Ack uint32
	Flags    byte
	Payload  []byte
}

// Send sends the segment from the calling thread's namespace.
func (s Segment) Send() error {
	family := V4
	if s.From.Addr().Is6() {
		family = V6
	}
	fd, err := unix.Socket(family.domain(), unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("make raw socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, family.sockaddr(netip.AddrPortFrom(s.From.Addr(), 0))); err != nil {
		return fmt.Errorf("bind raw socket: %w", err)
	}
	return unix.Sendto(fd, s.encode(), 0, family.sockaddr(netip.AddrPortFrom(s.To.Addr(), 0)))
}

func (s Segment) encode() []byte {
	const header = 20
	b := make([]byte, header, header+len(s.Payload))
	binary.BigEndian.PutUint16(b[0:], s.From.Port())
	binary.BigEndian.PutUint16(b[2:], s.To.Port())
	binary.BigEndian.PutUint32(b[4:], s.Seq)
	binary.BigEndian.PutUint32(b[8:], s.Ack)
	b[12] = header / 4 << 4
	b[13] = s.Flags
	binary.BigEndian.PutUint16(b[14:], 65535) // window
	b = append(b, s.Payload...)

	pseudo := append(s.From.Addr().AsSlice(), s.To.Addr().AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(b)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, unix.IPPROTO_TCP)
	binary.BigEndian.PutUint16(b[16:], ^checksum(append(pseudo, b...)))
	return b
}

// checksum is the ones' complement sum of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for len(b) > 1 {
		sum += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
