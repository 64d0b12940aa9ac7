// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxRead        = 64 << 10 // of an environment and of a context's payload
	maxValue       = 256      // bytes of an attribute's value
	maxAsked       = 4        // processes asked at the same time
	answerDeadline = 20 * time.Millisecond
	// maxWaited is how long, in each second, who asks may wait in all: it has events to read meanwhile.
	maxWaited = 100 * time.Millisecond
)

// inquiry asks processes what they say of themselves: a small set of names, in two places. Nothing else that is read is kept.
//
// Reading a process's memory may block for as long as the process likes (a page of it may lie in a file system that the process
// itself serves), so it is done on a goroutine of its own, and who asks waits only for a moment. A few goroutines may be stuck at a
// time, then nobody is asked any more.
type inquiry struct {
	names       map[string]struct{}
	environment bool
	context     bool
	free        chan *[maxRead]byte // one for each process that may be asked now; nil: not made yet
	deadline    time.Duration

	mu     sync.Mutex
	second time.Time     // the begin of the current one
	waited time.Duration // in it
}

func newInquiry(settings Settings) *inquiry {
	q := &inquiry{names: map[string]struct{}{}, environment: settings.Environment, context: settings.Context,
		free: make(chan *[maxRead]byte, maxAsked), deadline: answerDeadline}
	for _, name := range settings.Attributes {
		q.names[name] = struct{}{}
	}
	for range maxAsked {
		q.free <- nil
	}
	return q
}

// wanted says whether processes are to be asked at all.
func (q *inquiry) wanted() bool { return len(q.names) > 0 && (q.environment || q.context) }

// told is what one of the two places says, by name.
type told map[string]string

// answer is what a process says of itself.
type answer struct {
	environment *told // nil: not read
	context     told
	complete    bool // false: it could not be asked in time
}

// ask asks the process whose directory in /proc this is, and closes the directory. executable is what it must execute, empty if
// that is not known. An environment that was read before is not read again.
func (q *inquiry) ask(dir *os.Root, executable string, environment *told) answer {
	if !q.hasTime() {
		dir.Close()
		return answer{environment: environment}
	}
	asked := time.Now()
	defer func() { q.hasWaited(time.Since(asked)) }()
	var buffer *[maxRead]byte
	select {
	case buffer = <-q.free:
	default:
		dir.Close()
		return answer{environment: environment}
	}
	answers := make(chan answer, 1)
	go func() {
		if buffer == nil {
			buffer = new([maxRead]byte)
		}
		a := q.read(dir, executable, environment, buffer)
		dir.Close()
		clear(buffer[:]) // an environment holds secrets
		q.free <- buffer
		answers <- a
	}()
	timeout := time.NewTimer(q.deadline)
	defer timeout.Stop()
	select {
	case a := <-answers:
		return a
	case <-timeout.C:
		return answer{environment: environment}
	}
}

// hasTime says whether anybody may wait for an answer in this second.
func (q *inquiry) hasTime() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.Sub(q.second) >= time.Second {
		q.second, q.waited = now, 0
	}
	return q.waited < maxWaited
}

func (q *inquiry) hasWaited(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waited += d
}

// read opens the files first and then looks once more what the process executes: an open file stays with the memory that the
// process had then, so that what is read is that of the executable.
func (q *inquiry) read(dir *os.Root, executable string, environment *told, buffer *[maxRead]byte) answer {
	a := answer{environment: environment, complete: true}
	var environ *os.File
	if q.environment && environment == nil {
		a.environment = &told{}
		if file, err := dir.Open("environ"); err == nil {
			defer file.Close()
			environ = file
		}
	}
	var memory processMemory
	if q.context {
		memory = openMemory(dir)
		defer memory.close()
	}
	if _, current := whole(executable, dir); !current {
		return a
	}
	if environ != nil {
		*a.environment = q.readEnvironment(environ, buffer)
	}
	if memory.isOpen() {
		a.context = q.readContext(memory, buffer)
	}
	return a
}

// take keeps an attribute if it is one of the names, as text that is fit to print. An empty value says nothing.
func (q *inquiry) take(into told, name, value []byte) {
	if _, ok := q.names[string(name)]; !ok {
		return
	}
	if text := AppendText(nil, value, maxValue); len(text) > 0 {
		into[string(name)] = string(text)
	}
}

// attributes are what a process says of itself, sorted, and what it says of its pod's uid. Its context counts more than its
// environment, from which an SDK made it.
func (a answer) attributes() (attributes []Attribute, podUID string) {
	said := told{}
	if a.environment != nil {
		for name, value := range *a.environment {
			said[name] = value
		}
	}
	for name, value := range a.context {
		said[name] = value
	}
	podUID = said[attributePodUID]
	delete(said, attributePodUID)
	for name, value := range said {
		attributes = append(attributes, Attribute{Name: name, Value: value})
	}
	slices.SortFunc(attributes, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return attributes, podUID
}
