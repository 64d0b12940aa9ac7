// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Net is a client and a server, each in a namespace, joined by a veth pair or by a router with two of them. Every interface
// towards the client or the server is called eth0; the router's towards the server is eth1.
type Net struct {
	Client, Server, Router             *Namespace // Router is nil unless made by NewRouted
	client4, client6, server4, server6 netip.Addr
}

// New joins a client and a server directly.
func New(t testing.TB) *Net {
	t.Helper()
	n := &Net{Client: NewNamespace(t), Server: NewNamespace(t)}
	n.client4, n.server4 = link(t, n.Client, "eth0", n.Server, "eth0", 1)
	n.client6, n.server6 = v6(1, 1), v6(1, 2)
	return n
}

// NewRouted joins a client and a server by a router.
func NewRouted(t testing.TB) *Net {
	t.Helper()
	n := &Net{Client: NewNamespace(t), Router: NewNamespace(t), Server: NewNamespace(t)}
	var gateway1, gateway2 netip.Addr
	n.client4, gateway1 = link(t, n.Client, "eth0", n.Router, "eth0", 1)
	n.server4, gateway2 = link(t, n.Server, "eth0", n.Router, "eth1", 2)
	n.client6, n.server6 = v6(1, 1), v6(2, 1)
	n.Router.Sysctl(t, "net.ipv4.ip_forward", "1")
	n.Router.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	n.Client.Route(t, unix.RTN_UNICAST, netip.MustParsePrefix("0.0.0.0/0"), gateway1)
	n.Client.Route(t, unix.RTN_UNICAST, netip.MustParsePrefix("::/0"), v6(1, 2))
	n.Server.Route(t, unix.RTN_UNICAST, netip.MustParsePrefix("0.0.0.0/0"), gateway2)
	n.Server.Route(t, unix.RTN_UNICAST, netip.MustParsePrefix("::/0"), v6(2, 2))
	return n
}

func v4(subnet, host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, subnet, host}) }

func v6(subnet, host byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 7: subnet, 15: host})
}

// link joins two namespaces by a veth pair with addresses .1 and .2 of the subnet in both families.
func link(t testing.TB, a *Namespace, aName string, b *Namespace, bName string, subnet byte) (a4, b4 netip.Addr) {
	t.Helper()
	a.Do(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: bName, PeerNamespace: netlink.NsFd(int(b.ns))}
		veth.Name = aName
		// With the same index at both ends, the usual case in new namespaces, the kernel takes the pair for a lone interface and
		// puts off its becoming ready by up to a second (linkwatch_urgent_event).
		veth.Index = 100 + int(subnet)
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth: %w", err)
		}
		return nil
	})
	a.address(t, aName, v4(subnet, 1), v6(subnet, 1))
	b.address(t, bName, v4(subnet, 2), v6(subnet, 2))
	a.awaitLink(t, aName)
	b.awaitLink(t, bName)
	return v4(subnet, 1), v4(subnet, 2)
}

// address gives the interface its addresses and sets it up. Duplicate address detection is off: it would take a second.
func (n *Namespace) address(t testing.TB, iface string, addrs ...netip.Addr) {
	t.Helper()
	n.Do(t, func() error {
		link, err := netlink.LinkByName(iface)
		if err != nil {
			return fmt.Errorf("find %s: %w", iface, err)
		}
		for _, a := range addrs {
			bits := 24
			if a.Is6() {
				bits = 64
			}
			addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, bits))}
			if a.Is6() {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// awaitLink waits until the kernel's link watch, a worker of its own, has made the interface ready: what is sent before is lost.
func (n *Namespace) awaitLink(t testing.TB, iface string) {
	t.Helper()
	n.Do(t, func() error {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			link, err := netlink.LinkByName(iface)
			if err != nil {
				return fmt.Errorf("find %s: %w", iface, err)
			}
			addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
			if err != nil {
				return fmt.Errorf("list addresses of %s: %w", iface, err)
			}
			tentative := slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 })
			if link.Attrs().OperState == netlink.OperUp && !tentative {
				return nil
			}
		}
		return fmt.Errorf("%s did not become ready", iface)
	})
}

// SingleSegments makes the interface send each segment in a packet of its own, so that packet filters lose single segments.
func (n *Namespace) SingleSegments(t testing.TB, iface string) {
	t.Helper()
	n.Do(t, func() error {
		link, err := netlink.LinkByName(iface)
		if err != nil {
			return fmt.Errorf("find %s: %w", iface, err)
		}
		return netlink.LinkSetGSOMaxSegs(link, 1)
	})
}

// Route adds a route of the given kind (unix.RTN_UNICAST, RTN_UNREACHABLE, RTN_PROHIBIT, RTN_BLACKHOLE); only RTN_UNICAST has a
// gateway.
func (n *Namespace) Route(t testing.TB, kind int, to netip.Prefix, gateway netip.Addr) {
	t.Helper()
	n.Do(t, func() error {
		route := &netlink.Route{Dst: ipNet(to), Type: kind}
		if gateway.IsValid() {
			route.Gw = gateway.AsSlice()
		} else if to.Addr().Is6() {
			lo, err := netlink.LinkByName("lo") // where the kernel itself puts such routes
			if err != nil {
				return fmt.Errorf("find lo: %w", err)
			}
			route.LinkIndex = lo.Attrs().Index
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("add route to %s: %w", to, err)
		}
		return nil
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// ClientAddr is the client's address in the family.
func (n *Net) ClientAddr(f Family) netip.Addr {
	if f == V6 {
		return n.client6
	}
	return n.client4
}

// ServerAddr is the server's address in the family.
func (n *Net) ServerAddr(f Family) netip.Addr {
	if f == V6 {
		return n.server6
	}
	return n.server4
}
