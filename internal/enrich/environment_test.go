// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func newTestInquiry() *inquiry { return newInquiry(settings("", 1)) }

func TestEnvironmentSaysTwoVariablesAndNoOther(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, test := range []struct {
		name, environment string
		want              told
	}{
		{"name", "A=b\x00OTEL_SERVICE_NAME=shop\x00C=d\x00", told{"service.name": "shop"}},
		{"attributes", "OTEL_RESOURCE_ATTRIBUTES=service.name=shop,service.version=1.2\x00",
			told{"service.name": "shop", "service.version": "1.2"}},
		{"the name wins", "OTEL_RESOURCE_ATTRIBUTES=service.name=a\x00OTEL_SERVICE_NAME=b\x00", told{"service.name": "b"}},
		{"an empty name is none", "OTEL_SERVICE_NAME= \x00OTEL_RESOURCE_ATTRIBUTES=service.name=a\x00", told{"service.name": "a"}},
		{"the first of two wins", "OTEL_SERVICE_NAME=a\x00OTEL_SERVICE_NAME=b\x00", told{"service.name": "a"}},
		{"other names", "OTEL_RESOURCE_ATTRIBUTES=host.name=x,process.pid=1,container.id=y,team=z,service=q\x00", told{}},
		{"percent-encoded", "OTEL_RESOURCE_ATTRIBUTES=service.name=a%2Cb%3D%C3%A4%20+%22c,service%2Eversion=2\x00",
			told{"service.name": "a,b=ä +\"c", "service.version": "2"}},
		{"spaces", "OTEL_RESOURCE_ATTRIBUTES= service.name = shop , , service.version =1,\x00",
			told{"service.name": "shop", "service.version": "1"}},
		{"an equals sign in a value", "OTEL_RESOURCE_ATTRIBUTES=service.name=a=b\x00", told{"service.name": "a=b"}},
		{"the last of two names wins", "OTEL_RESOURCE_ATTRIBUTES=service.name=a,service.name=b\x00", told{"service.name": "b"}},
		{"a broken escape spoils all", "OTEL_RESOURCE_ATTRIBUTES=service.name=a,service.version=%4\x00", told{}},
		{"a member without value spoils all", "OTEL_RESOURCE_ATTRIBUTES=service.name=a,b\x00", told{}},
		{"a member without name spoils all", "OTEL_RESOURCE_ATTRIBUTES=service.name=a,=b\x00", told{}},
		{"the name is not spoiled", "OTEL_SERVICE_NAME=a\x00OTEL_RESOURCE_ATTRIBUTES=%\x00", told{"service.name": "a"}},
		{"the name is not decoded", "OTEL_SERVICE_NAME=100%25\x00", told{"service.name": "100%25"}},
		{"a longer variable", "XOTEL_SERVICE_NAME=a\x00OTEL_SERVICE_NAMES=b\x00OTEL_SERVICE_NAME\x00", told{}},
		{"cut", "A=b\x00OTEL_SERVICE_NAME=sho", told{}},
		{"hostile", "OTEL_SERVICE_NAME=a\x1b[2J\xff\n\u2028b\x00", told{"service.name": "a?[2J???b"}},
		{"hostile, encoded", "OTEL_RESOURCE_ATTRIBUTES=service.name=%00%1b%ff\x00", told{"service.name": "???"}},
		{"long", "OTEL_SERVICE_NAME=" + long + "\x00", told{"service.name": long[:256]}},
		{"empty", "", told{}},
		{"nothing but NUL", strings.Repeat("\x00", 100), told{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, newTestInquiry().parseEnvironment([]byte(test.environment)))
		})
	}
}

func TestOnlyTheBeginningOfAnEnvironmentIsRead(t *testing.T) {
	q := newTestInquiry()
	const variable = "OTEL_SERVICE_NAME=shop\x00"
	for _, test := range []struct {
		before int
		want   told
	}{{0, told{"service.name": "shop"}}, {maxRead - len(variable), told{"service.name": "shop"}}, {maxRead - len(variable) + 1, told{}},
		{10 * maxRead, told{}}} {
		text := strings.Repeat("x", max(test.before-1, 0))
		if test.before > 0 {
			text += "\x00"
		}
		source := strings.NewReader(text + variable + strings.Repeat("y", maxRead))
		assert.Equal(t, test.want, q.readEnvironment(source, new([maxRead]byte)), test.before)
	}
}

func requireFit(t *testing.T, q *inquiry, said told) {
	for name, value := range said {
		if _, ok := q.names[name]; !ok {
			t.Fatalf("name is %q", name)
		}
		if len(value) == 0 || len(value) > maxValue || !bytes.Equal(AppendText(nil, []byte(value), maxValue), []byte(value)) {
			t.Fatalf("%s is %q", name, value)
		}
	}
}

func FuzzEnvironment(f *testing.F) {
	f.Add([]byte("A=b\x00OTEL_SERVICE_NAME=shop\x00OTEL_RESOURCE_ATTRIBUTES=service.version=%41,k8s.pod.uid=\x1b\x00"))
	f.Add([]byte("OTEL_RESOURCE_ATTRIBUTES=,=,%\xff=\x00"))
	q := newTestInquiry()
	f.Fuzz(func(t *testing.T, environment []byte) {
		said := q.parseEnvironment(environment)
		requireFit(t, q, said)
		// Other variables in between change nothing.
		with := append([]byte("SECRET=service.name=x,OTEL_SERVICE_NAME=y\x00"), environment...)
		if again := q.parseEnvironment(with); !maps.Equal(said, again) {
			t.Fatalf("%v became %v", said, again)
		}
		if len(said) > 0 && !bytes.Contains(environment, []byte("OTEL_")) {
			t.Fatalf("%v from %q", slices.Collect(maps.Keys(said)), environment)
		}
	})
}
