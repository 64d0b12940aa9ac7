// SPDX-License-Identifier: Apache-2.0

// Command gendoc writes documentation.md from metadata.yaml; run it at the root of the repository.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata"
	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata/schema"
)

func main() {
	log.SetFlags(0)
	file, err := schema.Read("metadata.yaml")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("documentation.md", render(file), 0o644); err != nil {
		log.Fatal(err)
	}
}

// page collects Markdown.
type page struct{ bytes.Buffer }

func (p *page) linef(format string, args ...any) {
	fmt.Fprintf(p, format+"\n", args...)
}

func render(file *schema.File) []byte {
	p := &page{}
	p.linef("<!-- Generated from metadata.yaml by `go run ./internal/metadata/gendoc`. Do not edit. -->")
	p.linef("# %s", file.Type)
	p.linef("")
	p.linef("%s Names follow the OpenTelemetry semantic conventions %s wherever the registry has one; all others begin with "+
		"`ebpfnet.`. Durations are seconds, sizes bytes. An attribute whose value is not known is absent.",
		file.Description, file.SemConvVersion)
	p.linef("")
	renderResource(p, file)
	renderEvents(p, file)
	renderMetrics(p, file)
	renderTelemetry(p, file)
	return p.Bytes()
}

func renderResource(p *page, file *schema.File) {
	p.linef("## Resource")
	p.linef("")
	p.linef("Records have the resource of the process they happened to; records without an owner, and metrics, have the host's " +
		"alone. `resource_attributes::<name>::enabled` switches one on or off.")
	p.linef("")
	p.linef("| attribute | type | default | description |")
	p.linef("|---|---|---|---|")
	for _, name := range sortedKeys(file.ResourceAttributes) {
		a := file.ResourceAttributes[name]
		p.linef("| `%s` | %s | %s | %s |", name, a.Type, onOff(a.Enabled), cell(a.Description))
	}
	p.linef("")
}

func renderEvents(p *page, file *schema.File) {
	names := sortedKeys(file.Events)
	common := slices.Clone(file.Events[names[0]].Attributes)
	for _, name := range names[1:] {
		common = slices.DeleteFunc(common, func(a string) bool { return !slices.Contains(file.Events[name].Attributes, a) })
	}
	severities := map[string]metadata.Severity{}
	for _, e := range metadata.Events {
		severities[e.Name] = e.Severity
	}
	p.linef("## Records")
	p.linef("")
	p.linef("One record is one occurrence. Timestamp is when it happened in the kernel, the body a sentence that is complete by " +
		"itself.")
	p.linef("")
	p.linef("| EventName | severity | what happened | attributes beside the common ones |")
	p.linef("|---|---|---|---|")
	for _, name := range names {
		e := file.Events[name]
		own := slices.DeleteFunc(slices.Clone(e.Attributes), func(a string) bool { return slices.Contains(common, a) })
		p.linef("| `%s` | %s | %s | %s |", name, severities[name], cell(e.Description), codeList(own))
	}
	p.linef("")
	own := map[string]bool{}
	for _, name := range names {
		for _, a := range file.Events[name].Attributes {
			if !slices.Contains(common, a) {
				own[a] = true
			}
		}
	}
	p.linef("### Attributes of some records")
	p.linef("")
	renderAttributes(p, file, sortedKeys(own))
	p.linef("### Attributes of every record")
	p.linef("")
	renderAttributes(p, file, slices.DeleteFunc(slices.Clone(common), isSnapshot))
	p.linef("### The TCP snapshot")
	p.linef("")
	p.linef("On every record of a full socket: the state of the connection when it happened.")
	p.linef("")
	renderAttributes(p, file, slices.DeleteFunc(slices.Clone(common), func(a string) bool { return !isSnapshot(a) }))
}

// isSnapshot tells the snapshot's attributes from the other common ones.
func isSnapshot(attribute string) bool { return strings.HasPrefix(attribute, "ebpfnet.tcp.") }

func renderAttributes(p *page, file *schema.File, names []string) {
	p.linef("| attribute | type | description | values |")
	p.linef("|---|---|---|---|")
	for _, name := range names {
		a := file.Attributes[name]
		p.linef("| `%s` | %s | %s | %s |", name, a.Type, cell(a.Description), codeList(a.Enum))
	}
	p.linef("")
}

func renderMetrics(p *page, file *schema.File) {
	p.linef("## Metrics")
	p.linef("")
	p.linef("Counted in the kernel before any threshold or limit. `metrics::<name>::enabled` switches one on or off.")
	p.linef("")
	for _, name := range sortedKeys(file.Metrics) {
		m := file.Metrics[name]
		p.linef("### %s", name)
		p.linef("")
		p.linef("%s", strings.TrimSpace(m.Description+" "+m.ExtendedDocumentation))
		p.linef("")
		p.linef("| instrument | unit | temporality | default | stability |")
		p.linef("|---|---|---|---|---|")
		kind, instrument := instrumentOf(m)
		p.linef("| %s (%s) | %s | %s | %s | %s |", kind, instrument.ValueType, m.Unit, instrument.AggregationTemporality,
			onOff(m.Enabled), m.Stability)
		p.linef("")
		renderAttributes(p, file, m.Attributes)
	}
}

func renderTelemetry(p *page, file *schema.File) {
	p.linef("## The receiver's own telemetry")
	p.linef("")
	p.linef("Part of the Collector's internal metrics, beside `otelcol_receiver_accepted_log_records` and its like.")
	p.linef("")
	p.linef("| metric | instrument | unit | attributes | description |")
	p.linef("|---|---|---|---|---|")
	used := map[string]bool{}
	for _, name := range sortedKeys(file.Telemetry.Metrics) {
		m := file.Telemetry.Metrics[name]
		kind, _ := instrumentOf(m)
		p.linef("| `otelcol_%s` | %s | %s | %s | %s |", name, kind, m.Unit, codeList(m.Attributes), cell(m.Description))
		for _, a := range m.Attributes {
			used[a] = true
		}
	}
	p.linef("")
	renderAttributes(p, file, sortedKeys(used))
	p.Truncate(p.Len() - 1)
}

func instrumentOf(m schema.Metric) (string, schema.Instrument) {
	switch {
	case m.Histogram != nil:
		return "histogram", *m.Histogram
	case m.Gauge != nil:
		return "gauge", *m.Gauge
	case m.Sum != nil && m.Sum.Monotonic:
		return "counter", *m.Sum
	case m.Sum != nil:
		return "updowncounter", *m.Sum
	}
	return "", schema.Instrument{}
}

func onOff(enabled *bool) string {
	if enabled != nil && *enabled {
		return "on"
	}
	return "off"
}

func codeList(values []string) string {
	if len(values) == 0 {
		return "—"
	}
	return "`" + strings.Join(values, "`, `") + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
