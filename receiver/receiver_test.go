// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// rig is a factory over a fake kernel, and what it logs.
type rig struct {
	*fakeKernel
	factory  receiver.Factory
	settings receiver.Settings
	log      *observer.ObservedLogs
}

func newRig() *rig {
	k := newFakeKernel()
	core, log := observer.New(zapcore.WarnLevel)
	settings := receivertest.NewNopSettings(metadata.Type)
	settings.Logger = zap.New(core)
	return &rig{fakeKernel: k, factory: newFactory(k.kernel(), defaultTuning()), settings: settings, log: log}
}

func (r *rig) newLogs(t *testing.T, cfg *Config, next consumer.Logs) receiver.Logs {
	c, err := r.factory.CreateLogs(context.Background(), r.settings, cfg, next)
	require.NoError(t, err)
	return c
}

func (r *rig) newMetrics(t *testing.T, cfg *Config, next consumer.Metrics) receiver.Metrics {
	c, err := r.factory.CreateMetrics(context.Background(), r.settings, cfg, next)
	require.NoError(t, err)
	return c
}

func start(t *testing.T, c component.Component, host component.Host) {
	require.NoError(t, c.Start(context.Background(), host))
}

func stop(t *testing.T, c component.Component) {
	require.NoError(t, c.Shutdown(context.Background()))
}

func TestFactoryMakesLogsAndMetrics(t *testing.T) {
	f := NewFactory()
	assert.Equal(t, component.MustNewType("ebpf_net"), f.Type())
	assert.Equal(t, component.StabilityLevelDevelopment, f.LogsStability())
	assert.Equal(t, component.StabilityLevelDevelopment, f.MetricsStability())
	_, err := f.CreateTraces(context.Background(), receivertest.NewNopSettings(f.Type()), f.CreateDefaultConfig(), consumertest.NewNop())
	assert.ErrorIs(t, err, pipeline.ErrSignalNotSupported)
}

func TestElsewhereTheReceiverCannotBeMade(t *testing.T) {
	f := newFactory(kernel{}, defaultTuning())
	_, err := f.CreateLogs(context.Background(), receivertest.NewNopSettings(f.Type()), f.CreateDefaultConfig(), consumertest.NewNop())
	assert.EqualError(t, err, "only Linux on amd64 and arm64")
	_, err = f.CreateMetrics(context.Background(), receivertest.NewNopSettings(f.Type()), f.CreateDefaultConfig(), consumertest.NewNop())
	assert.EqualError(t, err, "only Linux on amd64 and arm64")
}

func TestLifecycleOfEachSignalWithOneConfigPointer(t *testing.T) {
	r := newRig()
	cfg := defaultConfig()
	for name, create := range map[string]func(*testing.T) component.Component{
		"logs":    func(t *testing.T) component.Component { return r.newLogs(t, cfg, consumertest.NewNop()) },
		"metrics": func(t *testing.T) component.Component { return r.newMetrics(t, cfg, consumertest.NewNop()) },
	} {
		t.Run(name, func(t *testing.T) {
			unstarted := create(t)
			stop(t, unstarted)
			stop(t, unstarted)
			for range 2 {
				opened := r.count()
				c := create(t)
				start(t, c, componenttest.NewNopHost())
				assert.Equal(t, opened+1, r.count())
				stop(t, c)
				stop(t, c)
				assert.True(t, r.allClosed())
			}
		})
	}
}

func TestLogsAndMetricsShareOneSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := defaultConfig()
		logs, metrics := new(logsSink), new(metricsSink)
		asLogs, asMetrics := r.newLogs(t, cfg, logs), r.newMetrics(t, cfg, metrics)
		start(t, asLogs, componenttest.NewNopHost())
		start(t, asMetrics, componenttest.NewNopHost())
		assert.Equal(t, 1, r.count())
		assert.False(t, r.asked()[0].CountOnly)
		r.last().ring <- failed(1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, cookies(1, 1), logs.taken())
		assert.Len(t, metrics.taken(), 1)
		stop(t, asMetrics)
		assert.True(t, r.last().isClosed())
		stop(t, asLogs)
	})
}

func TestTwoConfigurationsHaveTwoSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		one, two := new(logsSink), new(logsSink)
		first, second := r.newLogs(t, defaultConfig(), one), r.newLogs(t, defaultConfig(), two)
		start(t, first, componenttest.NewNopHost())
		source := r.last()
		start(t, second, componenttest.NewNopHost())
		source.ring <- failed(1)
		r.last().ring <- failed(2)
		stop(t, first)
		assert.True(t, source.isClosed())
		assert.False(t, r.last().isClosed())
		stop(t, second)
		assert.Equal(t, cookies(1, 1), one.taken())
		assert.Equal(t, cookies(2, 2), two.taken())
	})
}

func TestMetricsAloneAskForNoRecordsAndDiscardWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		metrics := new(metricsSink)
		c := r.newMetrics(t, defaultConfig(), metrics)
		start(t, c, componenttest.NewNopHost())
		assert.True(t, r.asked()[0].CountOnly)
		for range 10 {
			r.last().ring <- failed(1)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(t, r.last().ring)
		stop(t, c)
	})
}

func TestMetricsComeSoonAfterStartThenAtEachIntervalAndOnceAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := defaultConfig()
		cfg.CollectionInterval = 30 * time.Second
		metrics := new(metricsSink)
		c := r.newMetrics(t, cfg, metrics)
		start(t, c, componenttest.NewNopHost())
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{999 * time.Millisecond, 0}, {time.Millisecond, 1}, {30*time.Second - 1, 1}, {1, 2}, {60 * time.Second, 4}} {
			time.Sleep(step.wait)
			synctest.Wait()
			assert.Len(t, metrics.taken(), step.want)
		}
		stop(t, c)
		assert.Len(t, metrics.taken(), 5)
		assert.Equal(t, 1, metrics.taken()[4].DataPointCount())
	})
}

func TestRecordsAreDeliveredWhenTheRingIsEmptyAndAtMostABatchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		c := r.newLogs(t, unlimitedConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		source := r.last()
		source.ring <- failed(1)
		time.Sleep(pollInterval)
		synctest.Wait()
		assert.Equal(t, []int{1}, logs.batches)
		for cookie := range uint64(1000) {
			source.ring <- failed(2 + cookie)
		}
		time.Sleep(pollInterval)
		synctest.Wait()
		assert.Equal(t, []int{1, maxBatch, 1000 - maxBatch}, logs.batches)
		assert.Equal(t, cookies(1, 1001), logs.taken())
		stop(t, c)
	})
}

// endlessSource never runs empty: each Read takes a while and yields an event.
type endlessSource struct {
	*fakeSource
	next uint64
}

func (s *endlessSource) Read(e *event.Event) error {
	select {
	case <-s.closed:
		return probe.ErrClosed
	default:
	}
	time.Sleep(10 * time.Millisecond)
	s.next++
	*e = failed(s.next)
	return nil
}

func TestRecordsAreDeliveredInTimeWhileTheRingNeverRunsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		factory := newFactory(kernel{now: r.kernel().now, open: func(s probe.Settings) (source, error) {
			src, err := r.open(s)
			return &endlessSource{fakeSource: src.(*fakeSource)}, err
		}}, defaultTuning())
		c, err := factory.CreateLogs(context.Background(), r.settings, defaultConfig(), logs)
		require.NoError(t, err)
		start(t, c, componenttest.NewNopHost())
		time.Sleep(maxBatchAge + 20*time.Millisecond)
		synctest.Wait()
		assert.NotEmpty(t, logs.taken())
		begun := time.Now()
		stop(t, c)
		assert.LessOrEqual(t, time.Since(begun), drainLimit+100*time.Millisecond)
	})
}

func TestFoldedRetransmitsAreToldAtTheIntervalsEndWithoutFurtherEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		for range 5 {
			e := failed(9)
			e.Kind, e.Segments = event.KindSegmentRetransmitted, 2
			r.last().ring <- e
		}
		time.Sleep(pollInterval)
		synctest.Wait()
		assert.Equal(t, []int64{9}, logs.taken())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []int64{9, 9}, logs.taken())
		stop(t, c)
	})
}

func TestShutdownDrainsTheRingAndTellsWhatIsFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		for range 3 {
			e := failed(9)
			e.Kind, e.Segments = event.KindSegmentRetransmitted, 2
			r.last().ring <- e
		}
		r.last().ring <- failed(10)
		stop(t, c)
		assert.Equal(t, []int64{9, 10, 9}, logs.taken())
		assert.True(t, r.last().isClosed())
	})
}

func TestRefusedRecordsAreTriedAgainUntilTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		var down atomic.Bool
		down.Store(true)
		logs.answer = func(context.Context, plog.Logs) error {
			if down.Load() {
				return errors.New("busy")
			}
			return nil
		}
		c := r.newLogs(t, unlimitedConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		for cookie := range uint64(700) {
			r.last().ring <- failed(1 + cookie)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, logs.taken())
		assert.Equal(t, int64(12), logs.calls.Load(), "with waits of 0.1, 0.2 … 6.4, then 10 seconds")
		assert.Len(t, r.last().ring, 700-maxBatch, "while a delivery waits nothing is read")
		down.Store(false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Equal(t, cookies(1, 700), logs.taken())
		stop(t, c)
	})
}

func TestOnlyWhatWasNotTakenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		logs.answer = func(_ context.Context, ld plog.Logs) error {
			if ld.LogRecordCount() == 1 {
				return nil
			}
			records := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
			taken, rest := plog.NewLogs(), plog.NewLogs()
			records.At(0).CopyTo(taken.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
			left := rest.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
			for i := 1; i < records.Len(); i++ {
				records.At(i).CopyTo(left.AppendEmpty())
			}
			logs.take(taken)
			return consumererror.NewLogs(errors.New("half"), rest)
		}
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		for cookie := range uint64(4) {
			r.last().ring <- failed(1 + cookie)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, cookies(1, 4), logs.taken())
		stop(t, c)
	})
}

func TestAConsumerThatChangesRecordsGetsThemUnchangedAtTheSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := &logsSink{mutates: true}
		var bodies []string
		logs.answer = func(_ context.Context, ld plog.Logs) error {
			body := allRecords(ld)[0].Body()
			bodies = append(bodies, body.Str())
			body.SetStr("hashed " + body.Str())
			if len(bodies) < 3 {
				return errors.New("busy")
			}
			return nil
		}
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(time.Second)
		stop(t, c)
		require.Len(t, bodies, 3)
		assert.Equal(t, bodies[0], bodies[1])
		assert.Equal(t, bodies[0], bodies[2])
	})
}

// lost reads the receiver's own count of lost records.
func lost(t *testing.T, telemetry *componenttest.Telemetry, cause string) int64 {
	m, err := telemetry.GetMetric("otelcol_ebpf_net_records_lost")
	require.NoError(t, err)
	total, known := int64(0), false
	for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
		if value, _ := point.Attributes.Value("cause"); value.AsString() == cause {
			total, known = total+point.Value, true
		}
	}
	require.True(t, known, cause)
	return total
}

func TestAStormOfOneCgroupIsLimitedCountedAndSaidAndHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		telemetry := componenttest.NewTelemetry()
		r.settings.TelemetrySettings = telemetry.NewTelemetrySettings()
		core, log := observer.New(zapcore.WarnLevel)
		r.settings.Logger = zap.New(core)
		cfg := defaultConfig()
		logs, metrics := new(logsSink), new(metricsSink)
		asLogs, asMetrics := r.newLogs(t, cfg, logs), r.newMetrics(t, cfg, metrics)
		start(t, asLogs, componenttest.NewNopHost())
		start(t, asMetrics, componenttest.NewNopHost())
		source := r.last()
		source.mu.Lock()
		source.counters.Connections[event.RoleClient][event.OutcomeRefused] = 20_100 // the kernel counts before any limit
		source.mu.Unlock()
		put := func(cgroup, cookie uint64, events int) {
			for range events {
				e := failed(cookie)
				e.Owner = event.Owner{Source: event.OwnerCurrent, PID: 1 << 30, CgroupID: cgroup}
				source.ring <- e
			}
		}
		put(5, 1, 10_000)
		put(6, 2, 100)
		put(5, 1, 10_000)
		time.Sleep(pollInterval)
		synctest.Wait()
		assert.Equal(t, 500, countOf(logs.taken(), 1))
		assert.Equal(t, 100, countOf(logs.taken(), 2))
		assert.Equal(t, int64(19_500), lost(t, telemetry, "rate_limited"))
		assert.Zero(t, log.Len())

		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, log.Len())
		line := log.All()[0]
		assert.Equal(t, zapcore.WarnLevel, line.Level)
		assert.Equal(t, map[string]any{"records_per_second": 100.0, "burst": int64(1000), "connect_failed": uint64(19_500)},
			line.ContextMap())
		var told int64
		for _, m := range metrics.taken()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			if m.Name() != "ebpfnet.tcp.connections" {
				continue
			}
			for _, point := range m.Sum().DataPoints().All() {
				if outcome, ok := point.Attributes().Get("error.type"); ok && outcome.Str() == "connection_refused" {
					told = point.IntValue()
				}
			}
		}
		assert.Equal(t, int64(20_100), told)

		put(5, 1, 1000)
		stop(t, asLogs)
		stop(t, asMetrics)
		require.Equal(t, 2, log.Len(), "at the end what is left is said, within the minute or not")
		assert.Equal(t, uint64(21_000-countOf(logs.taken(), 1)-19_500), log.All()[1].ContextMap()["connect_failed"])
		require.NoError(t, telemetry.Shutdown(context.Background()))
	})
}

func countOf(cookies []int64, cookie int64) int {
	n := 0
	for _, c := range cookies {
		if c == cookie {
			n++
		}
	}
	return n
}

func TestWithoutRateLimitNothingIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		c := r.newLogs(t, unlimitedConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		for cookie := range uint64(5000) {
			r.last().ring <- failed(1 + cookie)
		}
		stop(t, c)
		assert.Equal(t, cookies(1, 5000), logs.taken())
		assert.Zero(t, r.log.Len())
	})
}

// unlimitedConfig is the default but for the rate limit, of which events without an owner take half.
func unlimitedConfig() *Config {
	cfg := defaultConfig()
	cfg.RateLimit.RecordsPerSecond = 0
	return cfg
}

func TestRecordsRefusedForGoodOrForTooLongAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		within time.Duration
	}{
		"permanent": {consumererror.NewPermanent(errors.New("malformed")), time.Second},
		"too long":  {errors.New("busy"), 5*time.Minute + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				telemetry := componenttest.NewTelemetry()
				r.settings.TelemetrySettings = telemetry.NewTelemetrySettings()
				logs := &logsSink{answer: func(context.Context, plog.Logs) error { return c.answer }}
				rc := r.newLogs(t, defaultConfig(), logs)
				start(t, rc, componenttest.NewNopHost())
				for cookie := range uint64(3) {
					r.last().ring <- failed(1 + cookie)
				}
				time.Sleep(c.within)
				synctest.Wait()
				assert.Equal(t, int64(3), lost(t, telemetry, "refused"))
				assert.Zero(t, lost(t, telemetry, "ring_full"))
				stop(t, rc)
				require.NoError(t, telemetry.Shutdown(context.Background()))
			})
		})
	}
}

func TestOwnTelemetryTellsWhatTheSourceCounted(t *testing.T) {
	r := newRig()
	telemetry := componenttest.NewTelemetry()
	r.settings.TelemetrySettings = telemetry.NewTelemetrySettings()
	r.signals = []probe.Signal{{Name: "handshake", Hook: "tp_btf/a"}, {Name: "reset", Refusals: []string{"no"}}}
	c := r.newLogs(t, defaultConfig(), new(logsSink))
	start(t, c, componenttest.NewNopHost())
	source := r.last()
	source.mu.Lock()
	source.counters.Seen[event.KindResetSent] = 7
	source.counters.RingFull[event.KindResetSent] = 2
	source.counters.SocketsAdded, source.counters.SocketsRemoved = 9, 4
	source.mu.Unlock()
	assert.Equal(t, int64(2), lost(t, telemetry, "ring_full"))
	hooks, err := telemetry.GetMetric("otelcol_ebpf_net_hook_in_use")
	require.NoError(t, err)
	works := map[string]int64{}
	for _, point := range hooks.Data.(metricdata.Gauge[int64]).DataPoints {
		signal, _ := point.Attributes.Value("signal")
		works[signal.AsString()] = point.Value
	}
	assert.Equal(t, map[string]int64{"handshake": 1, "reset": 0}, works)
	tracked, err := telemetry.GetMetric("otelcol_ebpf_net_sockets_tracked")
	require.NoError(t, err)
	assert.Equal(t, int64(5), tracked.Data.(metricdata.Gauge[int64]).DataPoints[0].Value)
	stop(t, c)
	_, err = telemetry.GetMetric("otelcol_ebpf_net_hook_in_use")
	assert.Error(t, err, "nothing is observed after Shutdown")
	require.NoError(t, telemetry.Shutdown(context.Background()))
}

func TestShutdownWhileTheConsumerBlocksEndsWithinTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := &logsSink{answer: func(ctx context.Context, _ plog.Logs) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(time.Second)
		begun := time.Now()
		stop(t, c)
		assert.Equal(t, defaultTuning().grace, time.Since(begun))
		assert.True(t, r.last().isClosed())
	})
}

func TestShutdownHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := &logsSink{answer: func(ctx context.Context, _ plog.Logs) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		require.NoError(t, c.Shutdown(ctx))
		assert.Equal(t, time.Second, time.Since(begun))
	})
}

func TestShutdownUnloadsEvenIfAConsumerNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		release := make(chan struct{})
		logs := &logsSink{answer: func(context.Context, plog.Logs) error {
			<-release
			return nil
		}}
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(time.Second)
		assert.ErrorContains(t, c.Shutdown(context.Background()), "did not return")
		assert.True(t, r.last().isClosed())
		close(release)
	})
}

func TestWhatIsInDeliveryAtShutdownIsTriedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		logs := new(logsSink)
		logs.answer = func(context.Context, plog.Logs) error {
			if logs.calls.Load() < 3 {
				return errors.New("busy")
			}
			return nil
		}
		c := r.newLogs(t, defaultConfig(), logs)
		start(t, c, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(150 * time.Millisecond) // within the second wait
		r.last().ring <- failed(2)
		begun := time.Now()
		stop(t, c)
		assert.Zero(t, time.Since(begun), "waits are cut short")
		assert.Equal(t, cookies(1, 2), logs.taken())
	})
}

func TestAPipelineGetsNothingBeforeItsOwnStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := defaultConfig()
		logs, metrics := new(logsSink), new(metricsSink)
		asLogs, asMetrics := r.newLogs(t, cfg, logs), r.newMetrics(t, cfg, metrics)
		start(t, asMetrics, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, metrics.taken(), 1)
		assert.Zero(t, logs.calls.Load())
		start(t, asLogs, componenttest.NewNopHost())
		synctest.Wait()
		assert.Equal(t, cookies(1, 1), logs.taken())
		stop(t, asLogs)
		stop(t, asMetrics)
	})
}

func TestAStartThatFailsHalfwayNeverReachesThePipelineNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := defaultConfig()
		logs := new(logsSink)
		asLogs, asMetrics := r.newLogs(t, cfg, logs), r.newMetrics(t, cfg, new(metricsSink))
		start(t, asMetrics, componenttest.NewNopHost())
		r.last().ring <- failed(1)
		time.Sleep(time.Second)
		stop(t, asMetrics)
		stop(t, asLogs)
		assert.Zero(t, logs.calls.Load())
	})
}

func TestAPipelineCannotStartAfterTheOtherWasShutDown(t *testing.T) {
	r := newRig()
	cfg := defaultConfig()
	logs, metrics := r.newLogs(t, cfg, consumertest.NewNop()), r.newMetrics(t, cfg, consumertest.NewNop())
	stop(t, logs)
	assert.EqualError(t, metrics.Start(context.Background(), componenttest.NewNopHost()), "receiver is shut down")
	stop(t, metrics)
	assert.Zero(t, r.count())
}

func TestStatusIsOKWithTheHookOfEachSignalInEveryPipeline(t *testing.T) {
	r := newRig()
	cfg := defaultConfig()
	asLogs, asMetrics := r.newLogs(t, cfg, consumertest.NewNop()), r.newMetrics(t, cfg, consumertest.NewNop())
	var logsHost, metricsHost fakeHost
	start(t, asLogs, &logsHost)
	start(t, asMetrics, &metricsHost)
	for _, host := range []*fakeHost{&logsHost, &metricsHost} {
		assert.Equal(t, []componentstatus.Status{componentstatus.StatusOK}, host.statuses())
		assert.Equal(t, map[string]any{"handshake": "tp_btf/a", "reset": "tp_btf/b"}, host.last().Attributes().AsRaw())
	}
	assert.Zero(t, r.log.Len())
	stop(t, asLogs)
	stop(t, asMetrics)
	assert.Len(t, logsHost.statuses(), 1)
}

func TestSignalsThatAreOffAreAttributesAndOneWarning(t *testing.T) {
	r := newRig()
	r.signals = []probe.Signal{
		{Name: "handshake", Hook: "tp_btf/a"},
		{Name: "reset", Refusals: []string{"reset: sent: tp_btf/b: not there", "reset: sent: tp_btf/c: nor this"}},
		{Name: "retransmit", Hook: "tp_btf/d", Degraded: true, Refusals: []string{"retransmit: SYN-ACK: tp_btf/e: missing"}},
	}
	c := r.newLogs(t, defaultConfig(), consumertest.NewNop())
	var host fakeHost
	start(t, c, &host)
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusOK}, host.statuses())
	assert.Equal(t, map[string]any{"handshake": "tp_btf/a", "reset": "unavailable", "retransmit": "tp_btf/d"},
		host.last().Attributes().AsRaw())
	require.Equal(t, 1, r.log.Len())
	assert.Equal(t, zapcore.WarnLevel, r.log.All()[0].Level)
	assert.Equal(t, map[string]any{
		"reset":      []any{"reset: sent: tp_btf/b: not there", "reset: sent: tp_btf/c: nor this"},
		"retransmit": []any{"retransmit: SYN-ACK: tp_btf/e: missing"},
	}, r.log.All()[0].ContextMap())
	stop(t, c)
}

func TestOnUnavailableFailRefusesToStartAndLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*rig)
		want    string
	}{
		"nothing can run": {func(r *rig) { r.refuse(errors.New("no signal works: not permitted")) }, "no signal works: not permitted"},
		"one signal is off": {func(r *rig) { r.signals[1] = probe.Signal{Name: "reset", Refusals: []string{"x: a", "y: b"}} },
			"signal reset has no working hook: x: a; y: b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			c.prepare(r)
			cfg := defaultConfig()
			cfg.OnUnavailable = "fail"
			logs, metrics := r.newLogs(t, cfg, consumertest.NewNop()), r.newMetrics(t, cfg, consumertest.NewNop())
			assert.EqualError(t, logs.Start(context.Background(), componenttest.NewNopHost()), c.want)
			assert.EqualError(t, metrics.Start(context.Background(), componenttest.NewNopHost()), c.want)
			assert.True(t, r.allClosed())
			stop(t, logs)
			stop(t, metrics)
			assert.Equal(t, 1, r.count())
			assert.Zero(t, r.log.Len(), "the Collector logs what Start returns")
		})
	}
}

func TestOnUnavailableDegradeStaysWithAPermanentError(t *testing.T) {
	r := newRig()
	r.refuse(errors.New("no signal works: not permitted"))
	cfg := defaultConfig()
	logs, metrics := r.newLogs(t, cfg, consumertest.NewNop()), r.newMetrics(t, cfg, consumertest.NewNop())
	var logsHost, metricsHost fakeHost
	start(t, logs, &logsHost)
	start(t, metrics, &metricsHost)
	for _, host := range []*fakeHost{&logsHost, &metricsHost} {
		assert.Equal(t, []componentstatus.Status{componentstatus.StatusPermanentError}, host.statuses())
		assert.EqualError(t, host.last().Err(), "no signal works: not permitted")
	}
	assert.Equal(t, 1, r.log.Len())
	stop(t, logs)
	stop(t, metrics)
}

func TestAFailedReaderIsReportedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		cfg := defaultConfig()
		logs := new(logsSink)
		asLogs, asMetrics := r.newLogs(t, cfg, logs), r.newMetrics(t, cfg, consumertest.NewNop())
		var logsHost, metricsHost fakeHost
		start(t, asLogs, &logsHost)
		start(t, asMetrics, &metricsHost)
		r.refuse(errors.New("out of memory"))
		r.last().ring <- failed(1)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		r.last().failure <- errors.New("read ring buffer: broken")
		synctest.Wait()
		assert.Equal(t, cookies(1, 1), logs.taken(), "what was read is delivered")
		assert.EqualError(t, logsHost.last().Err(), "observe TCP: read ring buffer: broken")
		assert.True(t, r.allClosed())
		time.Sleep(20 * time.Second) // tries after 1, 3, 7 and 15 s
		synctest.Wait()
		assert.Equal(t, 5, r.count())
		r.refuse(nil)
		time.Sleep(12 * time.Second)
		synctest.Wait()
		r.last().ring <- failed(2)
		time.Sleep(pollInterval)
		synctest.Wait()
		assert.Equal(t, cookies(1, 2), logs.taken())
		for _, host := range []*fakeHost{&logsHost, &metricsHost} {
			assert.Equal(t, []componentstatus.Status{componentstatus.StatusOK, componentstatus.StatusRecoverableError,
				componentstatus.StatusRecoverableError, componentstatus.StatusOK}, host.statuses(), "changes only")
		}
		stop(t, asLogs)
		stop(t, asMetrics)
		assert.True(t, r.allClosed())
	})
}

func TestShutdownWhileAFailedSourceIsBeingReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		c := r.newLogs(t, defaultConfig(), new(logsSink))
		start(t, c, componenttest.NewNopHost())
		r.refuse(errors.New("out of memory"))
		r.last().failure <- errors.New("broken")
		time.Sleep(5 * time.Second)
		begun := time.Now()
		stop(t, c)
		assert.Zero(t, time.Since(begun))
		assert.True(t, r.allClosed())
	})
}

// generator puts events into the ring of the source opened last.
type generator struct {
	kernel *fakeKernel
	next   atomic.Uint64
}

func (g *generator) Start() {}
func (g *generator) Stop()  {}

func (g *generator) Generate() []receivertest.UniqueIDAttrVal {
	cookie := g.next.Add(1)
	g.kernel.last().ring <- failed(cookie)
	return []receivertest.UniqueIDAttrVal{receivertest.UniqueIDAttrVal(strconv.FormatUint(cookie, 10))}
}

// withTestID gives each record the attribute that the checker goes by.
func withTestID(next consumer.Logs) consumer.Logs {
	c, _ := consumer.NewLogs(func(ctx context.Context, ld plog.Logs) error {
		for _, record := range allRecords(ld) {
			cookie, _ := record.Attributes().Get("ebpfnet.socket.cookie")
			record.Attributes().PutStr(receivertest.UniqueIDAttrName, strconv.FormatInt(cookie.Int(), 10))
		}
		return next.ConsumeLogs(ctx, ld)
	})
	return c
}

func TestConsumeContractHolds(t *testing.T) {
	k := newFakeKernel()
	quick := defaultTuning()
	quick.retry = backoff{first: time.Millisecond, longest: 10 * time.Millisecond}
	inner := newFactory(k.kernel(), quick)
	receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
		T: t,
		Factory: receiver.NewFactory(inner.Type(), inner.CreateDefaultConfig,
			receiver.WithLogs(func(ctx context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
				return inner.CreateLogs(ctx, set, cfg, withTestID(next))
			}, component.StabilityLevelDevelopment)),
		Signal:        pipeline.SignalLogs,
		Config:        unlimitedConfig(),
		Generator:     &generator{kernel: k},
		GenerateCount: 2000,
	})
}
