// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/ebpfnet/ebpfnetreceiver/internal/enrich"
	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/probe"
)

// Config is what users write under ebpf_net.
type Config struct {
	// OnUnavailable says what a signal without a working hook leads to: degrade (go on with the rest) or fail (refuse to start).
	OnUnavailable      string        `mapstructure:"on_unavailable"`
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// RootPath is where the host's / is mounted, for a collector in a container; empty: /.
	RootPath string `mapstructure:"root_path"`
	// BTFPath is a file with the BTF of a kernel that does not carry its own.
	BTFPath            string                            `mapstructure:"btf_path"`
	TCP                TCPConfig                         `mapstructure:"tcp"`
	Resource           ResourceConfig                    `mapstructure:"resource"`
	RateLimit          RateLimitConfig                   `mapstructure:"rate_limit"`
	Filter             FilterConfig                      `mapstructure:"filter"`
	RingBufferSize     ByteSize                          `mapstructure:"ring_buffer_size"`
	TCPMetrics         TCPMetricsConfig                  `mapstructure:"tcp_metrics"`
	Metrics            metadata.MetricsConfig            `mapstructure:"metrics"`
	ResourceAttributes metadata.ResourceAttributesConfig `mapstructure:"resource_attributes"`
}

// TCPConfig is one section a signal.
type TCPConfig struct {
	Handshake  HandshakeConfig  `mapstructure:"handshake"`
	Accept     AcceptConfig     `mapstructure:"accept"`
	Reset      ResetConfig      `mapstructure:"reset"`
	Retransmit RetransmitConfig `mapstructure:"retransmit"`
	Loss       LossConfig       `mapstructure:"loss"`
}

// HandshakeConfig says which outbound handshakes become records: all, slow (those of at least SlowThreshold, failed ones, and
// ones with a retransmitted SYN), failed or none. Metrics count all.
type HandshakeConfig struct {
	Report        string        `mapstructure:"report"`
	SlowThreshold time.Duration `mapstructure:"slow_threshold"`
}

// AcceptConfig says which accepted connections become records: all, slow (those that waited at least SlowThreshold in the accept
// queue, and ones with a retransmitted SYN-ACK) or none; failed is none too, since an accept does not fail. Metrics count all.
type AcceptConfig struct {
	Report        string        `mapstructure:"report"`
	SlowThreshold time.Duration `mapstructure:"slow_threshold"`
}

// ResetConfig is about RSTs sent and received. NoSocket makes answers to strays (port scans) records too.
type ResetConfig struct {
	Enabled  bool `mapstructure:"enabled"`
	NoSocket bool `mapstructure:"no_socket"`
}

// RetransmitConfig is about data sent again. Per connection and type the first is told at once, further ones within Interval as
// one; zero tells each.
type RetransmitConfig struct {
	Enabled  bool          `mapstructure:"enabled"`
	Interval time.Duration `mapstructure:"interval"`
}

// LossConfig is about loss state and fast recovery entered.
type LossConfig struct {
	Enabled bool `mapstructure:"enabled"`
}

// FilterConfig says what is neither told nor counted: with ExcludeSelf the Collector's own connections.
type FilterConfig struct {
	ExcludeSelf bool `mapstructure:"exclude_self"`
}

// ResourceConfig says where a process may say what it is (service.*, k8s.*, deployment.environment.name): in the variables
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES of its environment, and in the context that it publishes (OTEP 4719).
type ResourceConfig struct {
	ProcessEnvironment bool `mapstructure:"process_environment"`
	ProcessContext     bool `mapstructure:"process_context"`
}

// RateLimitConfig bounds the records of each kind: RecordsPerSecond lastingly, 0 for no limit, and Burst at once. No cgroup, nor
// all that have no owner together, takes more than half of either. Metrics count all.
type RateLimitConfig struct {
	RecordsPerSecond float64 `mapstructure:"records_per_second"`
	Burst            int     `mapstructure:"burst"`
}

// TCPMetricsConfig shapes the TCP metrics. Histogram is exponential or explicit.
type TCPMetricsConfig struct {
	Histogram string `mapstructure:"histogram"`
}

const (
	onUnavailableDegrade = "degrade"
	onUnavailableFail    = "fail"
	reportAll            = "all"
	reportSlow           = "slow"
	reportFailed         = "failed"
	reportNone           = "none"
	histogramExponential = "exponential"
	histogramExplicit    = "explicit"

	minRingBufferSize = 4 * kibibyte // a ring buffer is at least one page
	maxRingBufferSize = gibibyte
	// A bare number in YAML is nanoseconds; the lower bounds catch a forgotten unit.
	minCollectionInterval = 100 * time.Millisecond
	minThreshold          = time.Microsecond
	minFoldInterval       = time.Millisecond
	maxDuration           = 24 * time.Hour
	minRecordsPerSecond   = 0.01
	maxRecordsPerSecond   = 1_000_000
	maxBurst              = 1_000_000
)

func createDefaultConfig() component.Config {
	return &Config{
		OnUnavailable:      onUnavailableDegrade,
		CollectionInterval: 10 * time.Second,
		TCP: TCPConfig{
			Handshake:  HandshakeConfig{Report: reportSlow, SlowThreshold: 250 * time.Millisecond},
			Accept:     AcceptConfig{Report: reportSlow, SlowThreshold: 100 * time.Millisecond},
			Reset:      ResetConfig{Enabled: true},
			Retransmit: RetransmitConfig{Enabled: true, Interval: time.Second},
			Loss:       LossConfig{Enabled: true},
		},
		Resource:           ResourceConfig{ProcessEnvironment: true, ProcessContext: true},
		RateLimit:          RateLimitConfig{RecordsPerSecond: 100, Burst: 1000},
		Filter:             FilterConfig{ExcludeSelf: true},
		RingBufferSize:     8 * mebibyte,
		TCPMetrics:         TCPMetricsConfig{Histogram: histogramExponential},
		Metrics:            metadata.DefaultMetricsConfig(),
		ResourceAttributes: metadata.DefaultResourceAttributesConfig(),
	}
}

// Validate says of every wrong value which key it belongs to and what is allowed.
func (c *Config) Validate() error {
	return errors.Join(
		oneOf("on_unavailable", c.OnUnavailable, onUnavailableDegrade, onUnavailableFail),
		between("collection_interval", c.CollectionInterval, minCollectionInterval, maxDuration),
		absolute("root_path", c.RootPath),
		oneOf("tcp::handshake::report", c.TCP.Handshake.Report, reportAll, reportSlow, reportFailed, reportNone),
		zeroOrBetween("tcp::handshake::slow_threshold", c.TCP.Handshake.SlowThreshold, minThreshold, maxDuration),
		oneOf("tcp::accept::report", c.TCP.Accept.Report, reportAll, reportSlow, reportFailed, reportNone),
		zeroOrBetween("tcp::accept::slow_threshold", c.TCP.Accept.SlowThreshold, minThreshold, maxDuration),
		zeroOrBetween("tcp::retransmit::interval", c.TCP.Retransmit.Interval, minFoldInterval, maxDuration),
		c.RateLimit.validate(),
		between("ring_buffer_size", c.RingBufferSize, minRingBufferSize, maxRingBufferSize),
		oneOf("tcp_metrics::histogram", c.TCPMetrics.Histogram, histogramExponential, histogramExplicit),
	)
}

func (c *RateLimitConfig) validate() error {
	var errs []error
	perSecond := c.RecordsPerSecond
	allowed := perSecond == 0 || perSecond >= minRecordsPerSecond && perSecond <= maxRecordsPerSecond // NaN is not
	if !allowed {
		errs = append(errs, fmt.Errorf("rate_limit::records_per_second is %v: must be 0 or from %v to %v",
			perSecond, minRecordsPerSecond, maxRecordsPerSecond))
	}
	if c.Burst < 1 || c.Burst > maxBurst {
		errs = append(errs, fmt.Errorf("rate_limit::burst is %d: must be from 1 to %d", c.Burst, maxBurst))
	}
	return errors.Join(errs...)
}

func oneOf(key, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s is %q: must be one of %s", key, value, strings.Join(allowed, ", "))
}

func between[T interface {
	~int64
	fmt.Stringer
}](key string, value, lowest, highest T) error {
	if value >= lowest && value <= highest {
		return nil
	}
	return fmt.Errorf("%s is %s: must be from %s to %s", key, value, lowest, highest)
}

func zeroOrBetween(key string, value, lowest, highest time.Duration) error {
	if value == 0 || value >= lowest && value <= highest {
		return nil
	}
	return fmt.Errorf("%s is %s: must be 0 or from %s to %s", key, value, lowest, highest)
}

func absolute(key, value string) error {
	if value == "" || filepath.IsAbs(value) {
		return nil
	}
	return fmt.Errorf("%s is %q: must be empty or an absolute path", key, value)
}

var reports = map[string]probe.Report{reportAll: probe.ReportAll, reportSlow: probe.ReportSlow, reportFailed: probe.ReportFailed,
	reportNone: probe.ReportNone}

// probeSettings is what the kernel side needs to know. Without a consumer of records none are made; metrics count all the same.
func (c *Config) probeSettings(records bool) probe.Settings {
	s := probe.Settings{
		HandshakeReport:        reports[c.TCP.Handshake.Report],
		HandshakeSlowThreshold: c.TCP.Handshake.SlowThreshold,
		AcceptReport:           reports[c.TCP.Accept.Report],
		AcceptSlowThreshold:    c.TCP.Accept.SlowThreshold,
		ResetEnabled:           c.TCP.Reset.Enabled,
		ResetNoSocket:          c.TCP.Reset.NoSocket,
		RetransmitEnabled:      c.TCP.Retransmit.Enabled,
		LossEnabled:            c.TCP.Loss.Enabled,
		ExcludeSelf:            c.Filter.ExcludeSelf,
		HistogramBounds:        event.ExponentialBounds(),
		RingBufferSize:         c.RingBufferSize.roundedUp(),
		CountOnly:              !records,
		BTFPath:                c.BTFPath,
	}
	if c.TCPMetrics.Histogram == histogramExplicit {
		s.HistogramBounds = event.ExplicitBounds()
	}
	return s
}

// processSettings is what the look-up of processes needs to know.
func (c *Config) processSettings() enrich.Settings {
	return enrich.Settings{
		RootPath:    c.RootPath,
		Size:        maxProcesses,
		Attributes:  c.ResourceAttributes.SaidByProcess(),
		Environment: c.Resource.ProcessEnvironment,
		Context:     c.Resource.ProcessContext,
	}
}

// ByteSize is a number of bytes, written as such or with one of the units KiB, MiB and GiB.
type ByteSize int64

const (
	kibibyte ByteSize = 1 << 10
	mebibyte ByteSize = 1 << 20
	gibibyte ByteSize = 1 << 30
)

// UnmarshalText reads "8MiB", "8 MiB" or "8388608".
func (b *ByteSize) UnmarshalText(text []byte) error {
	number, unit := string(text), ByteSize(1)
	for suffix, size := range map[string]ByteSize{"KiB": kibibyte, "MiB": mebibyte, "GiB": gibibyte} {
		if before, found := strings.CutSuffix(number, suffix); found {
			number, unit = strings.TrimSpace(before), size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("size is %q: must be a whole number of bytes, or one with the unit KiB, MiB or GiB", text)
	}
	if high, low := bits.Mul64(uint64(n), uint64(unit)); high != 0 || low > uint64(maxRingBufferSize) {
		return fmt.Errorf("size is %q: must be at most %s", text, maxRingBufferSize)
	}
	*b = ByteSize(n) * unit
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (b ByteSize) MarshalText() ([]byte, error) {
	return []byte(b.String()), nil
}

// String is the size in the largest unit that leaves a whole number.
func (b ByteSize) String() string {
	switch {
	case b != 0 && b%gibibyte == 0:
		return strconv.FormatInt(int64(b/gibibyte), 10) + "GiB"
	case b != 0 && b%mebibyte == 0:
		return strconv.FormatInt(int64(b/mebibyte), 10) + "MiB"
	case b != 0 && b%kibibyte == 0:
		return strconv.FormatInt(int64(b/kibibyte), 10) + "KiB"
	default:
		return strconv.FormatInt(int64(b), 10)
	}
}

// roundedUp is the least power of two that is not smaller. The size must have passed Validate.
func (b ByteSize) roundedUp() int {
	return 1 << bits.Len64(uint64(b)-1)
}

// checkRoot says what is wrong with root_path, which depends on the host and so is no matter of validation.
func (c *Config) checkRoot() error {
	if c.RootPath == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(c.RootPath, "proc", "1")); err != nil {
		return fmt.Errorf("root_path is %q: must be where the host's / is mounted, with its /proc: %w", c.RootPath, err)
	}
	return nil
}
