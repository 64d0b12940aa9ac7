// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	maxMaps     = 1 << 20 // of /proc/PID/maps: about 10,000 mappings
	maxContexts = 4       // mappings that are tried: there should be one
	maxTries    = 3       // while it is being changed

	contextHeaderSize = 32
	contextSignature  = "OTEL_CTX"
	contextVersion    = 2
)

// processMemory is a process's memory and the list of its mappings.
type processMemory struct{ maps, mem *os.File }

func openMemory(dir *os.Root) processMemory {
	maps, err := dir.Open("maps")
	if err != nil {
		return processMemory{}
	}
	mem, err := dir.Open("mem")
	if err != nil {
		maps.Close()
		return processMemory{}
	}
	return processMemory{maps, mem}
}

func (m processMemory) isOpen() bool { return m.mem != nil }

func (m processMemory) close() {
	if m.isOpen() {
		m.maps.Close()
		m.mem.Close()
	}
}

// readContext reads the context that a process publishes (OTEP 4719): a mapping with a known name, with a header that says where
// in the process's memory the context is.
func (q *inquiry) readContext(memory processMemory, buffer *[maxRead]byte) told {
	var addresses []uint64
	lines := bufio.NewScanner(io.LimitReader(memory.maps, maxMaps))
	lines.Buffer(buffer[:0], len(buffer))
	for lines.Scan() && len(addresses) < maxContexts {
		if address, ok := contextMapping(lines.Bytes()); ok {
			addresses = append(addresses, address)
		}
	}
	for _, address := range addresses {
		payload, err := readPayload(memory.mem, address, buffer)
		if err != nil {
			continue
		}
		if said, err := q.decodeContext(payload); err == nil {
			return said
		}
	}
	return nil
}

// contextMapping is the address of a mapping that holds a context's header, by its line in /proc/PID/maps (proc(5)): address range,
// permissions, offset, device, inode, name.
func contextMapping(line []byte) (uint64, bool) {
	const fields = 5
	rest := line
	var addresses, permissions []byte
	for i := range fields {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte(" "))
		switch i {
		case 0:
			addresses = field
		case 1:
			permissions = field
		}
	}
	switch string(bytes.TrimLeft(rest, " ")) {
	case "[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX (deleted)", "/memfd:OTEL_CTX":
	default:
		return 0, false
	}
	if len(permissions) < 3 || permissions[0] != 'r' || permissions[2] == 'x' {
		return 0, false
	}
	from, to, _ := bytes.Cut(addresses, []byte("-"))
	first, err := strconv.ParseUint(string(from), 16, 64)
	if err != nil {
		return 0, false
	}
	end, err := strconv.ParseUint(string(to), 16, 64)
	if err != nil || end < first || end-first < contextHeaderSize {
		return 0, false
	}
	return first, true
}

var (
	errNoContext  = errors.New("no process context")
	errBeingMoved = errors.New("the process context is being changed")
)

// readPayload reads a context whose header is at an address. The header is a sequence lock: what was read counts only if the header
// is the same before and after.
func readPayload(mem io.ReaderAt, address uint64, buffer *[maxRead]byte) ([]byte, error) {
	if address > math.MaxInt64 {
		return nil, errNoContext
	}
	var before, after [contextHeaderSize]byte
	for range maxTries {
		if _, err := mem.ReadAt(before[:], int64(address)); err != nil {
			return nil, err
		}
		// signature | u32 version | u32 payload size | u64 published at, 0: being changed | u64 payload address, in the machine's order
		size := binary.NativeEndian.Uint32(before[12:])
		published := binary.NativeEndian.Uint64(before[16:])
		at := binary.NativeEndian.Uint64(before[24:])
		if string(before[:8]) != contextSignature || binary.NativeEndian.Uint32(before[8:]) != contextVersion {
			return nil, errNoContext
		}
		if published == 0 {
			continue
		}
		if size > maxRead || at > math.MaxInt64 {
			return nil, errNoContext
		}
		_, readErr := mem.ReadAt(buffer[:size], int64(at))
		if _, err := mem.ReadAt(after[:], int64(address)); err != nil {
			return nil, err
		}
		if before != after {
			continue
		}
		if readErr != nil {
			return nil, readErr
		}
		return buffer[:size], nil
	}
	return nil, errBeingMoved
}

// Field numbers of the messages of a context: ProcessContext of OTEP 4719, Resource of opentelemetry/proto/resource/v1, KeyValue and
// AnyValue of opentelemetry/proto/common/v1.
const (
	fieldContextResource    protowire.Number = 1
	fieldResourceAttributes protowire.Number = 1
	fieldKey                protowire.Number = 1
	fieldValue              protowire.Number = 2
	fieldStringValue        protowire.Number = 1
)

// decodeContext takes the strings among the attributes of a context's resource. A context that is not well-formed down to them is
// an error as a whole.
func (q *inquiry) decodeContext(payload []byte) (told, error) {
	said := told{}
	err := messages(payload, fieldContextResource, func(resource []byte) error {
		return messages(resource, fieldResourceAttributes, func(attribute []byte) error {
			var name, text []byte
			err := messages(attribute, fieldKey, func(key []byte) error {
				name = key
				return nil
			})
			if err != nil {
				return err
			}
			err = messages(attribute, fieldValue, func(value []byte) error {
				return messages(value, fieldStringValue, func(s []byte) error {
					text = s
					return nil
				})
			})
			if err == nil {
				q.take(said, name, text)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return said, nil
}

// messages calls do for each occurrence of a field that has a length: a string or a message.
func messages(message []byte, field protowire.Number, do func([]byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if number == field && kind == protowire.BytesType {
			content, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			if err := do(content); err != nil {
				return err
			}
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
	}
	return nil
}
