// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

func TestConnectionsFromBeforeHaveTheirProcess(t *testing.T) {
	for _, f := range nettest.Families() {
		t.Run(f.String(), func(t *testing.T) {
			n := nettest.New(t)
			l, at := listen(t, n.Server.Thread(t, "listener"), f, n.ServerAddr(f))
			client, local, _, err := dial(t, n.Client.Thread(t, "client"), f, at)
			require.NoError(t, err)
			accept(t, n.Server.Thread(t, "server"), l)
			w := newWatch(t, everything())
			require.NoError(t, client.SetLinger0())
			require.NoError(t, client.Close())

			e := w.in(n.Server).kind(event.KindResetReceived).only(t)
			require.Equal(t, event.Flow{Local: at, Peer: local}, e.Flow)
			require.Equal(t, event.OwnerScan, e.Owner.Source)
			require.EqualValues(t, os.Getpid(), e.Owner.PID)
			require.Equal(t, executable(t), text(e.Owner.Executable[:]))
			requireStartTime(t, &e, os.Getpid())
			requireCgroup(t, &e, os.Getpid())
			e = w.in(n.Client).kind(event.KindResetSent).only(t)
			require.Equal(t, event.OwnerCurrent, e.Owner.Source, "the thread that closed it is known")
		})
	}
}
