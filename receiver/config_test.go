// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

func defaultConfig() *Config { return createDefaultConfig().(*Config) }

// load reads a configuration as the Collector does.
func load(conf *confmap.Conf) (*Config, error) {
	cfg := defaultConfig()
	if err := conf.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

func loadText(t *testing.T, text string) (*Config, error) {
	var raw map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &raw))
	return load(confmap.NewFromStringMap(raw))
}

func TestDefaultsAreValid(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	require.NoError(t, confmap.Validate(createDefaultConfig()))
}

func TestConfigIsReadFromYAML(t *testing.T) {
	all := defaultConfig()
	all.OnUnavailable = "fail"
	all.CollectionInterval = 30 * time.Second
	all.RootPath = "/hostfs"
	all.BTFPath = "/etc/kernel.btf"
	all.TCP.Handshake = HandshakeConfig{Report: "all", SlowThreshold: 100 * time.Millisecond}
	all.TCP.Reset = ResetConfig{Enabled: true, NoSocket: true}
	all.TCP.Retransmit = RetransmitConfig{Enabled: true, Interval: 5 * time.Second}
	all.Resource = ResourceConfig{}
	all.RateLimit = RateLimitConfig{RecordsPerSecond: 0.5, Burst: 20}
	all.RingBufferSize = 16 << 20
	all.TCPMetrics.Histogram = "explicit"
	all.Metrics.TCPResets.Enabled = false
	all.ResourceAttributes.HostID.Enabled = false

	off := defaultConfig()
	off.TCP.Handshake.Report = "none"
	off.TCP.Reset.Enabled = false
	off.TCP.Retransmit = RetransmitConfig{}
	off.RateLimit.RecordsPerSecond = 0
	off.RingBufferSize = 4096

	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for name, want := range map[string]*Config{"ebpf_net": defaultConfig(), "ebpf_net/all": all, "ebpf_net/off": off} {
		t.Run(name, func(t *testing.T) {
			sub, err := file.Sub(name)
			require.NoError(t, err)
			cfg, err := load(sub)
			require.NoError(t, err)
			assert.Equal(t, want, cfg)
		})
	}
}

func TestSectionsKeepTheDefaultsOfWhatTheyLeaveOut(t *testing.T) {
	for name, text := range map[string]string{
		"empty section":      "tcp:",
		"empty map":          "tcp: {}",
		"empty signals":      "tcp: {handshake: , reset: , retransmit: }",
		"one key":            "tcp: {handshake: {report: slow}, reset: {enabled: true}}",
		"empty metrics":      "metrics:",
		"empty attributes":   "resource_attributes: {}",
		"empty tcp_metrics":  "tcp_metrics:",
		"empty rate_limit":   "rate_limit:",
		"half a rate_limit":  "rate_limit: {records_per_second: 100}",
		"metric as default":  "metrics: {ebpfnet.tcp.resets: {enabled: true}}",
		"metric without key": "metrics: {ebpfnet.tcp.resets: }",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := loadText(t, text)
			require.NoError(t, err)
			assert.Equal(t, defaultConfig(), cfg)
		})
	}
}

func TestWrongValuesAreRefusedWithKeyValueAndWhatIsAllowed(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"on_unavailable: ignore", `on_unavailable is "ignore": must be one of degrade, fail`},
		{"on_unavailable: ''", `on_unavailable is "": must be one of degrade, fail`},
		{"collection_interval: 10", `collection_interval is 10ns: must be from 100ms to 24h0m0s`},
		{"collection_interval: -1s", `collection_interval is -1s: must be from 100ms to 24h0m0s`},
		{"collection_interval: 48h", `collection_interval is 48h0m0s: must be from 100ms to 24h0m0s`},
		{"root_path: hostfs", `root_path is "hostfs": must be empty or an absolute path`},
		{"tcp: {handshake: {report: some}}", `tcp::handshake::report is "some": must be one of all, slow, failed, none`},
		{"tcp: {handshake: {report: Slow}}", `tcp::handshake::report is "Slow": must be one of all, slow, failed, none`},
		{"tcp: {handshake: {slow_threshold: 250}}",
			`tcp::handshake::slow_threshold is 250ns: must be 0 or from 1µs to 24h0m0s`},
		{"tcp: {handshake: {slow_threshold: -1ms}}",
			`tcp::handshake::slow_threshold is -1ms: must be 0 or from 1µs to 24h0m0s`},
		{"tcp: {retransmit: {interval: 1}}", `tcp::retransmit::interval is 1ns: must be 0 or from 1ms to 24h0m0s`},
		{"rate_limit: {records_per_second: -1}", `rate_limit::records_per_second is -1: must be 0 or from 0.01 to 1000000`},
		{"rate_limit: {records_per_second: 0.001}",
			`rate_limit::records_per_second is 0.001: must be 0 or from 0.01 to 1000000`},
		{"rate_limit: {records_per_second: .nan}", `rate_limit::records_per_second is NaN: must be 0 or from 0.01 to 1000000`},
		{"rate_limit: {records_per_second: 1000001}",
			`rate_limit::records_per_second is 1.000001e+06: must be 0 or from 0.01 to 1000000`},
		{"rate_limit: {burst: 0}", `rate_limit::burst is 0: must be from 1 to 1000000`},
		{"rate_limit: {records_per_second: 0, burst: -1}", `rate_limit::burst is -1: must be from 1 to 1000000`},
		{"rate_limit: {burst: 1000001}", `rate_limit::burst is 1000001: must be from 1 to 1000000`},
		{"ring_buffer_size: 4095", `ring_buffer_size is 4095: must be from 4KiB to 1GiB`},
		{"ring_buffer_size: 0", `ring_buffer_size is 0: must be from 4KiB to 1GiB`},
		{"ring_buffer_size: -4096", `ring_buffer_size is -4KiB: must be from 4KiB to 1GiB`},
		{"ring_buffer_size: 2147483648", `ring_buffer_size is 2GiB: must be from 4KiB to 1GiB`},
		{"tcp_metrics: {histogram: linear}", `tcp_metrics::histogram is "linear": must be one of exponential, explicit`},
		{"on_unavailable: a\ntcp_metrics: {histogram: b}",
			"on_unavailable is \"a\": must be one of degrade, fail\ntcp_metrics::histogram is \"b\": must be one of exponential, explicit"},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := loadText(t, c.text)
			assert.EqualError(t, err, c.want)
		})
	}
}

func TestWhatCannotBeReadIsRefusedWithItsKey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		// Keys of signals that do not exist yet are no different from misspelt ones.
		{"filter: {include_ports: [80]}", `'filter' has invalid keys: include_ports`},
		{"tcp: {listener: {enabled: true}}", `'tcp' has invalid keys: listener`},
		{"rate_limit: {per_second: 1}", `'rate_limit' has invalid keys: per_second`},
		{"tcp: {handshake: {enabled: true}}", `'tcp.handshake' has invalid keys: enabled`},
		{"tcp: {reset: {stack: true}}", `'tcp.reset' has invalid keys: stack`},
		{"tcp: {retransmit: {intervall: 1s}}", `'tcp.retransmit' has invalid keys: intervall`},
		{"tcp_metrics: {scope: host}", `'tcp_metrics' has invalid keys: scope`},
		{"metrics: {ebpfnet.tcp.nonsense: {enabled: true}}", `'metrics' has invalid keys: ebpfnet.tcp.nonsense`},
		{"resource_attributes: {host.nonsense: {enabled: true}}", `'resource_attributes' has invalid keys: host.nonsense`},
		{"tcp: {reset: {enabled: 'yes'}}", `'tcp.reset.enabled' expected type 'bool', got unconvertible type 'string'`},
		{"tcp: {reset: true}", `'tcp.reset' expected a map or struct, got "bool"`},
		{"tcp: {handshake: {report: 3}}", `'tcp.handshake.report' expected type 'string', got unconvertible type 'int'`},
		{"tcp: {retransmit: {interval: soon}}", `'tcp.retransmit.interval' time: invalid duration`},
		{"ring_buffer_size: true", `'ring_buffer_size' expected type 'ebpfnetreceiver.ByteSize', got unconvertible type 'bool'`},
		{"ring_buffer_size: 8MB",
			`'ring_buffer_size' size is "8MB": must be a whole number of bytes, or one with the unit KiB, MiB or GiB`},
		{"ring_buffer_size: 1.5MiB",
			`'ring_buffer_size' size is "1.5MiB": must be a whole number of bytes, or one with the unit KiB, MiB or GiB`},
		{"ring_buffer_size: -8MiB",
			`'ring_buffer_size' size is "-8MiB": must be a whole number of bytes, or one with the unit KiB, MiB or GiB`},
		{"ring_buffer_size: 9000000000000000000GiB", `'ring_buffer_size' size is "9000000000000000000GiB": must be at most 1GiB`},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := loadText(t, c.text)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestByteSizesAreReadWithAndWithoutUnitAndRoundedUp(t *testing.T) {
	for text, want := range map[string]struct {
		size    ByteSize
		rounded int
		written string
	}{
		"8MiB":     {8 << 20, 8 << 20, "8MiB"},
		"8 MiB":    {8 << 20, 8 << 20, "8MiB"},
		"5000KiB":  {5000 << 10, 8 << 20, "5000KiB"},
		"1GiB":     {1 << 30, 1 << 30, "1GiB"},
		"4096":     {4096, 4096, "4KiB"},
		"'4097'":   {4097, 8192, "4097"},
		"3145728":  {3 << 20, 4 << 20, "3MiB"},
		"1023 MiB": {1023 << 20, 1 << 30, "1023MiB"},
	} {
		t.Run(text, func(t *testing.T) {
			cfg, err := loadText(t, "ring_buffer_size: "+text)
			require.NoError(t, err)
			assert.Equal(t, want.size, cfg.RingBufferSize)
			assert.Equal(t, want.rounded, cfg.RingBufferSize.roundedUp())
			written, err := cfg.RingBufferSize.MarshalText()
			require.NoError(t, err)
			assert.Equal(t, want.written, string(written))
		})
	}
}

func TestProbeSettingsFollowTheConfig(t *testing.T) {
	cfg := defaultConfig()
	cfg.RingBufferSize = 5000
	cfg.BTFPath = "/btf"
	cfg.TCP.Reset.NoSocket = true
	assert.Equal(t, probe.Settings{
		HandshakeReport:        probe.ReportSlow,
		HandshakeSlowThreshold: 250 * time.Millisecond,
		AcceptReport:           probe.ReportSlow,
		AcceptSlowThreshold:    100 * time.Millisecond,
		LossEnabled:            true,
		ExcludeSelf:            true,
		ResetEnabled:           true,
		ResetNoSocket:          true,
		RetransmitEnabled:      true,
		HistogramBounds:        event.ExponentialBounds(),
		RingBufferSize:         8192,
		BTFPath:                "/btf",
	}, cfg.probeSettings(true))

	cfg.TCPMetrics.Histogram = histogramExplicit
	assert.Equal(t, event.ExplicitBounds(), cfg.probeSettings(true).HistogramBounds)
	for report, want := range map[string]probe.Report{
		reportAll: probe.ReportAll, reportSlow: probe.ReportSlow, reportFailed: probe.ReportFailed, reportNone: probe.ReportNone,
	} {
		cfg.TCP.Handshake.Report = report
		assert.Equal(t, want, cfg.probeSettings(true).HandshakeReport)
	}
	assert.True(t, cfg.probeSettings(false).CountOnly)
}

func TestARootWithoutProcIsSaid(t *testing.T) {
	cfg := defaultConfig()
	require.NoError(t, cfg.checkRoot())
	cfg.RootPath = "/"
	require.NoError(t, cfg.checkRoot())
	cfg.RootPath = t.TempDir()
	require.ErrorContains(t, cfg.checkRoot(), "must be where the host's / is mounted")
}
