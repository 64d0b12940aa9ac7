// SPDX-License-Identifier: Apache-2.0

//go:build live

package probe_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// bpfObjects are the programs, maps and links that this process holds, as "prog_id 12".
func bpfObjects() ([]string, error) {
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return nil, err
	}
	var objects []string
	for _, path := range infos {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(text)) {
			name, id, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if name == "prog_id" || name == "map_id" || name == "link_id" {
				objects = append(objects, name+" "+id)
			}
		}
	}
	return objects, nil
}

func requireNoObjects(t testing.TB) {
	t.Helper()
	objects, err := bpfObjects()
	require.NoError(t, err)
	require.Empty(t, objects)
}

// exists asks the kernel whether anybody or anything still holds the object.
func exists(object string) (bool, error) {
	var kind string
	var id uint32
	if _, err := fmt.Sscan(object, &kind, &id); err != nil {
		return false, err
	}
	var closer interface{ Close() error }
	var err error
	switch kind {
	case "prog_id":
		closer, err = ebpf.NewProgramFromID(ebpf.ProgramID(id))
	case "map_id":
		closer, err = ebpf.NewMapFromID(ebpf.MapID(id))
	case "link_id":
		closer, err = link.NewFromID(link.ID(id))
	}
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// requireGone waits until the kernel, which frees such objects a little later, has none of them.
func requireGone(t testing.TB, objects []string) {
	t.Helper()
	for _, o := range objects {
		eventually(t, o+" is gone", func() bool {
			there, err := exists(o)
			return err == nil && !there
		})
	}
}

func TestNothingIsLeftInTheKernelAfterClose(t *testing.T) {
	source := open(t, everything())
	objects, err := bpfObjects()
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range objects {
		kind, _, _ := strings.Cut(o, " ")
		kinds[kind]++
		there, err := exists(o)
		require.NoError(t, err)
		require.True(t, there, o)
	}
	require.Positive(t, kinds["prog_id"])
	require.Positive(t, kinds["map_id"])
	require.NoError(t, source.Close())
	requireNoObjects(t)
	requireGone(t, objects)
	require.NoError(t, source.Close(), "a second time")
	require.ErrorIs(t, source.Read(new(event.Event)), probe.ErrClosed)
	require.Error(t, source.Counters(new(event.Counters)))
}

func TestSourceCanBeOpenedAgainAtOnce(t *testing.T) {
	for range 3 {
		w := newWatch(t, everything())
		w.flush(t)
		require.NoError(t, w.source.Close())
	}
	requireNoObjects(t)
}

func TestTwoSourcesSideBySideBothTellAll(t *testing.T) {
	first, second := newWatch(t, everything()), newWatch(t, everything())
	n := nettest.New(t)
	th := n.Client.Thread(t, "seen")
	to := serverPort(n, nettest.V4, 9)
	_, _, _, err := dial(t, th, nettest.V4, to)
	require.Error(t, err)
	for _, w := range []*watch{first, second} {
		e := w.in(n.Client).only(t)
		require.Equal(t, event.KindConnectFailed, e.Kind)
		requireThread(t, &e, event.OwnerOpener, th)
	}
	require.NoError(t, first.source.Close())
	_, _, _, err = dial(t, th, nettest.V4, to)
	require.Error(t, err)
	require.Len(t, second.in(n.Client).await(t, 2), 2, "the one goes on without the other")
}

func TestFailedOpenLeavesNothing(t *testing.T) {
	requireLive(t)
	for name, change := range map[string]func(*probe.Settings){
		"too many bounds":      func(s *probe.Settings) { s.HistogramBounds = make([]uint64, event.MaxBounds+1) },
		"too large a ring":     func(s *probe.Settings) { s.RingBufferSize = 1 << 40 },
		"no such BTF":          func(s *probe.Settings) { s.BTFPath = filepath.Join(t.TempDir(), "missing") },
		"nothing to be traced": func(s *probe.Settings) { *s = probe.Settings{BTFPath: "/dev/null"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := everything()
			change(&s)
			source, err := probe.Open(s)
			if err == nil {
				require.NoError(t, source.Close())
			}
			require.Error(t, err)
			require.Nil(t, source)
			requireNoObjects(t)
		})
	}
}

func TestCloseInterruptsRead(t *testing.T) {
	source := open(t, everything())
	result := make(chan error, 1)
	go func() {
		for {
			if err := source.Read(new(event.Event)); err != nil {
				result <- err
				return
			}
		}
	}()
	require.NoError(t, source.Close())
	select {
	case err := <-result:
		require.ErrorIs(t, err, probe.ErrClosed)
	case <-time.After(10 * time.Second):
		t.Fatal("Read goes on")
	}
}

// A process that ends without Close, by whatever cause, takes everything along: nothing is pinned.
func TestKilledProcessLeavesNothing(t *testing.T) {
	requireLive(t)
	ns := nettest.NewNamespace(t)
	child := ns.Child(t, false, "trace")
	var objects []string
	for {
		line := child.Line(t)
		if line == "." {
			break
		}
		objects = append(objects, line)
	}
	require.NotEmpty(t, objects)
	child.Kill()
	requireGone(t, objects)
}

// traceChild opens a Source and prints the objects that it holds, then a dot, and stays until it is killed.
func traceChild([]string) error {
	source, err := probe.Open(everything())
	if err != nil {
		return err
	}
	defer source.Close()
	objects, err := bpfObjects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		fmt.Println(o)
	}
	fmt.Println(".")
	select {}
}
