// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

func objects(t *testing.T) map[string]*ebpf.CollectionSpec {
	t.Helper()
	specs := map[string]*ebpf.CollectionSpec{}
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"handshake": loadHandshake, "refused": loadRefused, "accept": loadAccept, "loss": loadLoss, "sockets": loadSockets, "reset": loadReset, "retransmit": loadRetransmit, "clock": loadClock} {
		spec, err := load()
		require.NoError(t, err)
		specs[name] = spec
	}
	return specs
}

// A byte that no field covers would carry kernel memory to user space or differ between compilers.
func TestRecordsAndMapsHaveNoHiddenPadding(t *testing.T) {
	for name, spec := range objects(t) {
		for _, typ := range []string{"event", "owner", "snapshot", "counts", "histogram", "config", "socket_info", "departed", "closing"} {
			var s *btf.Struct
			if err := spec.Types.TypeByName(typ, &s); err != nil {
				continue // not every object uses every type; that each is in one is checked below
			}
			covered := uint32(0)
			for _, m := range s.Members {
				require.Zerof(t, m.BitfieldSize, "%s: %s.%s is a bit field", name, typ, m.Name)
				require.Equalf(t, covered, m.Offset.Bytes(), "%s: hole before %s.%s", name, typ, m.Name)
				size, err := btf.Sizeof(m.Type)
				require.NoError(t, err)
				covered += uint32(size)
			}
			require.Equalf(t, covered, s.Size, "%s: hole at the end of %s", name, typ)
		}
	}
	for _, typ := range []string{"event", "counts", "histogram", "config", "socket_info", "departed", "closing"} {
		var s *btf.Struct
		require.NoError(t, objects(t)["handshake"].Types.TypeByName(typ, &s))
	}
}

func TestSharedMapsAreTheSameInEveryObject(t *testing.T) {
	specs := objects(t)
	delete(specs, "clock")
	for _, m := range []string{handshakeMapEvents, handshakeMapCounters, handshakeMapHandshakes, handshakeMapSockets,
		handshakeMapLastDeparted, handshakeMapClosing, handshakeMapAcceptWaits} {
		want := specs["handshake"].Maps[m]
		for name, spec := range specs {
			got := spec.Maps[m]
			require.NotNilf(t, got, "%s has no map %s", name, m)
			require.NoErrorf(t, sameMap(want, got), "%s: map %s", name, m)
		}
	}
}

func sameMap(a, b *ebpf.MapSpec) error {
	if a.Type != b.Type || a.KeySize != b.KeySize || a.ValueSize != b.ValueSize || a.MaxEntries != b.MaxEntries || a.Flags != b.Flags {
		return ebpf.ErrMapIncompatible
	}
	return nil
}

// The enums of events.h and the constants of internal/event are one numbering.
func TestEnumsOfTheKernelSideAreThoseOfTheVocabulary(t *testing.T) {
	header, err := os.ReadFile("../../bpf/events.h")
	require.NoError(t, err)
	names := func(n int, name func(int) string) (all []string) {
		for i := range n {
			all = append(all, name(i))
		}
		return all
	}
	for enum, want := range map[string][]string{
		"event_kind":      names(int(event.KindCount), func(i int) string { return event.Kind(i).String() }),
		"role":            names(int(event.RoleCount), func(i int) string { return event.Role(i).String() }),
		"outcome":         {"ok", "refused", "timed_out", "host_unreachable", "network_unreachable", "reset", "address_not_available", "aborted", "other"},
		"segment_type":    names(int(event.SegmentTypeCount), func(i int) string { return event.SegmentType(i).String() }),
		"retransmit_type": {"unknown", "fast", "timeout", "tail_loss_probe"},
		"direction":       names(int(event.DirectionCount), func(i int) string { return event.Direction(i).String() }),
		"owner_source":    names(int(event.OwnerSourceCount), func(i int) string { return event.OwnerSource(i).String() }),
		"report":          {"none", "failed", "slow", "all"},
	} {
		body := regexp.MustCompile(`(?s)enum ` + enum + ` \{(.*?)\};`).FindSubmatch(header)
		require.NotNilf(t, body, "enum %s", enum)
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^\t[A-Z]+?_([A-Z_]+),`).FindAllSubmatch(body[1], -1) {
			got = append(got, strings.ToLower(string(m[1])))
		}
		if enum == "event_kind" { // EVENT_KINDS looks like a kind
			got = got[:len(got)-1]
		} else if last := len(got) - 1; last == len(want) { // the count, e.g. SEGMENT_TYPES
			got = got[:last]
		}
		require.Equalf(t, want, got, "enum %s", enum)
	}
	for define, want := range map[string]string{"RESET_REASONS": "64", "HISTOGRAM_BOUNDS": "192", "SEARCH_BOUNDS": "256"} {
		m := regexp.MustCompile(`#define ` + define + ` (\d+)`).FindSubmatch(header)
		require.NotNil(t, m, define)
		require.Equal(t, want, string(m[1]), define)
	}
	require.Equal(t, 64, event.MaxReasons)
	require.Equal(t, 192, event.MaxBounds)
	require.Equal(t, 256, searchBounds)
}

// The table names programs that exist, each program once, and no program is left out.
func TestTableAndObjectsNameTheSamePrograms(t *testing.T) {
	left := map[string]bool{}
	specs := objects(t)
	delete(specs, "clock")
	for _, spec := range specs {
		for name := range spec.Programs {
			left[name] = true
		}
	}
	for _, f := range families {
		for _, p := range f.parts {
			spec, err := p.load()
			require.NoError(t, err)
			require.NotEmpty(t, p.candidates, "%s: %s", f.name, p.name)
			for _, c := range p.candidates {
				for _, name := range c.programs {
					require.Contains(t, spec.Programs, name, "%s: %s", f.name, p.name)
					require.True(t, left[name], "%s: %s: program %s is named twice", f.name, p.name, name)
					delete(left, name)
				}
			}
		}
	}
	require.Empty(t, left, "programs that no candidate uses")
}

func TestHooksDocumentListsTheTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/hooks.md")
	require.NoError(t, err)
	var want []string
	for _, f := range families {
		for _, p := range f.parts {
			for i, c := range p.candidates {
				row := "| " + f.name + " | " + p.name + " | " + string(rune('1'+i)) + " | `" + c.hook + "` | `" + strings.Join(c.programs, "`, `") + "` |"
				want = append(want, row)
			}
		}
	}
	var got []string
	for _, line := range strings.Split(string(doc), "\n") {
		if regexp.MustCompile(`^\| [a-z]+ \| [A-Za-z -]+ \| [0-9] \|`).MatchString(line) {
			got = append(got, strings.Join(strings.SplitAfterN(line, "|", 7)[:6], ""))
		}
	}
	require.Equal(t, want, got)
}
