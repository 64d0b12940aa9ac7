// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

package incidents_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// nginx balances over three addresses, one of which is dead. Its clients only see that every third request takes longer by the
// connect timeout; the records name the address.
func TestStaleAddressAloneIsToldAsFailing(t *testing.T) {
	records, collector := observe(t)
	for _, family := range []nettest.Family{nettest.V4, nettest.V6} {
		t.Run(family.String(), func(t *testing.T) { staleAddress(t, records, family) })
	}

	t.Run("metrics agree with the records", func(t *testing.T) {
		since := time.Now()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			metrics, at := records.newestMetrics()
			assert.True(c, at.After(since), "metrics are older than the incident")
			assertHandshakesAgree(c, records, metrics, at)
		}, 20*time.Second, 100*time.Millisecond)
	})
	collector.stop(t)
}

func staleAddress(t *testing.T, records *sink, family nettest.Family) {
	const (
		port     = 8000
		requests = 12
		timeout  = 1500 * time.Millisecond // between the first SYN retransmit and the second
	)
	n := nettest.New(t)
	addresses := upstreamAddresses(t, n, family)
	dead, live := addresses[0], addresses[1:]
	n.Server.Filter(t, "dead", "input", fmt.Sprintf("%s daddr %s tcp dport %d drop", family.NFT(), dead, port))
	accepted := map[netip.Addr]*atomic.Int64{}
	upstreams := []string{netip.AddrPortFrom(dead, port).String()}
	for _, address := range live {
		accepted[address] = serveOK(t, n.Server.ListenPort(t, netip.AddrPortFrom(address, port)))
		upstreams = append(upstreams, netip.AddrPortFrom(address, port).String())
	}
	const listen = "127.0.0.1:8080"
	nginx, log := startNginx(t, n.Client, "nginx_stale_address.conf", map[string]any{
		"Listen": listen, "Upstreams": upstreams, "ConnectTimeout": timeout.Milliseconds()})
	awaitListening(t, n.Client, nginx, listen)
	worker := nginx.worker(t)
	require.Equal(t, "nginx", worker.executable)

	client := clientOf(t, n.Client, requests)
	var waiting sync.WaitGroup
	for range requests {
		waiting.Go(func() {
			status, err := get(client, "http://"+listen)
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusOK, status, "nginx goes on to the next address")
			}
		})
	}
	waiting.Wait()

	gaveUp := strings.Count(log(), "upstream timed out (110: Connection timed out) while connecting to upstream")
	require.GreaterOrEqual(t, gaveUp, requests/3-1, "nginx's log: %s", log())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Len(c, records.of(worker, "ebpfnet.tcp.connect.failed"), gaveUp)
		assert.Len(c, records.of(worker, "ebpfnet.tcp.connect.completed"), requests)
	}, 10*time.Second, 50*time.Millisecond)

	for _, r := range records.of(worker, "ebpfnet.tcp.connect.failed") {
		assertConnectOfWorker(t, r, worker, family)
		assert.Equal(t, dead.String(), r.attributes["network.peer.address"], "only this address fails")
		assert.EqualValues(t, port, r.attributes["network.peer.port"])
		assert.Equal(t, "aborted", r.attributes["error.type"])
		assert.Equal(t, "syn_sent", r.attributes["network.connection.state"])
		assert.EqualValues(t, 1, r.attributes["ebpfnet.tcp.syn.retransmits"])
		assert.InDelta(t, timeout.Seconds()+0.2, r.attributes["ebpfnet.tcp.handshake.duration"], 0.25, "nginx's connect timeout")
		assert.Contains(t, r.body, "gave up after 1.")
	}
	completed := map[string]int64{}
	var durations []float64
	for _, r := range records.of(worker, "ebpfnet.tcp.connect.completed") {
		assertConnectOfWorker(t, r, worker, family)
		completed[r.attributes["network.peer.address"].(string)]++
		durations = append(durations, r.attributes["ebpfnet.tcp.handshake.duration"].(float64))
	}
	slices.Sort(durations)
	assert.Less(t, durations[len(durations)/2], 0.005, "the live addresses connect in the low milliseconds")
	assert.Less(t, durations[len(durations)-1], 0.5, "none of them is slow")
	for _, address := range live {
		assert.Equal(t, accepted[address].Load(), completed[address.String()], "connections to %s", address)
		assert.NotZero(t, completed[address.String()])
	}
	assert.Len(t, completed, len(live))
	retried := records.of(worker, "ebpfnet.tcp.syn.retransmitted")
	assert.Len(t, retried, gaveUp)
	for _, r := range retried {
		assert.Equal(t, dead.String(), r.attributes["network.peer.address"])
	}
	t.Logf("%d of %d requests met the dead address; the live ones took %.3f ms in the median, %.3f ms at most to connect",
		gaveUp, requests, 1e3*durations[len(durations)/2], 1e3*durations[len(durations)-1])
}

func assertConnectOfWorker(t *testing.T, r record, worker identity, family nettest.Family) {
	t.Helper()
	assertOwner(t, r, worker, "current", "opener")
	assert.Equal(t, strings.ToLower(family.String()), r.attributes["network.type"])
	assert.Equal(t, "tcp", r.attributes["network.transport"])
	assert.Equal(t, "client", r.attributes["ebpfnet.tcp.handshake.role"])
	assert.NotZero(t, r.attributes["network.local.port"])
}

// assertOwner checks that the record names the process, and its main thread.
func assertOwner(t *testing.T, r record, process identity, sources ...string) {
	t.Helper()
	assert.Equal(t, process.pid, r.resource["process.pid"])
	assert.Equal(t, process.vpid, r.resource["process.vpid"])
	assert.Equal(t, process.executable, r.resource["process.executable.name"])
	assert.Equal(t, process.pid, r.attributes["thread.id"], "the main thread")
	assert.Equal(t, process.vpid, r.attributes["ebpfnet.thread.vtid"])
	assert.Equal(t, process.comm, r.attributes["thread.name"])
	assert.Contains(t, sources, r.attributes["ebpfnet.owner"])
	assert.Contains(t, r.body, fmt.Sprintf("%s[%d/%d] ", process.comm, process.pid, process.pid))
}

// upstreamAddresses gives the server three addresses.
func upstreamAddresses(t *testing.T, n *nettest.Net, family nettest.Family) []netip.Addr {
	t.Helper()
	addresses := []netip.Addr{n.ServerAddr(family)}
	n.Server.Do(t, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for len(addresses) < 3 {
			address := addresses[len(addresses)-1].Next()
			mask := net.CIDRMask(24, 32)
			if family == nettest.V6 {
				mask = net.CIDRMask(64, 128)
			}
			add := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: mask}}
			if family == nettest.V6 {
				add.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, add); err != nil {
				return fmt.Errorf("add address %s: %w", address, err)
			}
			addresses = append(addresses, address)
		}
		return nil
	})
	return addresses
}

// serveOK answers requests and counts connections.
func serveOK(t *testing.T, listener *nettest.Listener) *atomic.Int64 {
	var accepted atomic.Int64
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
		ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				accepted.Add(1)
			}
		},
	}
	go func() { _ = server.Serve(listener.TCPListener) }()
	t.Cleanup(func() { _ = server.Close() })
	return &accepted
}

// clientOf is an HTTP client in the namespace, with up to so many connections.
func clientOf(t *testing.T, n *nettest.Namespace, connections int) *http.Client {
	transport := &http.Transport{
		DialContext:         func(_ context.Context, _, address string) (net.Conn, error) { return dial(t, n, address) },
		MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func get(client *http.Client, url string) (status int, err error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// series is what a histogram's point says.
type series struct {
	Count   int
	Sum     float64
	Buckets map[int]int
}

// assertHandshakesAgree compares the metrics of handshakes with all records up to the time they were read. Other processes of the
// host may connect meanwhile: they are in both.
func assertHandshakesAgree(c *assert.CollectT, records *sink, metrics pmetric.Metrics, at time.Time) {
	connections := map[string]int{}
	durations := map[string]series{}
	for _, r := range slices.Concat(records.all("ebpfnet.tcp.connect.completed"), records.all("ebpfnet.tcp.connect.failed")) {
		if r.time.After(at) {
			continue
		}
		outcome, _ := r.attributes["error.type"].(string)
		connections[outcome]++
		duration, measured := r.attributes["ebpfnet.tcp.handshake.duration"].(float64)
		if !measured {
			continue
		}
		s := durations[outcome]
		if s.Buckets == nil {
			s.Buckets = map[int]int{}
		}
		s.Count++
		s.Sum += duration
		s.Buckets[bucketOf(duration)]++
		durations[outcome] = s
	}
	outbound := map[string]int{}
	for series, n := range counts(metrics, "ebpfnet.tcp.connections", "ebpfnet.tcp.handshake.role", "error.type") {
		if outcome, ok := strings.CutPrefix(series, "client"); ok {
			outbound[strings.TrimSpace(outcome)] = n
		}
	}
	assert.Equal(c, connections, outbound)

	measured := map[string]series{}
	histogram, found := metricOf(metrics, "ebpfnet.tcp.handshake.duration")
	if !assert.True(c, found) {
		return
	}
	for _, point := range histogram.ExponentialHistogram().DataPoints().All() {
		if role, _ := point.Attributes().Get("ebpfnet.tcp.handshake.role"); role.AsString() != "client" {
			continue
		}
		s := series{Count: int(point.Count()), Sum: point.Sum(), Buckets: map[int]int{}}
		assert.EqualValues(c, scale, point.Scale())
		for i, n := range point.Positive().BucketCounts().All() {
			if n > 0 {
				s.Buckets[int(point.Positive().Offset())+i] = int(n)
			}
		}
		outcome := key(point.Attributes(), []string{"error.type"})
		assert.InDelta(c, durations[outcome].Sum, s.Sum, 1e-6)
		s.Sum = durations[outcome].Sum
		measured[outcome] = s
	}
	assert.Equal(c, durations, measured)
}

const scale = 2

// bucketOf is the index of the bucket of an exponential histogram: (base^index, base^(index+1)], base 2^(2^-scale).
func bucketOf(seconds float64) int {
	return int(math.Ceil(math.Log2(seconds)*(1<<scale))) - 1
}
