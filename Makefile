# SPDX-License-Identifier: Apache-2.0
# `make` alone prints what there is. Everything that is built lands in bin/ and build/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
# Where Debian keeps getcap, nft and nginx, which a user's own path leaves out.
export PATH := $(PATH):/usr/sbin:/sbin
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:
.NOTPARALLEL:

GO ?= go
COLLECTOR := bin/otelcol-ebpfnet
TOOL = $(GO) tool -modfile=internal/tools/go.mod
# What a test run prints: each package, each failure and each skip, and one line that counts.
TALLY = awk -v suite=$(1) -f internal/tools/tally.awk

# Root comes by sudo where one is not root already, and only for what is already built.
ROOT := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
CAN_ROOT := $(shell if [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null || { command -v sudo >/dev/null && [ -t 0 ]; }; then echo yes; fi)
AS_ROOT = $(if $(CAN_ROOT),-exec '$(ROOT) env $(1)')

# The compiler that made the committed objects. Another one makes other bytes.
CLANG := clang-19
CLANG_VERSION := 19.1.7
export BPF2GO = $(GO) tool -modfile=../tools/go.mod bpf2go -cc $(CLANG) -strip llvm-strip-19 -target amd64,arm64 \
	-go-package probe -cflags '-O2 -g -Wall -Werror -mcpu=v3'

SOURCES := go.mod go.sum builder-config.yaml $(shell find receiver internal -path internal/tools -prune -o \
	\( -name '*.go' -not -name '*_test.go' -o -name '*.o' \) -print 2>/dev/null)
packages_with = $(sort $(dir $(shell grep -rlE $(2) --include='*$(1)' --exclude-dir=build --exclude-dir=.git .)))
LIVE = $(call packages_with,_test.go,'^//go:build live')
INCIDENTS = $(call packages_with,_test.go,'^//go:build incident')

.PHONY: help run build test deps deps-bench lint check-generated generate test-unit test-live test-incidents bench bench-once fuzz \
	clean go clang

help: ## This table
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build the collector and run it on this host: TCP trouble prints here as it happens
	@as=''
	if [ "$$(id -u)" != 0 ] && ! { getcap $(COLLECTOR) 2>/dev/null || true; } | grep -q cap_bpf; then
		as=$$(command -v sudo) || { printf '%s\n' \
			'Loading eBPF programs takes root or capabilities, and there is no sudo here. Either run as root, or once, as root:' \
			'  setcap cap_bpf,cap_perfmon,cap_dac_read_search=ep $(COLLECTOR)' \
			'CAP_BPF and CAP_PERFMON load and attach the programs; CAP_DAC_READ_SEARCH lets it read the' \
			'tracepoints in tracefs. Then: make run' >&2; exit 1; }
	fi
	echo 'Failed and slow connects, resets and retransmits of this host print below. Ctrl-C ends it.' >&2
	echo 'From another terminal, provoke one:  curl -s http://127.0.0.1:9' >&2
	# The debug exporter's headings are left out. The filter outlives Ctrl-C so that the last lines still print.
	# A closed terminal ends it too; a Collector takes the hang-up for a wish to read its configuration again.
	($$as $(COLLECTOR) --config examples/quickstart.yaml &
		pid=$$! status=0
		trap 'kill -TERM $$pid' HUP INT TERM
		wait $$pid || status=$$?
		while kill -0 $$pid 2>/dev/null; do wait $$pid || status=$$?; done
		exit $$status) |
		(trap '' INT HUP; exec sed -u -E '/^(Logs\t|ResourceLog #|ScopeLog #|$$)/d; s/ $$//')

build: $(COLLECTOR) ## Build bin/otelcol-ebpfnet with ocb

$(COLLECTOR): $(SOURCES) | go
	mkdir -p build bin
	$(TOOL) builder --config builder-config.yaml
	cp build/otelcol-ebpfnet/otelcol-ebpfnet $@.new
	mv $@.new $@

test: deps lint check-generated test-unit bench-once test-live test-incidents ## Run every test that this machine can run
ifeq ($(CAN_ROOT),)
	@printf '%s\n' '' 'NOT RUN: test-live, test-incidents. They load eBPF programs: run `make test` as root.' '' >&2
endif

deps: ## Install what the tests need (Debian; as root or by sudo)
	@internal/tools/deps.sh test

lint: | go ## Formatting, linters, and that other systems compile
	$(TOOL) golangci-lint run ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	GOOS=darwin CGO_ENABLED=0 $(GO) vet ./receiver

GENERATE = $(GO) generate ./internal/probe && $(GO) run -trimpath ./internal/metadata/gendoc

generate: | go clang ## Rebuild the BPF objects and documentation.md
	$(GENERATE)

# Built from a copy in another folder, so that a path in an object shows too.
check-generated: | go clang ## Rebuild them from a copy and compare
	@copy=$$(mktemp -d)
	trap 'rm -rf "$$copy"' EXIT
	mkdir -p "$$copy/internal"
	cp -r bpf go.mod go.sum metadata.yaml "$$copy"
	cp -r internal/event internal/metadata internal/probe internal/tools "$$copy/internal"
	rm -f "$$copy"/internal/probe/*_bpfel.{go,o}
	(cd "$$copy" && $(GENERATE))
	for made in "$$copy"/internal/probe/*_bpfel.{go,o} internal/probe/*_bpfel.{go,o}; do
		cmp "$$copy/internal/probe/$${made##*/}" "internal/probe/$${made##*/}"
	done || { echo 'The generated BPF files are not those of bpf/: run `make generate` with $(CLANG) $(CLANG_VERSION).' >&2; exit 1; }
	diff -u documentation.md "$$copy/documentation.md" || { echo 'documentation.md is not of metadata.yaml: `make generate`.' >&2; exit 1; }
	echo 'The generated files are those of their sources.'

test-unit: | go ## Tests that need neither root nor the network, with the race detector
	CGO_ENABLED=1 $(GO) test -race -v -timeout 8m ./... 2>&1 | $(call TALLY,unit)

test-live: | go ## Tests of the eBPF programs on this kernel (root)
ifeq ($(CAN_ROOT),)
	@echo 'test-live: NOT RUN, it takes root.' >&2
else
	$(if $(LIVE),$(GO) test -tags live -count=1 -p 1 -v -timeout 15m \
		$(call AS_ROOT,EBPFNET_REQUIRE_LIVE=1) $(LIVE) 2>&1 | $(call TALLY,live),@echo 'There are no live tests.')
endif

test-incidents: build ## Real incidents through the built collector (root; nginx, gunicorn)
ifeq ($(CAN_ROOT),)
	@echo 'test-incidents: NOT RUN, it takes root.' >&2
else
	$(if $(INCIDENTS),$(GO) test -tags incident -count=1 -p 1 -v -timeout 10m \
		$(call AS_ROOT,EBPFNET_REQUIRE_LIVE=1 EBPFNET_COLLECTOR=$(CURDIR)/$(COLLECTOR)) $(INCIDENTS) 2>&1 | \
		$(call TALLY,incidents),@echo 'There are no incident tests.')
endif

bench: deps-bench | go ## Benchmarks, each beside its limit (with root also those of the eBPF programs)
	$(GO) test -tags '$(if $(CAN_ROOT),live)' -run '^$$' -bench . -benchmem -count 1 -p 1 -timeout 60m $(call AS_ROOT) $(BENCHMARKS)

deps-bench:
	@internal/tools/deps.sh bench

bench-once: | go ## Every benchmark once, so that none rots
	$(GO) test -tags '$(if $(CAN_ROOT),live)' -run '^$$' -bench . -benchtime 1x -p 1 -timeout 10m \
		$(call AS_ROOT,EBPFNET_REQUIRE_LIVE=1) $(BENCHMARKS)

BENCHMARKS = $(call packages_with,_test.go,'^func Benchmark')

FUZZTIME ?= 20s

fuzz: | go ## Each fuzz target for 20 seconds
	@grep -rnoE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' --exclude-dir=build . | sed -E 's/^(.*)\/[^/]*:[0-9]+:func /\1 /' |
	while read -r package target; do
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"
	done

clean: ## Remove what was built
	rm -rf bin build

# Says which Go is needed where there is none, or an old one that cannot fetch a newer one by itself.
go:
	@need=$$(awk '$$1 == "go" { print $$2 }' go.mod)
	have=$$($(GO) env GOVERSION 2>/dev/null | sed 's/^go//') || have=none
	if [ "$$(printf '%s\n' "$$need" "$$have" | sort -V | head -1)" != "$$need" ] || [ -z "$$have" ] || [ "$$have" = none ]; then
		echo "Go $$need or newer is needed; found: $${have:-none}. See https://go.dev/dl" >&2
		exit 1
	fi

clang:
	@if ! command -v $(CLANG) llvm-strip-19 >/dev/null || [ ! -e /usr/include/bpf/bpf_helpers.h ]; then
		echo 'clang-19, llvm-19 and libbpf-dev are needed: `make deps` installs them on Debian.' >&2
		exit 1
	fi
	have=$$($(CLANG) --version | sed -nE 's/.*version ([0-9.]+).*/\1/p' | head -1)
	[ "$$have" = $(CLANG_VERSION) ] ||
		echo "NOTE: $(CLANG) is $$have, the committed objects are of $(CLANG_VERSION): expect other bytes." >&2
