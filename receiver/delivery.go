// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.uber.org/zap"

	"github.com/ebpfnet/ebpfnetreceiver/internal/emit"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// dataFormat names what is received in the spans of the receiver's own telemetry.
const dataFormat = "ebpf"

// tuning is what tests have shorter.
type tuning struct {
	retry        backoff       // of a delivery
	giveUp       time.Duration // a batch that is refused all the time is lost after this
	reopen       backoff       // of a source that failed
	firstCollect time.Duration // from Start to the first metrics
	grace        time.Duration // for what is left to be delivered at Shutdown
}

func defaultTuning() tuning {
	return tuning{
		retry:        backoff{first: 100 * time.Millisecond, longest: 10 * time.Second},
		giveUp:       5 * time.Minute,
		reopen:       backoff{first: time.Second, longest: time.Minute},
		firstCollect: time.Second,
		grace:        5 * time.Second,
	}
}

// backoff is a doubling wait.
type backoff struct {
	first, longest time.Duration
	last           time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(b.first, 2*b.last), b.longest)
	return b.last
}

// pause waits and says whether it was not cut short by stop.
func pause(stop context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop.Done():
		return false
	case <-timer.C:
		return true
	}
}

// awaitReady waits until a consumer may be called. It says no if that will not be any more.
func awaitReady(stop context.Context, ready <-chan struct{}) bool {
	select {
	case <-ready:
	case <-stop.Done():
	}
	select { // both may be done, and then a select chooses at random
	case <-ready:
		return true
	default:
		return false
	}
}

// delivery hands batches of records to the next consumer.
type delivery struct {
	next    consumer.Logs
	ready   <-chan struct{} // closed when next may be called
	obs     *receiverhelper.ObsReport
	stop    context.Context // done when the receiver is to stop: what then fails is tried once more
	abort   context.Context // done when it can wait no longer
	retry   backoff
	giveUp  time.Duration // after which a batch that is refused all the time is lost
	refused atomic.Uint64 // records lost because next did not take them
}

// deliver returns when the records are taken, refused for good or given up.
func (d *delivery) deliver(records plog.Logs) {
	if !awaitReady(d.stop, d.ready) {
		// Nobody will start what stands behind us any more.
		d.refused.Add(uint64(records.LogRecordCount()))
		return
	}
	ctx := d.obs.StartLogsOp(d.abort)
	count := records.LogRecordCount()
	records, err := d.try(ctx, records)
	d.obs.EndLogsOp(ctx, dataFormat, count, err)
	if err != nil {
		d.refused.Add(uint64(records.LogRecordCount()))
	}
}

// try returns the records that were not taken and why.
func (d *delivery) try(ctx context.Context, records plog.Logs) (plog.Logs, error) {
	wait := d.retry
	deadline := time.Now().Add(d.giveUp)
	for {
		lastTry := d.stop.Err() != nil || !time.Now().Before(deadline)
		err := d.next.ConsumeLogs(ctx, d.own(records, lastTry))
		if err == nil {
			return plog.Logs{}, nil
		}
		// The consumer may have taken a part: the rest comes with the error.
		if partial := (consumererror.Logs{}); errors.As(err, &partial) {
			records = partial.Data()
		}
		if lastTry || consumererror.IsPermanent(err) {
			return records, err
		}
		pause(d.stop, min(wait.next(), time.Until(deadline)))
	}
}

// own is what the consumer may have. One that changes what it is given gets a copy, or a second try would be changed twice.
func (d *delivery) own(records plog.Logs, lastTry bool) plog.Logs {
	if lastTry || !d.next.Capabilities().MutatesData {
		return records
	}
	copied := plog.NewLogs()
	records.CopyTo(copied)
	return copied
}

// collect hands the metrics to the next consumer, soon after the start, at every interval, and once at the end.
func (r *instance) collect(build *emit.Metrics) {
	if !awaitReady(r.stop, r.metricsReady) {
		return
	}
	ticker := time.NewTicker(r.tuning.firstCollect)
	defer ticker.Stop()
	for first := true; ; first = false {
		select {
		case <-ticker.C:
			r.collectOnce(build)
		case <-r.stop.Done():
			r.collectOnce(build)
			return
		}
		if first {
			ticker.Reset(r.cfg.CollectionInterval)
		}
	}
}

// collectOnce does not try again: the next metrics say all that these did.
func (r *instance) collectOnce(build *emit.Metrics) {
	metrics := pmetric.NewMetrics()
	ctx := r.obs.StartMetricsOp(r.abort)
	err := r.source.count(func(c *event.Counters) { metrics = build.Build(c, time.Now()) })
	if err != nil {
		r.settings.Logger.Warn("Metrics cannot be collected", zap.Error(err))
	}
	points := metrics.DataPointCount()
	if err == nil && points > 0 {
		err = r.metrics.ConsumeMetrics(ctx, metrics)
	}
	r.obs.EndMetricsOp(ctx, dataFormat, points, err)
}
