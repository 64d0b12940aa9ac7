// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package probe

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// loader holds what is needed only while a Source is being made.
type loader struct {
	source *Source
	cache  *btf.Cache
	types  *btf.Spec
	given  bool // types are not the kernel's own
	config handshakeConfig
	bounds [searchBounds]uint64
}

const searchBounds = 256 // SEARCH_BOUNDS in bpf/events.h

func (l *loader) kernelTypes(path string) error {
	var err error
	if path != "" {
		if l.types, err = btf.LoadSpec(path); err != nil {
			return fmt.Errorf("load kernel types from btf_path %s: %w", path, err)
		}
		l.given = true
		return nil
	}
	if l.types, err = l.cache.Kernel(); err != nil {
		return fmt.Errorf("load kernel types from /sys/kernel/btf/vmlinux: %w (needs a kernel built with CONFIG_DEBUG_INFO_BTF)", err)
	}
	return nil
}

// configure fills the tunables that all objects share.
func (l *loader) configure(settings Settings) error {
	if len(settings.HistogramBounds) > event.MaxBounds {
		return fmt.Errorf("%d histogram bounds, at most %d are allowed", len(settings.HistogramBounds), event.MaxBounds)
	}
	for i := range l.bounds {
		l.bounds[i] = ^uint64(0)
	}
	copy(l.bounds[:], settings.HistogramBounds)
	l.config = handshakeConfig{
		Self:                l.config.Self,
		SlowThresholdNs:     uint64(settings.HandshakeSlowThreshold),
		WakeupBytes:         uint64(ringSize(settings.RingBufferSize)) / 4,
		CgroupSubsys:        l.cgroupSubsystem(),
		Records:             1,
		Report:              uint8(settings.HandshakeReport),
		AcceptReport:        uint8(settings.AcceptReport),
		SlowWaitThresholdNs: uint64(settings.AcceptSlowThreshold),
	}
	if settings.CountOnly {
		l.config.Records = 0
	}
	if settings.ExcludeSelf {
		l.config.ExcludeSelf = 1
	}
	if settings.ResetNoSocket {
		l.config.ResetNoSocket = 1
	}
	return nil
}

// cgroupSubsystem is the index of the cgroup v1 subsystem that tells containers apart, or -1 where cgroup v2 rules.
func (l *loader) cgroupSubsystem() int32 {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return -1
	}
	var subsystems *btf.Enum
	if err := l.types.TypeByName("cgroup_subsys_id", &subsystems); err == nil {
		for _, v := range subsystems.Values {
			if v.Name == "memory_cgrp_id" {
				return int32(v.Value)
			}
		}
	}
	return -1
}

const reasonPrefix = "SK_RST_REASON_"

// resetReasons names the reset reasons of the running kernel: the numbers differ between kernels, and old ones have none.
func (l *loader) resetReasons() (names [event.MaxReasons]string) {
	var reasons *btf.Enum
	if err := l.types.TypeByName("sk_rst_reason", &reasons); err != nil {
		return names
	}
	for _, v := range reasons.Values {
		if v.Value < event.MaxReasons && v.Name != reasonPrefix+"MAX" && v.Name != reasonPrefix+"NOT_SPECIFIED" {
			names[v.Value] = strings.ToLower(strings.TrimPrefix(v.Name, reasonPrefix))
		}
	}
	return names
}

// ownPID is this process's id in the host's pid namespace, which its own need not be.
func ownPID() (uint32, error) {
	spec, err := loadClock()
	if err != nil {
		return 0, err
	}
	prog, err := ebpf.NewProgram(spec.Programs[clockProgSelf])
	if err != nil {
		return 0, fmt.Errorf("load the program that tells the own process id: %w", err)
	}
	pid, err := prog.Run(&ebpf.RunOptions{})
	if err != nil {
		return 0, errors.Join(fmt.Errorf("run the program that tells the own process id: %w", err), prog.Close())
	}
	return pid, prog.Close()
}

// ticks measures the kernel's tick rate, which no file tells on every kernel.
type ticks struct {
	prog  *ebpf.Program
	first uint32
	begun time.Time
}

func startTicks() (*ticks, error) {
	spec, err := loadClock()
	if err != nil {
		return nil, err
	}
	t := &ticks{}
	if t.prog, err = ebpf.NewProgram(spec.Programs[clockProgJiffies]); err != nil {
		return nil, fmt.Errorf("load the tick counter: %w", err)
	}
	if t.first, err = t.read(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.begun = time.Now()
	return t, nil
}

// jiffy is the length of a tick; 0: not known. It waits until enough of them have passed, which loading has mostly taken already:
// 60 ms tell 250 from 300 Hz.
func (t *ticks) jiffy() (time.Duration, error) {
	if rest := 60*time.Millisecond - time.Since(t.begun); rest > 0 {
		time.Sleep(rest)
	}
	last, err := t.read()
	return jiffyOf(last-t.first, time.Since(t.begun)), err
}

func (t *ticks) read() (uint32, error) {
	n, err := t.prog.Run(&ebpf.RunOptions{})
	if err != nil {
		return 0, fmt.Errorf("run the tick counter: %w", err)
	}
	return n, nil
}

func (t *ticks) close() error { return t.prog.Close() }

// createShared creates the maps that all objects use.
func (l *loader) createShared(size int) error {
	spec, err := loadHandshake()
	if err != nil {
		return err
	}
	spec.Maps[handshakeMapEvents].MaxEntries = uint32(ringSize(size))
	for _, name := range []string{handshakeMapEvents, handshakeMapCounters, handshakeMapHandshakes, handshakeMapSockets,
		handshakeMapLastDeparted, handshakeMapClosing, handshakeMapAcceptWaits} {
		m, err := ebpf.NewMap(spec.Maps[name])
		if err != nil {
			return fmt.Errorf("create map %s: %w", name, err)
		}
		l.source.shared[name] = m
		l.source.closers = append(l.source.closers, m)
	}
	return nil
}

// ringSize is the least power of two, and at least a page, that holds the size.
func ringSize(size int) int {
	size = max(size, os.Getpagesize())
	return 1 << bits.Len(uint(size-1))
}

// attach makes one signal work as far as the kernel allows. The error holds all refusals; the signal is off if Hook is empty.
func (l *loader) attach(f *family) (Signal, error) {
	signal := Signal{Name: f.name}
	var refusals []error
	var hooks []string
	for _, p := range f.parts {
		hook, errs := l.attachPart(&p)
		for _, err := range errs {
			refusals = append(refusals, fmt.Errorf("%s: %s: %w", f.name, p.name, err))
		}
		if hook != "" {
			hooks = append(hooks, hook)
			continue
		}
		signal.Degraded = true
		if p.essential {
			break
		}
	}
	for _, err := range refusals {
		signal.Refusals = append(signal.Refusals, err.Error())
	}
	signal.Hook = strings.Join(hooks, ", ")
	return signal, oneLine(refusals)
}

// attachPart tries the candidates of a part in order. It returns the hook in use, if any, and the refusals of those before it.
func (l *loader) attachPart(p *part) (string, []error) {
	var refusals []error
	for _, c := range p.candidates {
		err := l.attachCandidate(p, &c)
		if err == nil {
			return c.hook, refusals
		}
		refusals = append(refusals, fmt.Errorf("%s: %w", c.hook, explain(err)))
	}
	return "", refusals
}

// attachCandidate loads the candidate's programs and attaches them, or leaves nothing behind.
func (l *loader) attachCandidate(p *part, c *candidate) error {
	spec, err := p.load()
	if err != nil {
		return err
	}
	if err := errors.Join(spec.Variables["cfg"].Set(l.config), spec.Variables["bounds"].Set(l.bounds)); err != nil {
		return fmt.Errorf("set tunables: %w", err)
	}
	replacements := map[string]*ebpf.Map{}
	for name, m := range l.source.shared {
		if _, used := spec.Maps[name]; used {
			replacements[name] = m
		}
	}
	keep := map[string]*ebpf.ProgramSpec{}
	for _, name := range c.programs {
		keep[name] = spec.Programs[name]
	}
	spec.Programs = keep
	delete(spec.Variables, handshakeVarRecordType) // there for its type only
	delete(spec.Maps, ".bss")
	spec.Maps[handshakeMapEvents].MaxEntries = l.source.shared[handshakeMapEvents].MaxEntries() // must match its replacement
	options := ebpf.CollectionOptions{MapReplacements: replacements, Cache: l.cache}
	if l.given {
		options.Programs.KernelTypes = l.types
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return err
	}
	defer collection.Close() // what is kept is taken out of it
	mark := len(l.source.closers)
	for _, name := range c.programs {
		err := l.attachProgram(collection.DetachProgram(name), name, keep[name])
		if err != nil {
			for i := len(l.source.closers) - 1; i >= mark; i-- {
				err = errors.Join(err, l.source.closers[i].Close())
			}
			l.source.closers = l.source.closers[:mark]
			for _, name := range c.programs {
				delete(l.source.programs, name)
			}
			return err
		}
	}
	return nil
}

func (l *loader) attachProgram(prog *ebpf.Program, name string, spec *ebpf.ProgramSpec) error {
	if spec.AttachType == ebpf.AttachTraceIter {
		return errors.Join(runIterator(prog), prog.Close()) // once, and it is not needed any more
	}
	l.source.closers = append(l.source.closers, prog)
	l.source.programs[name] = prog
	var (
		attached io.Closer
		err      error
	)
	switch spec.Type {
	case ebpf.Tracing:
		attached, err = link.AttachTracing(link.TracingOptions{Program: prog})
	case ebpf.TracePoint:
		attached, err = attachTracepoint(prog, spec.AttachTo)
	default:
		err = fmt.Errorf("no way to attach a program of type %s", spec.Type)
	}
	if err != nil {
		return fmt.Errorf("attach %s: %w", name, err)
	}
	l.source.closers = append(l.source.closers, attached)
	return nil
}

// runIterator runs the program once over all that it iterates.
func runIterator(prog *ebpf.Program) error {
	iterator, err := link.AttachIter(link.IterOptions{Program: prog})
	if err != nil {
		return err
	}
	run, err := iterator.Open()
	if err != nil {
		return errors.Join(err, iterator.Close())
	}
	_, err = io.Copy(io.Discard, run)
	return errors.Join(err, run.Close(), iterator.Close())
}
