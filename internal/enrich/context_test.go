// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	contextAt  = 0x1000
	payloadAt  = 0x1100
	contextTag = "1000-3000 r--s 00000000 00:01 1034                 /memfd:OTEL_CTX (deleted)\n"
	// contextMaps has the context among others.
	contextMaps = "08048000-08049000 r-xp 00000000 03:00 8312       /opt/test name\n0804a000-0806b000 rw-p 00000000 00:00 0 [heap]\n" +
		contextTag + "7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0      [stack]\n"
)

// message encodes one field that has a length.
func message(field protowire.Number, content string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), content))
}

// contextPayload encodes a context with pairs of names and values.
func contextPayload(pairs ...string) string {
	var resource string
	for i := 0; i < len(pairs); i += 2 {
		resource += message(1, message(1, pairs[i])+message(2, message(1, pairs[i+1])))
	}
	extra := message(2, message(1, "service.name")+message(2, message(1, "not of the resource")))
	return message(1, resource) + extra
}

func contextHeader(version, size uint32, published, payload uint64) string {
	header := append([]byte(contextSignature), make([]byte, 24)...)
	binary.NativeEndian.PutUint32(header[8:], version)
	binary.NativeEndian.PutUint32(header[12:], size)
	binary.NativeEndian.PutUint64(header[16:], published)
	binary.NativeEndian.PutUint64(header[24:], payload)
	return string(header)
}

// contextMemory is the memory of a process with a context, as a file from address 0.
func contextMemory(payload string) string {
	header := contextHeader(contextVersion, uint32(len(payload)), 5, payloadAt)
	return strings.Repeat("\x00", contextAt) + header + strings.Repeat("\x00", payloadAt-contextAt-len(header)) + payload
}

func TestContextMappingIsFoundByItsName(t *testing.T) {
	for line, want := range map[string]bool{
		"7f00-9f00 rw-p 00000000 00:00 0                          [anon:OTEL_CTX]":           true,
		"7f00-9f00 rw-s 00000000 00:01 1034                       [anon_shmem:OTEL_CTX]":     true,
		"7f00-9f00 r--s 00000000 00:01 1034                       /memfd:OTEL_CTX (deleted)": true,
		"7f00-9f00 rw-s 00000000 00:01 1034 /memfd:OTEL_CTX":                                 true,
		"7f00-9f00 ---p 00000000 00:00 0 [anon:OTEL_CTX]":                                    false,
		"7f00-9f00 r-xp 00000000 00:00 0 [anon:OTEL_CTX]":                                    false,
		"7f00-7f10 r--p 00000000 00:00 0 [anon:OTEL_CTX]":                                    false,
		"9f00-7f00 r--p 00000000 00:00 0 [anon:OTEL_CTX]":                                    false,
		"7f00-9f00 r--p 00000000 00:00 0 /tmp/[anon:OTEL_CTX]":                               false,
		"7f00-9f00 r--p 00000000 00:00 0 /tmp/x [anon:OTEL_CTX]":                             false,
		"7f00-9f00 r--p 00000000 00:00 0 [anon:OTEL_CTX2]":                                   false,
		"7g00-9f00 r--p 00000000 00:00 0 [anon:OTEL_CTX]":                                    false,
		"7f00 r--p 00000000 00:00 0 [anon:OTEL_CTX]":                                         false,
		"fffffffffffffffff-0 r--p 00000000 00:00 0 [anon:OTEL_CTX]":                          false,
		"    [anon:OTEL_CTX]":  false,
		"     [anon:OTEL_CTX]": false,
		"[anon:OTEL_CTX]":      false,
		"":                     false,
	} {
		address, found := contextMapping([]byte(line))
		assert.Equal(t, want, found, line)
		if want {
			assert.Equal(t, uint64(0x7f00), address)
		}
	}
}

// changingMemory serves another header each time that one is read.
type changingMemory struct {
	headers []string
	payload string
	read    int
}

func (m *changingMemory) ReadAt(p []byte, at int64) (int, error) {
	if at == payloadAt {
		return copy(p, m.payload), nil
	}
	header := m.headers[min(m.read, len(m.headers)-1)]
	m.read++
	return copy(p, header), nil
}

func TestContextCountsOnlyIfItDidNotChangeMeanwhile(t *testing.T) {
	still := contextHeader(contextVersion, 3, 5, payloadAt)
	later := contextHeader(contextVersion, 3, 6, payloadAt)
	changing := contextHeader(contextVersion, 3, 0, payloadAt)
	for _, test := range []struct {
		name    string
		headers []string
		err     error
	}{
		{"still", []string{still}, nil},
		{"changed meanwhile, then still", []string{still, later, later}, nil},
		{"being changed, then still", []string{changing, still}, nil},
		{"being changed all the time", []string{changing}, errBeingMoved},
		{"changed all the time", []string{still, later, still, later, still, later}, errBeingMoved},
		{"another signature", []string{"OTEL_CTY" + still[8:]}, errNoContext},
		{"another version", []string{contextHeader(1, 3, 5, payloadAt)}, errNoContext},
		{"too large", []string{contextHeader(contextVersion, maxRead+1, 5, payloadAt)}, errNoContext},
		{"an address beyond all", []string{contextHeader(contextVersion, 3, 5, 1<<63)}, errNoContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			payload, err := readPayload(&changingMemory{headers: test.headers, payload: "abc"}, contextAt, new([maxRead]byte))
			assert.ErrorIs(t, err, test.err)
			if test.err == nil {
				assert.Equal(t, "abc", string(payload))
			}
		})
	}
	_, err := readPayload(&changingMemory{headers: []string{still}}, 1<<63, new([maxRead]byte))
	assert.ErrorIs(t, err, errNoContext)
	_, err = readPayload(unreadable{}, contextAt, new([maxRead]byte))
	assert.Error(t, err)
}

type unreadable struct{}

func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, errors.New("input/output error") }

func TestContextSaysItsResourcesStrings(t *testing.T) {
	q := newTestInquiry()
	number := message(1, message(1, message(1, "service.version")+
		message(2, string(protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 7)))))
	valid := contextPayload("service.name", "shop")
	for _, test := range []struct {
		name, payload string
		want          told
	}{
		{"strings", contextPayload("service.name", "shop", "service.version", "1"), told{"service.name": "shop", "service.version": "1"}},
		{"other names", contextPayload("host.name", "x", "telemetry.sdk.name", "y"), told{}},
		{"a number is no string", number, told{}},
		{"hostile", contextPayload("service.name", "a\x1b\xff"), told{"service.name": "a??"}},
		{"long", contextPayload("service.name", strings.Repeat("x", 1000)), told{"service.name": strings.Repeat("x", 256)}},
		{"the last of two", contextPayload("service.name", "a", "service.name", "b"), told{"service.name": "b"}},
		{"an empty value", contextPayload("service.name", ""), told{}},
		{"unknown fields", message(15, "x") + valid, told{"service.name": "shop"}},
		{"empty", "", told{}},
		{"cut", valid[:len(valid)-1], nil},
		{"cut inside", message(1, message(1, message(1, "service.name")+"\x12\x7f")), nil},
		{"not protobuf", "OTEL_CTX", nil},
		{"a group without end", "\x0b\x0b\x0b", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			said, err := q.decodeContext([]byte(test.payload))
			assert.Equal(t, test.want == nil, err != nil)
			assert.Equal(t, test.want, said)
		})
	}
}

func TestContextIsReadThroughTheProcessesFiles(t *testing.T) {
	for _, test := range []struct {
		name, maps string
		want       []Attribute
	}{
		{"one", contextMaps, []Attribute{{"service.name", "shop"}}},
		{"none", strings.Replace(contextMaps, contextTag, "", 1), nil},
		{"one that is not readable before it", "900000-902000 r--p 00000000 00:00 0 [anon:OTEL_CTX]\n" + contextMaps,
			[]Attribute{{"service.name", "shop"}}},
		{"binary before it", "\x00\xff\n\n \n" + contextMaps, []Attribute{{"service.name", "shop"}}},
		{"an endless line before it", strings.Repeat("x", maxRead+1) + "\n" + contextMaps, nil},
		{"too far behind", strings.Repeat("0-1 rw-p 0 0:0 0\n", maxMaps/17+1) + contextMaps, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := procTree("app")
			root.files["proc/42/maps"] = test.maps
			root.files["proc/42/mem"] = contextMemory(contextPayload("service.name", "shop"))
			c, _ := cacheOf(t, root.make(t), 4)
			assert.Equal(t, test.want, c.Process(ownerOf(42, started, "app")).Attributes)
		})
	}
}

func FuzzContext(f *testing.F) {
	f.Add([]byte(contextPayload("service.name", "a\x1b", "k8s.pod.uid", "b")))
	f.Add([]byte("\x0a\x05\x0a\x03\x0a\x01x"))
	q := newTestInquiry()
	f.Fuzz(func(t *testing.T, payload []byte) {
		said, err := q.decodeContext(payload)
		if err != nil && said != nil {
			t.Fatalf("%v and %v", said, err)
		}
		requireFit(t, q, said)
	})
}

func FuzzContextMapping(f *testing.F) {
	f.Add([]byte(contextTag))
	f.Add([]byte("7f00-9f00 r--p 00000000 00:00 0 [anon:OTEL_CTX]"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if address, found := contextMapping(line); !found && address != 0 {
			t.Fatalf("%d of %q", address, line)
		}
	})
}

func TestTestsContextIsWellFormed(t *testing.T) {
	memory := contextMemory("abc")
	require.Equal(t, contextSignature, memory[contextAt:contextAt+8])
	require.Equal(t, "abc", memory[payloadAt:])
}
