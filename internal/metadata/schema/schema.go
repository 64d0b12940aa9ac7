// SPDX-License-Identifier: Apache-2.0

// Package schema reads metadata.yaml. Only the documentation generator and tests use it.
package schema

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// File is the part of mdatagen's schema that metadata.yaml uses.
type File struct {
	Type           string `yaml:"type"`
	DisplayName    string `yaml:"display_name"`
	Description    string `yaml:"description"`
	ScopeName      string `yaml:"scope_name"`
	SemConvVersion string `yaml:"sem_conv_version"`
	Status         struct {
		Class                string              `yaml:"class"`
		Stability            map[string][]string `yaml:"stability"`
		UnsupportedPlatforms []string            `yaml:"unsupported_platforms"`
	} `yaml:"status"`
	ResourceAttributes map[string]Attribute `yaml:"resource_attributes"`
	Attributes         map[string]Attribute `yaml:"attributes"`
	Metrics            map[string]Metric    `yaml:"metrics"`
	Events             map[string]Event     `yaml:"events"`
	Telemetry          struct {
		Metrics map[string]Metric `yaml:"metrics"`
	} `yaml:"telemetry"`
}

// Attribute is an attribute of a resource, record, metric or own metric.
type Attribute struct {
	Description string   `yaml:"description"`
	Type        string   `yaml:"type"`
	Enum        []string `yaml:"enum"`
	Enabled     *bool    `yaml:"enabled"` // resource attributes alone
}

// Metric is a metric; one of Sum, Gauge and Histogram is set.
type Metric struct {
	Description           string      `yaml:"description"`
	ExtendedDocumentation string      `yaml:"extended_documentation"`
	Enabled               *bool       `yaml:"enabled"`
	Stability             string      `yaml:"stability"`
	Unit                  string      `yaml:"unit"`
	Sum                   *Instrument `yaml:"sum"`
	Gauge                 *Instrument `yaml:"gauge"`
	Histogram             *Instrument `yaml:"histogram"`
	Attributes            []string    `yaml:"attributes"`
}

// Instrument is how a metric is measured.
type Instrument struct {
	Async                  bool   `yaml:"async"`
	ValueType              string `yaml:"value_type"`
	Monotonic              bool   `yaml:"monotonic"`
	AggregationTemporality string `yaml:"aggregation_temporality"`
}

// Event is a record.
type Event struct {
	Description string   `yaml:"description"`
	Enabled     *bool    `yaml:"enabled"`
	Attributes  []string `yaml:"attributes"`
}

// Read reads a metadata.yaml; a key that File does not know is an error.
func Read(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	file := &File{}
	if err := decoder.Decode(file); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return file, nil
}
