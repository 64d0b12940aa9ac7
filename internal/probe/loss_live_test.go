// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

func TestLossAndRecoveryAreTold(t *testing.T) {
	settings := everything()
	settings.LossEnabled = true
	runIn(t, newWatch(t, settings), []scenario{
		{"loss after a timeout, once however often it backs off", lossAfterTimeout},
		{"fast recovery", recoveryAfterLoss},
		{"a tail-loss probe is no loss state", probeIsNoLoss},
		{"a SYN timeout is no loss state", synIsNoLoss},
	})
}

// requireCongestion holds a change of the congestion state against the connection.
func (c *connected) requireCongestion(t testing.TB, w *watch, n *nettest.Namespace, kind event.Kind) {
	t.Helper()
	e := w.in(n).kind(kind).only(t)
	require.Equal(t, c.flow, e.Flow)
	require.Equal(t, event.StateEstablished, e.State)
	require.True(t, e.HasSnapshot)
	require.NotZero(t, e.Snapshot.SegmentsOut)
	require.Equal(t, event.OwnerOpener, e.Owner.Source)
}

func lossAfterTimeout(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.Sysctl(t, "net.ipv4.tcp_early_retrans", "0") // no tail-loss probe
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(3, toServer(conn)))
	conn.send(t, 1000)
	conn.requireCongestion(t, w, n.Client, event.KindLossEntered)
	w.in(n.Client).kind(event.KindRecoveryEntered).none(t)
}

func recoveryAfterLoss(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.SingleSegments(t, "eth0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropNth(1, toServer(conn)))
	conn.send(t, 10*1400)
	conn.requireCongestion(t, w, n.Client, event.KindRecoveryEntered)
	w.in(n.Client).kind(event.KindLossEntered).none(t)
}

func probeIsNoLoss(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	n.Client.SingleSegments(t, "eth0")
	conn := connectTo(t, w, f, n)
	n.Server.Filter(t, "loss", "input", nettest.DropNth(3, toServer(conn)))
	conn.send(t, 3*1400+700) // four segments, of which the last is lost
	w.in(n.Client).kind(event.KindLossEntered).none(t)
}

func synIsNoLoss(t testing.TB, w *watch, f nettest.Family) {
	n := nettest.New(t)
	l := n.Server.Listen(t, n.ServerAddr(f))
	l.Serve(t, nettest.Drain)
	n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, nettest.MatchSYN))
	_, _, _, err := dial(t, n.Client.Thread(t, "client"), f, l.Addr)
	require.NoError(t, err)
	w.in(n.Client).kind(event.KindLossEntered).none(t)
}
