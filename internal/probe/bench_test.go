// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/nettest"
)

// The limits that these benchmarks are held against.
const limitEventsPerSecond = 5_000_000

// BenchmarkRecordToEvent reads records of a real ring buffer as the receiver does: read, decoded, counted by kind. Beside it, over
// the same records in turns, is the limit: the same reader without decoding, and a mere copy of as many bytes.
func BenchmarkRecordToEvent(b *testing.B) {
	ring := newFilledRing(b)
	pinThread(b, runtime.NumCPU()-1)
	var counted [event.KindCount]uint64
	var e event.Event
	var raw ringbuf.Record
	var rates, rawRates, copyRates samples
	var allocations uint64

	for b.Loop() {
		ring.fill(b)
		before := mallocs()
		rate := ring.rate(b, func() error {
			err := ring.source.Read(&e)
			if err == nil {
				counted[e.Kind]++
			}
			return err
		})
		allocations += mallocs() - before
		rates.add(rate)
		ring.fill(b)
		rawRates.add(ring.rate(b, func() error { return ring.source.reader.ReadInto(&raw) }))
		copyRates.add(ring.copyRate())
	}

	var total uint64
	for _, n := range counted {
		total += n
	}
	require.Equal(b, uint64(len(rates))*ring.records, total, "every record became an event")
	require.Zero(b, ring.source.decodeErrors.Load())
	b.ReportMetric(rates.median(), "events/s")
	b.ReportMetric(rates.quantile(0.1), "events/s-p10")
	b.ReportMetric(rates.quantile(0.9), "events/s-p90")
	b.ReportMetric(limitEventsPerSecond, "events/s-wanted")
	b.ReportMetric(rawRates.median(), "raw-records/s")
	b.ReportMetric(copyRates.median(), "copies/s")
	b.ReportMetric(float64(allocations)/float64(total), "allocs/event")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDecode is the part of it that needs no kernel, beside a mere copy of the record.
func BenchmarkDecode(b *testing.B) {
	const window = 100_000
	d := testDecoder()
	records := benchmarkRecords()
	raw := make([][]byte, len(records))
	for i := range records {
		raw[i] = bytesOf(&records[i])
	}
	var e event.Event
	var to [recordSize]byte
	var decoded, copied samples // nanoseconds each
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		for i := range window {
			if d.decode(raw[i%len(raw)], &e) != nil {
				b.Fatal("a record was refused")
			}
		}
		between := time.Now()
		for i := range window {
			copy(to[:], raw[i%len(raw)])
		}
		decoded.add(float64(between.Sub(start)) / window)
		copied.add(float64(time.Since(between)) / window)
	}
	b.ReportMetric(decoded.median(), "ns/decode")
	b.ReportMetric(copied.median(), "ns/copy")
	b.ReportMetric(0, "ns/op")
}

// benchmarkRecords are records of every kind that becomes a log record, IPv4 and IPv6, with and without an owner. Their number is
// a power of two.
func benchmarkRecords() []handshakeEvent {
	kinds := []event.Kind{event.KindConnectCompleted, event.KindConnectFailed, event.KindSynRetransmitted, event.KindResetSent,
		event.KindResetReceived, event.KindSegmentRetransmitted, event.KindSegmentRetransmitted, event.KindConnectFailed}
	records := make([]handshakeEvent, 64)
	for i := range records {
		r := testRecord()
		r.Kind = uint8(kinds[i%len(kinds)])
		r.Reason = 11
		r.Segment, r.Retransmit = uint8(event.SegmentData), uint8(event.RetransmitFast)
		if i%3 == 0 {
			r.LocalAddr, r.PeerAddr = mapped("2001:db8::5"), mapped("2001:db8::7")
		}
		if i%16 == 15 {
			r.OwnerSource = uint8(event.OwnerNone)
		}
		records[i] = *r
	}
	return records
}

// filledRing is a Source over a ring buffer that a BPF program fills at will.
type filledRing struct {
	source  *Source
	filler  *ebpf.Program
	records uint64 // that fill it
	bytes   []byte // as many as the ring buffer holds
}

func newFilledRing(b *testing.B) *filledRing {
	b.Helper()
	const size = 8 << 20
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: size})
	if errors.Is(err, os.ErrPermission) {
		nettest.Unavailable(b, "a ring buffer takes root: "+err.Error())
	}
	require.NoError(b, err)
	b.Cleanup(func() { ring.Close() })
	records := benchmarkRecords()
	values, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(recordSize), MaxEntries: uint32(len(records))})
	require.NoError(b, err)
	b.Cleanup(func() { values.Close() })
	for i := range records {
		require.NoError(b, values.Put(uint32(i), bytesOf(&records[i])))
	}
	filler, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.FnGetPrandomU32.Call(), // in no order that the processor could learn
		asm.And.Imm(asm.R0, int32(len(records)-1)),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, values.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMapPtr(asm.R1, ring.FD()),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.Mov.Imm(asm.R3, int32(recordSize)),
		asm.Mov.Imm(asm.R4, unix.BPF_RB_NO_WAKEUP),
		asm.FnRingbufOutput.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}})
	require.NoError(b, err)
	b.Cleanup(func() { filler.Close() })
	reader, err := ringbuf.NewReader(ring)
	require.NoError(b, err)
	source := &Source{decoder: *testDecoder(), reader: reader}
	b.Cleanup(func() { source.Close() })
	const header = 8 // BPF_RINGBUF_HDR_SZ
	return &filledRing{source: source, filler: filler, records: size/uint64(recordSize+header) - 1, bytes: bytes.Repeat([]byte{1}, size)}
}

func (r *filledRing) fill(b *testing.B) {
	_, err := r.filler.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: uint32(r.records)})
	require.NoError(b, err)
}

// rate empties the ring buffer by read and returns the records per second of this thread's processor time.
func (r *filledRing) rate(b *testing.B, read func() error) float64 {
	r.source.SetDeadline(time.Now())
	n, start := uint64(0), threadTime()
	for {
		err := read()
		if err != nil {
			require.ErrorIs(b, err, os.ErrDeadlineExceeded)
			break
		}
		n++
	}
	elapsed := threadTime() - start
	require.Equal(b, r.records, n)
	return float64(n) / elapsed.Seconds()
}

// copyRate copies memory record by record.
func (r *filledRing) copyRate() float64 {
	var to [recordSize]byte
	start := threadTime()
	n := 0
	for from := r.bytes; len(from) >= recordSize; from = from[recordSize:] {
		copy(to[:], from)
		n++
	}
	return float64(n) / (threadTime() - start).Seconds()
}

// pinThread keeps the benchmark on one processor until it ends.
func pinThread(b *testing.B, cpu int) {
	b.Helper()
	var before, set unix.CPUSet
	runtime.LockOSThread()
	require.NoError(b, unix.SchedGetaffinity(0, &before))
	set.Set(cpu)
	require.NoError(b, unix.SchedSetaffinity(0, &set))
	b.Cleanup(func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	})
}

// threadTime is the processor time of the calling thread, in which nobody else's work on the machine shows.
func threadTime() time.Duration { return time.Duration(now(unix.CLOCK_THREAD_CPUTIME_ID)) }

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// samples are one figure of many windows.
type samples []float64

func (s *samples) add(v float64) { *s = append(*s, v) }

func (s samples) median() float64 { return s.quantile(0.5) }

func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// String gives the median and, in brackets, the tenth and the ninetieth percentile.
func (s samples) String() string {
	return fmt.Sprintf("%8.0f [%.0f … %.0f]", s.median(), s.quantile(0.1), s.quantile(0.9))
}

// report is a table for people below a benchmark's figures.
type report struct{ strings.Builder }

func (r *report) line(format string, args ...any) { fmt.Fprintf(r, "\n"+format, args...) }
