// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"io"
	"net/url"
	"strings"
)

// The two variables that are looked at (OpenTelemetry specification, "Environment Variable Specification").
const (
	variableServiceName = "OTEL_SERVICE_NAME"
	variableAttributes  = "OTEL_RESOURCE_ATTRIBUTES"
	attributeService    = "service.name"
)

// readEnvironment reads what an environment says, of its first 64 KiB.
func (q *inquiry) readEnvironment(environ io.Reader, buffer *[maxRead]byte) told {
	n, err := io.ReadFull(environ, buffer[:])
	if err != nil && n == 0 {
		return told{}
	}
	return q.parseEnvironment(buffer[:n])
}

// parseEnvironment takes what the two variables say. A variable that is there twice counts as getenv(3) has it, by its first; one
// without its closing NUL is cut and does not count.
func (q *inquiry) parseEnvironment(environment []byte) told {
	var name, list []byte
	for {
		variable, rest, closed := bytes.Cut(environment, []byte{0})
		if !closed {
			break
		}
		environment = rest
		key, value, _ := bytes.Cut(variable, []byte("="))
		switch {
		case name == nil && string(key) == variableServiceName:
			name = value
		case list == nil && string(key) == variableAttributes:
			list = value
		}
	}
	said := q.parseAttributes(string(list))
	if name = bytes.TrimSpace(name); len(name) > 0 {
		q.take(said, []byte(attributeService), name)
	}
	return said
}

// parseAttributes reads a list as name=value,name=value with percent-encoded bytes. A list with an error counts as a whole not, as
// the specification ("Resource SDK") has it; of a name that is there twice the last counts, as in the SDKs.
func (q *inquiry) parseAttributes(list string) told {
	said := told{}
	for member := range strings.SplitSeq(list, ",") {
		if member = strings.TrimSpace(member); member == "" {
			continue
		}
		name, value, found := strings.Cut(member, "=")
		name, nameErr := url.PathUnescape(strings.TrimSpace(name))
		value, valueErr := url.PathUnescape(strings.TrimSpace(value))
		if !found || name == "" || nameErr != nil || valueErr != nil {
			return told{}
		}
		q.take(said, []byte(name), []byte(value))
	}
	return said
}
