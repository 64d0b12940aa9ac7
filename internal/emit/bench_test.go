// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// batch is how many records are collected before they are taken.
const batch = 1000

// benchmarked is a retransmit with all that it can say: 30 attributes.
func benchmarked() event.Event { return recorded()[5] }

func BenchmarkEventToLogRecord(b *testing.B) {
	logs := newLogs(b)
	e := benchmarked()
	b.ReportAllocs()
	for b.Loop() {
		appendTaking(logs, &e)
	}
}

func appendTaking(logs *Logs, e *event.Event) {
	logs.Append(e, observed)
	if logs.Len() == batch {
		logs.Take()
	}
}

// BenchmarkFillPdataWithSameAttributes is the limit: pdata alone, with values that are known beforehand.
func BenchmarkFillPdataWithSameAttributes(b *testing.B) {
	var f filler
	b.ReportAllocs()
	for b.Loop() {
		f.fill()
	}
}

// filler collects records as Logs does, but knows them beforehand.
type filler struct{ into plog.LogRecordSlice }

func (f *filler) fill() {
	if f.into == (plog.LogRecordSlice{}) || f.into.Len() == batch {
		f.into = plog.NewLogs().ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	}
	record := f.into.AppendEmpty()
	record.SetEventName("ebpfnet.tcp.segment.retransmitted")
	record.SetSeverityNumber(plog.SeverityNumberInfo)
	record.SetTimestamp(happened + 5)
	record.SetObservedTimestamp(observed)
	record.Body().SetStr("nginx[812/812] data sent again 10.0.0.5:41236 → 10.0.3.8:443: 3 segments, timeout, RTO 201.0 ms, " +
		"round trip 1.1 ms, 1 lost, 4 outstanding, 5792 bytes to send")
	a := record.Attributes()
	a.EnsureCapacity(30)
	a.PutStr("network.transport", "tcp")
	a.PutStr("network.type", "ipv4")
	a.PutStr("network.local.address", "10.0.0.5")
	a.PutInt("network.local.port", 41236)
	a.PutStr("network.peer.address", "10.0.3.8")
	a.PutInt("network.peer.port", 443)
	a.PutStr("network.connection.state", "established")
	a.PutInt("ebpfnet.socket.cookie", 4716)
	a.PutStr("ebpfnet.owner", "opener")
	a.PutInt("thread.id", 812)
	a.PutInt("ebpfnet.thread.vtid", 12)
	a.PutStr("thread.name", "nginx")
	a.PutInt("ebpfnet.tcp.retransmit.count", 3)
	a.PutStr("ebpfnet.tcp.retransmit.type", "timeout")
	a.PutDouble("ebpfnet.tcp.srtt", 0.001125)
	a.PutDouble("ebpfnet.tcp.rttvar", 0.00025)
	a.PutDouble("ebpfnet.tcp.rto", 0.201)
	a.PutInt("ebpfnet.tcp.cwnd", 10)
	a.PutInt("ebpfnet.tcp.ssthresh", 7)
	a.PutInt("ebpfnet.tcp.retransmits.total", 3)
	a.PutInt("ebpfnet.tcp.segments.lost", 1)
	a.PutInt("ebpfnet.tcp.segments.outstanding", 4)
	a.PutInt("ebpfnet.tcp.segments.duplicate", 2)
	a.PutInt("ebpfnet.tcp.send_window", 65536)
	a.PutInt("ebpfnet.tcp.receive_window", 64240)
	a.PutInt("ebpfnet.tcp.send_queue.size", 5792)
	a.PutInt("ebpfnet.tcp.receive_queue.size", 214)
	a.PutDouble("ebpfnet.tcp.last_send.age", 2.004)
	a.PutDouble("ebpfnet.tcp.last_receive.age", 0.0003)
	a.PutDouble("ebpfnet.tcp.connection.age", 65)
}

func TestBenchmarksMakeTheSameRecord(t *testing.T) {
	e := benchmarked()
	made := recordOf(t, &e)
	var f filler
	f.fill()
	filled := f.into.At(0)
	require.Equal(t, filled.Body().Str(), made.Body().Str())
	require.Equal(t, filled.EventName(), made.EventName())
	require.Equal(t, filled.Attributes().AsRaw(), made.Attributes().AsRaw())
}

// BenchmarkEventToLogRecordBesideFillingPdata runs both in alternating short windows, since a machine's speed changes from second
// to second, and reports the medians and the rate of the first in percent of the second's.
func BenchmarkEventToLogRecordBesideFillingPdata(b *testing.B) {
	logs := newLogs(b)
	var f filler
	e := benchmarked()
	const window = 5 * batch
	var made, filled []float64 // nanoseconds a record
	for b.Loop() {
		start := time.Now()
		for range window {
			appendTaking(logs, &e)
		}
		between := time.Now()
		for range window {
			f.fill()
		}
		made = append(made, float64(between.Sub(start))/window)
		filled = append(filled, float64(time.Since(between))/window)
	}
	slices.Sort(made)
	slices.Sort(filled)
	b.ReportMetric(made[len(made)/2], "ns/record")
	b.ReportMetric(filled[len(filled)/2], "ns/fill")
	b.ReportMetric(100*filled[len(filled)/2]/made[len(made)/2], "%-of-fill-rate")
	b.ReportMetric(0, "ns/op")
}
