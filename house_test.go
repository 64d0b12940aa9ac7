// SPDX-License-Identifier: Apache-2.0

// Package ebpfnet_test holds the shape of the repository: which package may import what, and the licence line of each file.
package ebpfnet_test

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ebpfnet/ebpfnetreceiver"

// imports says what the package in a folder may import beside the standard library, tests apart. A name stands for the module or
// folder and what is under it. A folder that is not listed may not hold a package: a new one is a decision, taken here and in
// .golangci.yaml.
var imports = map[string][]string{
	"internal/event": {},
	"internal/probe": {
		module + "/internal/event", "github.com/cilium/ebpf", "golang.org/x/sys", "github.com/moby/sys/capability",
	},
	"internal/enrich": {
		module + "/internal/event", "github.com/prometheus/procfs", "github.com/hashicorp/golang-lru/v2",
		"google.golang.org/protobuf/encoding/protowire",
	},
	"internal/metadata": {
		module + "/internal/event", module + "/internal/metadata", "go.opentelemetry.io/collector/component",
		"go.opentelemetry.io/collector/confmap", "go.opentelemetry.io/collector/pdata", "go.opentelemetry.io/otel",
	},
	"internal/metadata/schema": {"go.yaml.in/yaml/v3"},
	"internal/metadata/gendoc": {module + "/internal/metadata", "go.opentelemetry.io/collector/pdata"},
	"internal/emit": {
		module + "/internal/event", module + "/internal/enrich", module + "/internal/metadata",
		"go.opentelemetry.io/collector/pdata", "go.opentelemetry.io/otel/semconv", "github.com/hashicorp/golang-lru/v2",
	},
	"internal/nettest": {
		"github.com/cilium/ebpf", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys",
		"github.com/stretchr/testify",
	},
	"receiver": nil, // all but its tests' tools
}

// testsOnly is what no product code imports.
var testsOnly = []string{
	module + "/internal/nettest", "github.com/stretchr/testify", "github.com/google/go-cmp", "go.uber.org/goleak",
	"github.com/open-telemetry/opentelemetry-collector-contrib", "testing",
}

// importedByNobody is what stays at the top.
var importedByNobody = []string{module + "/receiver", module + "/internal/tools"}

func TestPackagesImportWhatTheHouseAllows(t *testing.T) {
	for _, path := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == "." {
			continue
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		allowed, listed := imports[folder]
		if !listed {
			t.Errorf("%s: no package is foreseen in %s; see the table in house_test.go", path, folder)
			continue
		}
		for _, imported := range importsOf(t, path) {
			switch {
			case under(imported, importedByNobody):
				t.Errorf("%s imports %s, which nobody may", path, imported)
			case folder != "internal/nettest" && under(imported, testsOnly):
				t.Errorf("%s imports %s, which is for tests", path, imported)
			case isStandard(imported) || allowed == nil || under(imported, allowed):
			default:
				t.Errorf("%s imports %s, which %s may not", path, imported, folder)
			}
		}
	}
}

func TestOnlyTheProbeKnowsTheKernelsLoader(t *testing.T) {
	for _, path := range sources(t, ".go") {
		folder := filepath.ToSlash(filepath.Dir(path))
		if folder == "internal/probe" || folder == "internal/nettest" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, imported := range importsOf(t, path) {
			if under(imported, []string{"github.com/cilium/ebpf"}) {
				t.Errorf("%s imports %s: ask internal/probe", path, imported)
			}
		}
	}
}

func TestEachSourceNamesItsLicence(t *testing.T) {
	for _, path := range sources(t, ".go", ".c", ".h", ".sh") {
		lines := firstLines(t, path, 3)
		if strings.Contains(lines, "DO NOT EDIT") {
			continue
		}
		if !strings.Contains(lines, "SPDX-License-Identifier: ") {
			t.Errorf("%s: no SPDX-License-Identifier at its top", path)
		}
	}
}

// sources lists the files of the repository that end in one of the suffixes, without what is built.
func sources(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == "build" || path == "bin" || path == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(path, suffix) }) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file ends in %v", suffixes)
	}
	return found
}

func importsOf(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(file.Imports))
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", path, err))
		}
		names = append(names, name)
	}
	return names
}

// isStandard: a path of the standard library has no dot in its first element.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// under tells whether path is one of the roots or below one.
func under(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") })
}

func firstLines(t *testing.T, path string, count int) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var lines strings.Builder
	for scanner := bufio.NewScanner(file); count > 0 && scanner.Scan(); count-- {
		lines.WriteString(scanner.Text())
		lines.WriteByte('\n')
	}
	return lines.String()
}
