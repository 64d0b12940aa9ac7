// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"fmt"
	"net/netip"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// tally is what counters or events say has happened, by name, without zeros.
type tally map[string]uint64

func (t tally) add(name string, n uint64) {
	if n != 0 {
		t[name] += n
	}
}

func outcomeName(o event.Outcome) string {
	if o == event.OutcomeOK {
		return "connect ok"
	}
	return "connect " + o.String()
}

func tallyOfCounters(c *event.Counters) tally {
	t := tally{}
	for o, n := range c.Connections[event.RoleClient] {
		t.add(outcomeName(event.Outcome(o)), n)
	}
	for r, n := range c.Resets[event.DirectionTransmit] {
		t.add("reset sent "+c.Reasons[r], n)
	}
	for _, n := range c.Resets[event.DirectionReceive] {
		t.add("reset received", n)
	}
	for s := range c.Retransmits {
		for why, n := range c.Retransmits[s] {
			t.add(fmt.Sprintf("retransmit %s %s", event.SegmentType(s), event.RetransmitType(why)), n)
		}
	}
	return t
}

func tallyOfEvents(events []event.Event) tally {
	t := tally{}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case event.KindConnectCompleted, event.KindConnectFailed:
			t.add(outcomeName(e.Outcome), 1)
		case event.KindResetSent:
			t.add("reset sent "+e.Reason, 1)
		case event.KindResetReceived:
			t.add("reset received", 1)
		case event.KindSynRetransmitted:
			segment := event.SegmentSYN
			if e.Role == event.RoleServer {
				segment = event.SegmentSYNACK
			}
			t.add(fmt.Sprintf("retransmit %s %s", segment, event.RetransmitTimeout), 1)
		case event.KindSegmentRetransmitted:
			t.add(fmt.Sprintf("retransmit %s %s", e.Segment, e.Retransmit), uint64(e.Segments))
		}
	}
	return t
}

func (t tally) minus(other tally) tally {
	rest := tally{}
	for name, n := range t {
		rest.add(name, n-other[name])
	}
	return rest
}

// stableCounters reads counters and events that belong together, although others on this host may go on making more.
func (w *watch) stableCounters(t *testing.T) (*event.Counters, []event.Event) {
	t.Helper()
	for range 100 {
		w.flush(t)
		var c, again event.Counters
		require.NoError(t, w.source.Counters(&c))
		time.Sleep(20 * time.Millisecond) // longer than the reader's pause
		events := w.everywhere(func(*event.Event) bool { return true })
		require.NoError(t, w.source.Counters(&again))
		if c.Seen == again.Seen && cmp.Equal(tallyOfCounters(&c), tallyOfCounters(&again)) {
			return &c, events
		}
	}
	t.Fatal("this host does not come to rest")
	return nil, nil
}

// One of everything, of which the number is known, against what the kernel side counted and the records told.
func TestCountersEqualWhatWasDone(t *testing.T) {
	w := newWatch(t, everything())
	want, active, rstsOut, retransmitted := tally{}, uint64(0), uint64(0), uint64(0)
	var spaces []*nettest.Namespace
	for _, f := range nettest.Families() {
		n := nettest.New(t)
		spaces = append(spaces, n.Client, n.Server)
		n.Client.Sysctl(t, "net.ipv4.tcp_early_retrans", "0")
		th := n.Client.Thread(t, "mixed")
		away := elsewhere(f)
		before, serverBefore := n.Client.Counters(t), n.Server.Counters(t)

		l := n.Server.Listen(t, n.ServerAddr(f))
		for range 3 {
			s, _, _, err := dial(t, th, f, l.Addr)
			require.NoError(t, err)
			server := l.Next(t)
			require.NoError(t, s.Close())
			require.NoError(t, server.Close())
			want["connect ok"]++
		}
		for range 2 {
			_, _, _, err := dial(t, th, f, serverPort(n, f, 9))
			require.ErrorIs(t, err, unix.ECONNREFUSED)
			want["connect connection_refused"]++
			want["reset sent no_socket"]++
		}
		n.Client.Route(t, unix.RTN_UNREACHABLE, away.prefix, netip.Addr{})
		_, _, _, err := dial(t, th, f, away.addr)
		require.ErrorIs(t, err, unix.EHOSTUNREACH)
		want["connect host_unreachable"]++

		n.Server.Filter(t, "hole", "input", "tcp dport 7300 drop")
		s := dialNonblock(t, th, f, serverPort(n, f, 7300))
		require.NoError(t, s.Close())
		want["connect aborted"]++

		c := connectTo(t, w, f, n)
		want["connect ok"]++
		n.Server.Filter(t, "loss", "input", nettest.DropFirst(1, toServer(c)))
		c.send(t, 500)
		want["retransmit data timeout"]++
		_, err = c.server.Write([]byte("unread"))
		require.NoError(t, err)
		awaitUnread(t, c.Socket, 6)
		c.close(t)
		want["reset sent tcp_abort_on_close"]++
		want["reset received"]++

		c = connectTo(t, w, f, n)
		want["connect ok"]++
		require.NoError(t, c.SetLinger0())
		c.close(t)
		want["reset sent tcp_state"]++
		want["reset received"]++

		client, server := n.Client.Counters(t).Since(before), n.Server.Counters(t).Since(serverBefore)
		active += client["Tcp.ActiveOpens"]
		rstsOut += client["Tcp.OutRsts"] + server["Tcp.OutRsts"]
		retransmitted += client["Tcp.RetransSegs"] + server["Tcp.RetransSegs"]
	}
	c, events := w.stableCounters(t)
	var own, others []event.Event
	for i := range events {
		mine := false
		for _, n := range spaces {
			mine = mine || events[i].NetNS == n.Inode && events[i].KTime >= n.Made
		}
		if mine {
			own = append(own, events[i])
		} else {
			others = append(others, events[i])
		}
	}
	require.Empty(t, cmp.Diff(want, tallyOfEvents(own)), "records against what was done")
	require.Empty(t, cmp.Diff(want, tallyOfCounters(c).minus(tallyOfEvents(others))), "counters against what was done")
	require.Equal(t, active, want["connect ok"]+want["connect connection_refused"]+want["connect aborted"], "ActiveOpens")
	require.Equal(t, rstsOut, want["reset sent no_socket"]+want["reset sent tcp_abort_on_close"]+want["reset sent tcp_state"], "OutRsts")
	require.Equal(t, retransmitted, want["retransmit data timeout"], "RetransSegs")

	// The histograms hold just the durations that the records tell, each in its bucket.
	bounds := event.ExponentialBounds()
	var histograms [event.OutcomeCount]event.Histogram
	for i := range events {
		e := &events[i]
		if (e.Kind == event.KindConnectCompleted || e.Kind == event.KindConnectFailed) && e.HasDuration {
			h := &histograms[e.Outcome]
			h.Sum += uint64(e.Duration)
			h.Buckets[sort.Search(len(bounds), func(i int) bool { return bounds[i] >= uint64(e.Duration) })]++
		}
	}
	for o := range histograms {
		require.Empty(t, cmp.Diff(histograms[o], c.Handshakes[event.RoleClient][o]), "durations of %s", outcomeName(event.Outcome(o)))
	}
}

func TestSettingsChooseRecordsAndMetricsCountAll(t *testing.T) {
	base := everything()
	for _, c := range []struct {
		name   string
		change func(*probe.Settings)
		want   []event.Kind // of a completed connection whose client resets it, and of a refused one
	}{
		{"all", func(*probe.Settings) {}, []event.Kind{event.KindConnectCompleted, event.KindResetSent, event.KindResetReceived,
			event.KindConnectFailed, event.KindResetSent}},
		{"failed", func(s *probe.Settings) { s.HandshakeReport = probe.ReportFailed }, []event.Kind{event.KindResetSent,
			event.KindResetReceived, event.KindConnectFailed, event.KindResetSent}},
		{"slow", func(s *probe.Settings) {
			s.HandshakeReport, s.HandshakeSlowThreshold = probe.ReportSlow, time.Minute
		}, []event.Kind{event.KindResetSent, event.KindResetReceived, event.KindConnectFailed, event.KindResetSent}},
		{"slow enough", func(s *probe.Settings) {
			s.HandshakeReport, s.HandshakeSlowThreshold = probe.ReportSlow, time.Nanosecond
		}, []event.Kind{event.KindConnectCompleted, event.KindResetSent, event.KindResetReceived, event.KindConnectFailed,
			event.KindResetSent}},
		{"no handshakes", func(s *probe.Settings) { s.HandshakeReport = probe.ReportNone }, []event.Kind{event.KindResetSent,
			event.KindResetReceived, event.KindResetSent}},
		{"no answers to strays", func(s *probe.Settings) { s.ResetNoSocket = false }, []event.Kind{event.KindConnectCompleted,
			event.KindResetSent, event.KindResetReceived, event.KindConnectFailed}},
		{"no resets", func(s *probe.Settings) { s.ResetEnabled = false }, []event.Kind{event.KindConnectCompleted,
			event.KindConnectFailed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := base
			c.change(&s)
			source := open(t, s)
			var before, after event.Counters
			require.NoError(t, source.Counters(&before))
			ns := nettest.NewNamespace(t)
			l := ns.Listen(t, nettest.V4.Loopback())
			th := ns.Thread(t, "chosen")
			socket, _, _, err := dial(t, th, nettest.V4, l.Addr)
			require.NoError(t, err)
			l.Next(t)
			require.NoError(t, socket.SetLinger0())
			require.NoError(t, socket.Close())
			_, _, _, err = dial(t, th, nettest.V4, netip.AddrPortFrom(nettest.V4.Loopback(), 9))
			require.ErrorIs(t, err, unix.ECONNREFUSED)

			require.NoError(t, source.Counters(&after))
			var got []event.Kind
			source.SetDeadline(time.Now().Add(100 * time.Millisecond))
			for {
				var e event.Event
				err := source.Read(&e)
				if err != nil {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					break
				}
				if e.NetNS == ns.Inode && e.KTime >= ns.Made {
					got = append(got, e.Kind)
				}
			}
			require.ElementsMatch(t, c.want, got)
			counted := tallyOfCounters(&after).minus(tallyOfCounters(&before))
			want := tally{"connect ok": 1, "connect connection_refused": 1, "reset sent tcp_state": 1, "reset sent no_socket": 1,
				"reset received": 1}
			for name, n := range want { // others on this host may have added theirs
				if s.ResetEnabled || name == "connect ok" || name == "connect connection_refused" {
					require.GreaterOrEqual(t, counted[name], n, name)
				}
			}
		})
	}
}
