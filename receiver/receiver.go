// SPDX-License-Identifier: Apache-2.0

// Package ebpfnetreceiver is the component ebpf_net: its configuration, its start and stop, and the wiring of internal/probe
// (kernel to events), internal/enrich (events to processes) and internal/emit (events to records, counters to metrics).
package ebpfnetreceiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.uber.org/zap"

	"github.com/ebpfnet/ebpfnetreceiver/internal/emit"
	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// maxProcesses bounds the processes whose identity is held. One takes about 600 bytes, and 256 more at most for each
// attribute that it says of itself.
const maxProcesses = 4096

// instance is one set of loaded programs and what is made of it, for the pipelines of one configuration.
type instance struct {
	cfg      *Config
	settings receiver.Settings
	kernel   kernel
	tuning   tuning
	obs      *receiverhelper.ObsReport
	status   statusFan
	source   sourceHandle

	logs         consumer.Logs    // nil: no logs pipeline
	metrics      consumer.Metrics // nil: no metrics pipeline
	logsReady    chan struct{}    // closed when logs may be called
	metricsReady chan struct{}

	stop, abort     context.Context // done at Shutdown; done when deliveries must end too
	doStop, doAbort context.CancelFunc
	goroutines      sync.WaitGroup
	lifecycle       sync.Mutex // of the four below
	started         bool
	stopped         bool
	startErr        error
	closers         []func() error // in the order of opening
}

func newInstance(cfg *Config, set receiver.Settings, k kernel, t tuning) (*instance, error) {
	obs, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{ReceiverID: set.ID, ReceiverCreateSettings: set})
	if err != nil {
		return nil, fmt.Errorf("create receiver telemetry: %w", err)
	}
	r := &instance{cfg: cfg, settings: set, kernel: k, tuning: t, obs: obs,
		logsReady: make(chan struct{}), metricsReady: make(chan struct{})}
	r.stop, r.doStop = context.WithCancel(context.Background())
	r.abort, r.doAbort = context.WithCancel(context.Background())
	return r, nil
}

// start is called by each pipeline; the first call starts the instance, and all get its result.
func (r *instance) start(host component.Host) error {
	r.lifecycle.Lock()
	defer r.lifecycle.Unlock()
	if r.stopped {
		return errors.New("receiver is shut down")
	}
	r.status.join(host)
	if !r.started {
		r.started = true
		if r.startErr = r.open(); r.startErr != nil {
			r.startErr = errors.Join(r.startErr, r.close())
		}
	}
	return r.startErr
}

// open is the wiring: source → reader → fold → limit → emit.Logs → delivery, and source → emit.Metrics → next consumer.
func (r *instance) open() error {
	set := r.settings
	if err := r.cfg.checkRoot(); err != nil {
		set.Logger.Warn("Records will lack what is read of processes and of the host", zap.Error(err))
	}
	processes, err := enrich.NewCache(r.cfg.processSettings())
	if err != nil {
		return err
	}
	first, err := r.openSource()
	if err != nil {
		if r.cfg.OnUnavailable == onUnavailableFail {
			return err
		}
		set.Logger.Warn("No TCP signal can be observed; the receiver stays without", zap.Error(err))
		r.status.report(componentstatus.NewPermanentErrorEvent(err))
		return nil
	}
	r.closers = append(r.closers, r.source.close)

	host := enrich.FindHost(r.cfg.RootPath)
	out := &delivery{next: r.logs, ready: r.logsReady, obs: r.obs, stop: r.stop, abort: r.abort, retry: r.tuning.retry,
		giveUp: r.tuning.giveUp}
	limit, err := newLimiter(r.cfg.RateLimit, maxLimitedCgroups, r.reportLeftOut)
	if err != nil {
		return err
	}
	telemetry, err := metadata.NewTelemetry(set.TelemetrySettings, set.ID, func(o *metadata.Observation) {
		r.source.observe(o)
		o.RateLimited = limit.leftOutTotal()
		o.Refused = out.refused.Load()
		o.OwnersCached = int64(processes.Len())
	})
	if err != nil {
		return err
	}
	r.closers = append(r.closers, telemetry.Shutdown)

	r.reportSignals(first.Signals())
	records := batch(nil)
	if r.logs != nil {
		records = emit.NewLogs(emit.LogsSettings{Version: set.BuildInfo.Version, Host: host, Processes: processes,
			ResourceAttributes: r.cfg.ResourceAttributes})
	}
	reader := newReader(r.kernel.now, records, r.cfg.TCP.Retransmit.Interval, limit, out.deliver)
	r.goroutines.Go(func() { r.read(reader, first) })
	if r.metrics != nil {
		build := emit.NewMetrics(emit.MetricsSettings{Version: set.BuildInfo.Version, Host: host, Metrics: r.cfg.Metrics,
			ResourceAttributes: r.cfg.ResourceAttributes, ExplicitHistograms: r.cfg.TCPMetrics.Histogram == histogramExplicit})
		r.goroutines.Go(func() { r.collect(build) })
	}
	return nil
}

// shutdown delivers what is left, at most for the grace period or until the context is done, and unloads the programs.
func (r *instance) shutdown(ctx context.Context) error {
	r.lifecycle.Lock()
	defer r.lifecycle.Unlock()
	if r.stopped {
		return nil
	}
	r.stopped = true
	r.status.close()
	r.doStop()
	defer r.doAbort()
	defer context.AfterFunc(ctx, r.doAbort)()
	defer time.AfterFunc(r.tuning.grace, r.doAbort).Stop()

	done := make(chan struct{})
	go func() {
		r.goroutines.Wait()
		close(done)
	}()
	select {
	case <-done:
		return r.close()
	case <-r.abort.Done():
	}
	// A consumer that heeds its context returns now.
	timeout := time.NewTimer(r.tuning.grace)
	defer timeout.Stop()
	select {
	case <-done:
		return r.close()
	case <-timeout.C:
		return errors.Join(errors.New("a consumer did not return from a delivery that was called off"), r.close())
	}
}

// close undoes open, in reverse. A second call does nothing.
func (r *instance) close() error {
	var errs []error
	for _, closer := range slices.Backward(r.closers) {
		errs = append(errs, closer())
	}
	r.closers = nil
	return errors.Join(errs...)
}

func (r *instance) isStarted() bool {
	r.lifecycle.Lock()
	defer r.lifecycle.Unlock()
	return r.started
}

// reportSignals says once what works: the status by an attribute a signal, the log by one line about what does not.
func (r *instance) reportSignals(signals []probe.Signal) {
	r.settings.Logger.Info("Observing TCP", hookFields(signals)...)
	if fields := signalFields(signals); len(fields) > 0 {
		r.settings.Logger.Warn("Some TCP signals cannot be observed, or not completely; the refusals of each hook follow", fields...)
	}
	r.status.report(componentstatus.NewEvent(componentstatus.StatusOK,
		componentstatus.WithAttributes(signalAttributes(signals))))
}

// reportLeftOut tells whoever reads the records that they are not all.
func (r *instance) reportLeftOut(leftOut *[event.KindCount]uint64) {
	fields := []zap.Field{zap.Float64("records_per_second", r.cfg.RateLimit.RecordsPerSecond), zap.Int("burst", r.cfg.RateLimit.Burst)}
	for kind, n := range leftOut {
		if n > 0 {
			fields = append(fields, zap.Uint64(event.Kind(kind).String(), n))
		}
	}
	r.settings.Logger.Warn("Records were left out because there were more than rate_limit lets through; metrics count all", fields...)
}
