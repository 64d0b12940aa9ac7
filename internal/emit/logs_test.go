// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
)

// recordOf is the record of one event alone.
func recordOf(t testing.TB, e *event.Event) plog.LogRecord {
	logs := newLogs(t)
	logs.Append(e, observed)
	require.Equal(t, 1, logs.Len())
	return logs.Take().ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
}

func TestBodyIsCompleteByItself(t *testing.T) {
	curl := owner(event.OwnerCurrent, 812, 813, "curl", "curl")
	ends := flow("127.0.0.1:41234", "127.0.0.1:9")
	for _, test := range []struct {
		name  string
		event event.Event
		want  string
	}{
		{"connected with nothing known", event.Event{Kind: event.KindConnectCompleted, Owner: curl, Flow: ends},
			"curl[812/813] connected 127.0.0.1:41234 → 127.0.0.1:9"},
		{"refused", event.Event{Kind: event.KindConnectFailed, Owner: curl, Flow: ends, Outcome: event.OutcomeRefused,
			HasDuration: true, Duration: 98 * time.Microsecond},
			"curl[812/813] connect failed 127.0.0.1:41234 → 127.0.0.1:9: connection refused after 98 µs"},
		{"aborted", event.Event{Kind: event.KindConnectFailed, Owner: curl, Flow: ends, Outcome: event.OutcomeAborted,
			HasDuration: true, Duration: 59_991 * time.Millisecond, SynRetransmits: 6},
			"curl[812/813] connect failed 127.0.0.1:41234 → 127.0.0.1:9: gave up after 60.0 s, 6 SYN retries"},
		{"timed out", event.Event{Kind: event.KindConnectFailed, Owner: curl, Flow: ends, Outcome: event.OutcomeTimedOut,
			HasDuration: true, Duration: 3_100 * time.Millisecond, SynRetransmits: 1},
			"curl[812/813] connect failed 127.0.0.1:41234 → 127.0.0.1:9: timed out after 3.1 s, 1 SYN retry"},
		{"no source port", event.Event{Kind: event.KindConnectFailed, Owner: curl, Outcome: event.OutcomeAddressNotAvailable,
			Flow: event.Flow{Local: netip.MustParseAddrPort("127.0.0.1:0"), Peer: ends.Peer}, Errno: 99},
			"curl[812/813] connect failed 127.0.0.1 → 127.0.0.1:9: no source port left, nothing was sent"},
		{"another errno", event.Event{Kind: event.KindConnectFailed, Owner: curl, Flow: ends, Outcome: event.OutcomeOther, Errno: 13},
			"curl[812/813] connect failed 127.0.0.1:41234 → 127.0.0.1:9: permission denied (errno 13)"},
		{"other without errno", event.Event{Kind: event.KindConnectFailed, Owner: curl, Flow: ends, Outcome: event.OutcomeOther},
			"curl[812/813] connect failed 127.0.0.1:41234 → 127.0.0.1:9: failed"},
		{"an outcome beyond the known", event.Event{Kind: event.KindConnectFailed, Owner: curl, Flow: ends, Outcome: 200},
			"curl[812/813] connect failed 127.0.0.1:41234 → 127.0.0.1:9: failed"},
		{"reset by linger", event.Event{Kind: event.KindResetSent, Owner: curl, Flow: ends, Reason: "tcp_state",
			State: event.StateCloseWait},
			"curl[812/813] reset sent 127.0.0.1:41234 → 127.0.0.1:9: tcp_state (closed with a linger time of 0, or disconnected), " +
				"was close_wait"},
		{"reset of a reason without words", event.Event{Kind: event.KindResetSent, Flow: ends, Reason: "tcp_too_old_ack"},
			"- reset sent 127.0.0.1:41234 → 127.0.0.1:9: tcp_too_old_ack"},
		{"reset received with nothing known", event.Event{Kind: event.KindResetReceived},
			"- reset received ? → ?"},
		{"port without address", event.Event{Kind: event.KindResetReceived, Flow: flow("[::]:80", "[2001:db8::1]:0")},
			"- reset received ?:80 → [2001:db8::1]"},
		{"owner without a name", event.Event{Kind: event.KindResetReceived, Flow: ends,
			Owner: event.Owner{Source: event.OwnerOpener, PID: 5, TID: 6}},
			"?[5/6] reset received 127.0.0.1:41234 → 127.0.0.1:9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, recordOf(t, &test.event).Body().Str())
		})
	}
}

func TestDurationsAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 µs", 0: "0 µs", 99_999: "99 µs", 100_000: "0.1 ms", 1_049_999: "1.0 ms", 1_050_000: "1.1 ms",
		999_940_000: "999.9 ms", 999_960_000: "1.0 s", time.Second: "1.0 s", 59_960 * time.Millisecond: "60.0 s",
		999 * time.Second: "999.0 s", 1000 * time.Second: "16.7 min", 2 * time.Hour: "2.0 h", 36 * time.Hour: "36.0 h",
		60 * time.Hour: "2.5 d",
	} {
		assert.Equal(t, want, string(appendDuration(nil, d)), int64(d))
	}
}

func TestHostileThreadNamesForgeNothing(t *testing.T) {
	for name, test := range map[string]struct{ comm, subject, attribute string }{
		"newline":              {"x\ny[1/1] connec", `"x?y[1/1] connec"`, "x?y[1/1] connec"},
		"forged thread":        {"x[1/1] connect", `"x[1/1] connect"`, "x[1/1] connect"},
		"end of a quotation":   {`a"[1/1] reset`, `"a'[1/1] reset"`, `a"[1/1] reset`},
		"escape sequence":      {"\x1b[2J\x1b]0;x\x07", `"?[2J?]0;x?"`, "?[2J?]0;x?"},
		"C1 control sequence":  {"a\xc2\x9b2Jb", `"a?2Jb"`, "a?2Jb"},
		"invalid UTF-8":        {"a\xff\xfe\xc0b", `"a???b"`, "a???b"},
		"line separator":       {"a\u2028b", `"a?b"`, "a?b"},
		"no owner's dash":      {"- reset sent", `"- reset sent"`, "- reset sent"},
		"harmless punctuation": {"kworker/0:1+x", "kworker/0:1+x", "kworker/0:1+x"},
	} {
		t.Run(name, func(t *testing.T) {
			e := event.Event{Kind: event.KindResetReceived, Owner: owner(event.OwnerOpener, 12, 13, test.comm, test.comm),
				Flow: flow("10.0.0.1:1", "10.0.0.2:2")}
			record := recordOf(t, &e)
			assert.Equal(t, test.subject+"[12/13] reset received 10.0.0.1:1 → 10.0.0.2:2", record.Body().Str())
			got, ok := record.Attributes().Get(metadata.AttributeThreadName)
			require.True(t, ok)
			assert.Equal(t, test.attribute, got.Str())
		})
	}
}

func FuzzLogsOfHostileNames(f *testing.F) {
	f.Add([]byte("a\x1b[1/1] \xff\u2028\n"), []byte("b\r"))
	logs := newLogs(f)
	f.Fuzz(func(t *testing.T, comm, executable []byte) {
		e := recorded()[3]
		e.Owner.Comm, e.Owner.Executable = [16]byte{}, [48]byte{}
		copy(e.Owner.Comm[:], comm)
		copy(e.Owner.Executable[:], executable)
		logs.Append(&e, observed)
		resource := logs.Take().ResourceLogs().At(0)
		record := resource.ScopeLogs().At(0).LogRecords().At(0)
		for _, attributes := range []pcommon.Map{resource.Resource().Attributes(), record.Attributes()} {
			for name, value := range attributes.All() {
				requireHarmless(t, name, value.AsString())
			}
		}
		body := record.Body().Str()
		requireHarmless(t, "body", body)
		const rest = "[951/951] reset sent 127.0.0.1:8000 → 127.0.0.1:41000: tcp_abort_on_close"
		subject, _, found := strings.Cut(body, rest)
		if !found {
			t.Fatalf("body is %q", body)
		}
		if strings.ContainsAny(subject, " []") && (subject[0] != '"' || strings.IndexByte(subject[1:], '"') != len(subject)-2) {
			t.Fatalf("body is %q", body)
		}
	})
}

func requireHarmless(t *testing.T, name, text string) {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsAny(text, "\u2028\u2029") {
		t.Fatalf("%s is %q", name, text)
	}
}

func TestRecordsOfOneProcessAreTogether(t *testing.T) {
	logs := newLogs(t)
	shell := owner(event.OwnerOpener, 812, 812, "sh", "sh")
	again := shell
	again.StartTime++ // the pid is used again
	for _, o := range []event.Owner{shell, {}, shell, again, {Source: event.OwnerCurrent}, shell} {
		logs.Append(&event.Event{Kind: event.KindResetReceived, Owner: o}, observed)
	}
	assert.Equal(t, 6, logs.Len())
	taken := logs.Take()
	require.Equal(t, 3, taken.ResourceLogs().Len())
	assert.Equal(t, 3, taken.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().Len())
	assert.Equal(t, 2, taken.ResourceLogs().At(1).ScopeLogs().At(0).LogRecords().Len())
	assert.Equal(t, map[string]any{"host.name": "node-7", "host.id": host().ID},
		taken.ResourceLogs().At(1).Resource().Attributes().AsRaw())
	assert.Equal(t, map[string]any{"host.name": "node-7", "host.id": host().ID, "process.pid": int64(812), "process.vpid": int64(12),
		"process.creation.time": "2026-03-01T08:05:07.123Z", "process.executable.name": "sh"},
		taken.ResourceLogs().At(0).Resource().Attributes().AsRaw())
}

func TestProcessThatExecutesAnotherFileIsToldAsWhatItIs(t *testing.T) {
	logs := newLogs(t)
	for _, executable := range []string{"sh", "curl", "sh"} {
		logs.Append(&event.Event{Kind: event.KindResetReceived, Owner: owner(event.OwnerOpener, 812, 812, "x", executable)}, observed)
	}
	taken := logs.Take()
	require.Equal(t, 2, taken.ResourceLogs().Len())
	for i, executable := range []string{"sh", "curl"} {
		name, _ := taken.ResourceLogs().At(i).Resource().Attributes().Get(metadata.AttributeProcessExecutableName)
		assert.Equal(t, executable, name.Str())
	}
}

func TestTakeStartsAnewAndLeavesWhatWasTaken(t *testing.T) {
	logs := newLogs(t)
	e := recorded()[3]
	logs.Append(&e, observed)
	first := logs.Take()
	body := strings.Clone(first.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
	assert.Zero(t, logs.Len())
	assert.Zero(t, logs.Take().LogRecordCount())
	e.Owner.Comm = [16]byte{'x'}
	logs.Append(&e, observed)
	logs.Append(&e, observed)
	second := logs.Take()
	assert.Equal(t, 1, first.LogRecordCount())
	assert.Equal(t, body, first.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
	assert.Equal(t, 2, second.LogRecordCount())
	assert.Equal(t, 1, second.ResourceLogs().Len())
}

func TestDisabledResourceAttributesAreAbsent(t *testing.T) {
	logs := newLogs(t)
	logs.settings.ResourceAttributes = metadata.ResourceAttributesConfig{}
	e := recorded()[3]
	logs.Append(&e, observed)
	assert.Zero(t, logs.Take().ResourceLogs().At(0).Resource().Attributes().Len())
}

func TestNoAttributeIsTwice(t *testing.T) {
	for _, e := range recorded() {
		if e.Kind == event.KindUnknown || e.Kind >= event.KindSocketClosed {
			continue
		}
		attributes := recordOf(t, &e).Attributes()
		assert.Len(t, attributes.AsRaw(), attributes.Len())
	}
}

func TestAttributesArePouredInOrderAndShapesAreBounded(t *testing.T) {
	var a attributes
	for i := range 3 * maxShapes {
		a.reset()
		var want []string
		for f := range fieldCount {
			if i>>f&1 == 0 {
				continue
			}
			want = append(want, fields[f].name)
			switch fields[f].kind {
			case pcommon.ValueTypeStr:
				a.putString(f, "x")
			case pcommon.ValueTypeInt:
				a.putInt(f, int64(i))
			default:
				a.putDuration(f, time.Duration(i))
			}
		}
		poured := pcommon.NewMap()
		a.pour(poured)
		var got []string
		for name, value := range poured.All() {
			got = append(got, name)
			assert.NotEqual(t, pcommon.ValueTypeEmpty, value.Type())
		}
		require.Equal(t, want, got)
		require.LessOrEqual(t, len(a.shapes), maxShapes)
	}
}

func TestRecordAllocatesLittleMoreThanFillingItWithWhatIsKnown(t *testing.T) {
	for _, e := range recorded() {
		if e.Kind == event.KindUnknown || e.Kind >= event.KindSocketClosed {
			continue
		}
		logs := newLogs(t)
		logs.Append(&e, observed)
		want := recordOf(t, &e)
		const records = 100
		made := testing.AllocsPerRun(20, func() {
			for range records {
				logs.Append(&e, observed)
			}
			logs.Take()
		})
		filled := testing.AllocsPerRun(20, func() {
			into := plog.NewLogs().ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
			for range records {
				fillAlike(into.AppendEmpty(), want)
			}
		})
		assert.LessOrEqual(t, made/records, filled/records+2, metadata.Events[e.Kind].Name)
	}
}

// fillAlike fills a record as another one is.
func fillAlike(to, from plog.LogRecord) {
	to.SetEventName(from.EventName())
	to.SetSeverityNumber(from.SeverityNumber())
	to.SetTimestamp(from.Timestamp())
	to.SetObservedTimestamp(from.ObservedTimestamp())
	to.Body().SetStr(from.Body().Str())
	attributes := to.Attributes()
	attributes.EnsureCapacity(from.Attributes().Len())
	from.Attributes().Range(func(name string, value pcommon.Value) bool {
		switch value.Type() {
		case pcommon.ValueTypeStr:
			attributes.PutStr(name, value.Str())
		case pcommon.ValueTypeInt:
			attributes.PutInt(name, value.Int())
		case pcommon.ValueTypeDouble:
			attributes.PutDouble(name, value.Double())
		}
		return true
	})
}

func TestLineAllocatesNothing(t *testing.T) {
	var l line
	l.text = bytes.Repeat([]byte{0}, 1024)
	for _, e := range recorded() {
		assert.Zero(t, testing.AllocsPerRun(10, func() { l.write(&e) }), e.Kind)
	}
}
