// SPDX-License-Identifier: Apache-2.0

// Package nettest gives tests networks of their own: namespaces joined by veth pairs, packet filters that lose or refuse chosen
// packets, peers that reset or stall, threads and processes whose identity is known. Everything goes with the test. Only tests
// import it; it needs root, and Debian's nft for the packet filters.
package nettest
