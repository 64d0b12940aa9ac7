// SPDX-License-Identifier: Apache-2.0

//go:build incident && linux

package incidents_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

const (
	gunicornPort = 8000
	nginxAddress = "127.0.0.1:8080"

	enoughResets = 20
	longestLoad  = 90 * time.Second
)

// gunicorn closes a connection that was idle for its keep-alive time while nginx sends a request on it. The kernel answers the
// request, which nobody has read, with a RST, and nginx its client with 502.
func TestKeepAliveTimerResetsAreToldWithReasonAndThread(t *testing.T) {
	records, collector := observe(t)
	var took time.Duration
	t.Run("short keep-alive", func(t *testing.T) {
		s := startStack(t, time.Second)
		began := time.Now()
		load := s.run(t, longestLoad, func() bool { return len(s.abortsOnClose(records)) >= enoughResets })
		took = time.Since(began)
		s.settle(t, time.Second)
		aborted, resets := s.aborted(t), s.grown(t, "Tcp.OutRsts")
		require.GreaterOrEqual(t, aborted, enoughResets, "the incident did not come about within %s: %s", took, load)

		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Len(c, s.abortsOnClose(records), aborted, "one record for each TCPAbortOnClose")
			assert.Len(c, records.of(s.nginxWorker, "ebpfnet.tcp.reset.received"), resets, "one record for each RST")
		}, 10*time.Second, 50*time.Millisecond)
		// Where gunicorn was first and nginx's request met a closed connection, the reset is another one.
		reasons := map[any]map[any]int{}
		for _, r := range records.all("ebpfnet.tcp.reset.sent") {
			if r.attributes["network.local.port"] == int64(gunicornPort) && r.time.After(began) {
				port := r.attributes["network.peer.port"]
				if reasons[port] == nil {
					reasons[port] = map[any]int{}
				}
				reasons[port][r.attributes["ebpfnet.tcp.reset.reason"]]++
			}
		}
		received := map[any]int{}
		for _, r := range records.of(s.nginxWorker, "ebpfnet.tcp.reset.received") {
			assertOwner(t, r, s.nginxWorker, "opener")
			assert.EqualValues(t, gunicornPort, r.attributes["network.peer.port"])
			port := r.attributes["network.local.port"]
			received[port]++
			sent := reasons[port]["tcp_abort_on_close"] + reasons[port]["tcp_abort_on_data"]
			assert.Positive(t, sent, "the reset that port %v received was sent: %v", port, reasons[port])
		}
		for _, r := range s.abortsOnClose(records) {
			assertOwner(t, r, s.gunicornWorker, "current")
			assert.Equal(t, "kernel", r.attributes["ebpfnet.tcp.reset.reason_source"])
			assert.Equal(t, "127.0.0.1", r.attributes["network.local.address"])
			assert.EqualValues(t, gunicornPort, r.attributes["network.local.port"])
			assert.Equal(t, "established", r.attributes["network.connection.state"])
			assert.Greater(t, r.attributes["ebpfnet.tcp.receive_queue.size"], int64(0), "unread bytes: nginx's request")
			assert.Contains(t, r.body, "closed with unread data")
			nginxPort := r.attributes["network.peer.port"]
			assert.Positive(t, received[nginxPort], "nginx received the reset of its port %v", nginxPort)
			received[nginxPort]--
		}
		log := s.nginxLog()
		assert.Equal(t, strings.Count(log, "recv() failed (104: Connection reset by peer) while reading response header"), aborted)
		assert.GreaterOrEqual(t, load.badGateways, aborted, "each was a 502 to a client")
		t.Logf("%s; TCPAbortOnClose +%d, OutRsts +%d", load, aborted, resets)

		require.EventuallyWithT(t, func(c *assert.CollectT) {
			metrics, at := records.newestMetrics()
			sent := 0
			for _, r := range records.all("ebpfnet.tcp.reset.sent") {
				if r.attributes["ebpfnet.tcp.reset.reason"] == "tcp_abort_on_close" && !r.time.After(at) {
					sent++
				}
			}
			assert.GreaterOrEqual(c, sent, aborted)
			points := counts(metrics, "ebpfnet.tcp.resets", "network.io.direction", "ebpfnet.tcp.reset.reason")
			assert.Equal(c, sent, points["transmit tcp_abort_on_close"])
		}, 20*time.Second, 100*time.Millisecond, "metrics agree with the records")
	})
	t.Run("long keep-alive", func(t *testing.T) {
		s := startStack(t, 75*time.Second)
		load := s.run(t, min(max(took, 10*time.Second), 45*time.Second), func() bool { return false })
		assert.Zero(t, s.aborted(t), "TCPAbortOnClose")
		assert.Zero(t, load.badGateways)
		assert.Empty(t, records.of(s.gunicornWorker, "ebpfnet.tcp.reset.sent"))
		assert.Empty(t, records.of(s.nginxWorker, "ebpfnet.tcp.reset.received"))
		t.Log(load)
	})
	collector.stop(t)
}

// stack is nginx before gunicorn, in a namespace of their own.
type stack struct {
	namespace                   *nettest.Namespace
	nginxLog                    func() string
	nginxWorker, gunicornWorker identity
	before                      nettest.KernelCounters
}

func startStack(t *testing.T, keepAlive time.Duration) *stack {
	t.Helper()
	s := &stack{namespace: nettest.NewNamespace(t)}
	application, err := filepath.Abs("testdata")
	require.NoError(t, err)
	upstream := fmt.Sprintf("127.0.0.1:%d", gunicornPort)
	gunicorn := startServer(t, s.namespace, "gunicorn", "--worker-class", "gthread", "--workers", "1", "--threads", "8",
		"--keep-alive", fmt.Sprint(keepAlive.Seconds()), "--bind", upstream, "--chdir", application, "busy:application")
	awaitListening(t, s.namespace, gunicorn, upstream)
	nginx, log := startNginx(t, s.namespace, "nginx_keepalive.conf", map[string]any{"Listen": nginxAddress, "Upstream": upstream})
	awaitListening(t, s.namespace, nginx, nginxAddress)
	s.nginxLog = log
	s.gunicornWorker, s.nginxWorker = gunicorn.worker(t), nginx.worker(t)
	require.Equal(t, "nginx", s.nginxWorker.executable)
	require.Contains(t, s.gunicornWorker.executable, "python")
	s.before = s.namespace.Counters(t)
	return s
}

// grown is the growth of a kernel counter of the namespace since the start.
func (s *stack) grown(t *testing.T, counter string) int {
	t.Helper()
	return int(s.namespace.Counters(t).Since(s.before)[counter])
}

// aborted is the growth of TCPAbortOnClose.
func (s *stack) aborted(t *testing.T) int {
	t.Helper()
	return s.grown(t, "TcpExt.TCPAbortOnClose")
}

// abortsOnClose are the resets that gunicorn's worker sent because it closed what was not read.
func (s *stack) abortsOnClose(records *sink) (found []record) {
	for _, r := range records.of(s.gunicornWorker, "ebpfnet.tcp.reset.sent") {
		if r.attributes["ebpfnet.tcp.reset.reason"] == "tcp_abort_on_close" {
			found = append(found, r)
		}
	}
	return found
}

// load is what the clients did and got.
type load struct{ requests, badGateways int }

func (l load) String() string {
	return fmt.Sprintf("%d requests, %d of them answered by 502", l.requests, l.badGateways)
}

// run sends requests in rounds, with pauses about as long as the keep-alive time, until there is enough or the time is over. The
// requests of a round keep the interpreter lock busy while connections reach the end of their time: gunicorn's main thread then
// closes what it did not get round to look at.
func (s *stack) run(t *testing.T, longest time.Duration, enough func() bool) load {
	t.Helper()
	const atOnce, shortestPause, longestPause = 60, 600 * time.Millisecond, 1100 * time.Millisecond
	client := clientOf(t, s.namespace, atOnce)
	defer client.CloseIdleConnections()
	pauses := rand.New(rand.NewPCG(1, 2))
	var requests, badGateways atomic.Int64
	for end := time.Now().Add(longest); time.Now().Before(end) && !enough(); {
		var round sync.WaitGroup
		for range atOnce {
			round.Go(func() {
				status, err := get(client, "http://"+nginxAddress)
				if assert.NoError(t, err) && status == http.StatusBadGateway {
					badGateways.Add(1)
				}
				requests.Add(1)
			})
		}
		round.Wait()
		time.Sleep(shortestPause + time.Duration(pauses.Int64N(int64(longestPause-shortestPause))))
	}
	return load{int(requests.Load()), int(badGateways.Load())}
}

// settle waits until gunicorn has closed all connections that nginx keeps, after which it resets none.
func (s *stack) settle(t *testing.T, keepAlive time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.namespace.Counters(t)["Tcp.CurrEstab"] == 0
	}, keepAlive+20*time.Second, 100*time.Millisecond, "connections remain")
}
