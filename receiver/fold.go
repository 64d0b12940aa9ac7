// SPDX-License-Identifier: Apache-2.0

package ebpfnetreceiver

import (
	"time"

	"github.com/ebpfnet/ebpfnetreceiver/internal/event"
)

// maxFolds bounds the connections folded at once; the oldest is told early to make room.
const maxFolds = 16384

type foldKey struct {
	cookie     uint64
	retransmit event.RetransmitType
}

// fold is one connection and retransmit type within its interval. It is a link of folder's queue.
type fold struct {
	key        foldKey
	began      uint64      // nanoseconds of CLOCK_MONOTONIC
	folded     event.Event // the latest, with the segments of all that were folded; Kind is KindUnknown while there is none
	prev, next *fold
}

// folder makes one record of the retransmits of a connection within an interval: the first is told at once, the others as one at
// the interval's end or when the socket closes. It reads no clock: time is event.Event.KTime, and what the caller passes.
type folder struct {
	interval uint64 // nanoseconds; 0: every retransmit is told
	limit    int
	tell     func(*event.Event) // must not call the folder; the event is the folder's own
	folds    map[foldKey]*fold
	queue    fold // ring head: all intervals are equally long, so the order of beginning is that of ending
}

func newFolder(interval time.Duration, limit int, tell func(*event.Event)) *folder {
	f := &folder{interval: uint64(interval), limit: limit, tell: tell, folds: make(map[foldKey]*fold)}
	f.queue.prev, f.queue.next = &f.queue, &f.queue
	return f
}

// add takes every event: it tells it, keeps it for later, or, for a socket's close, tells what was kept for that socket.
func (f *folder) add(e *event.Event) {
	switch e.Kind {
	case event.KindSocketClosed:
		for t := range event.RetransmitTypeCount {
			if fo, ok := f.folds[foldKey{e.Cookie, t}]; ok {
				f.end(fo)
			}
		}
	case event.KindSegmentRetransmitted:
		f.addRetransmit(e)
	default:
		f.tell(e)
	}
}

func (f *folder) addRetransmit(e *event.Event) {
	if f.interval == 0 || e.Cookie == 0 {
		f.tell(e)
		return
	}
	f.advance(e.KTime)
	key := foldKey{e.Cookie, e.Retransmit}
	if fo, ok := f.folds[key]; ok {
		segments := e.Segments
		if fo.folded.Kind != event.KindUnknown {
			segments += fo.folded.Segments
		}
		fo.folded = *e
		fo.folded.Segments = segments
		return
	}
	if len(f.folds) >= f.limit {
		f.end(f.queue.next)
	}
	fo := &fold{key: key, began: e.KTime}
	f.folds[key] = fo
	f.push(fo)
	f.tell(e)
}

// advance ends the intervals that are over at now. After one in which something was folded another begins, so that a connection
// which goes on retransmitting is told once an interval.
func (f *folder) advance(now uint64) {
	for {
		fo := f.queue.next
		// Records of different CPUs come slightly out of order: now may lie before the beginning.
		if fo == &f.queue || now < fo.began || now-fo.began < f.interval {
			return
		}
		if fo.folded.Kind == event.KindUnknown {
			f.end(fo)
			continue
		}
		f.tell(&fo.folded)
		fo.folded.Kind = event.KindUnknown
		fo.began = now
		fo.unlink()
		f.push(fo)
	}
}

// flush tells all that is kept and forgets every connection.
func (f *folder) flush() {
	for f.queue.next != &f.queue {
		f.end(f.queue.next)
	}
}

func (f *folder) end(fo *fold) {
	delete(f.folds, fo.key)
	fo.unlink()
	if fo.folded.Kind != event.KindUnknown {
		f.tell(&fo.folded)
	}
}

func (f *folder) push(fo *fold) {
	fo.prev, fo.next = f.queue.prev, &f.queue
	fo.prev.next, fo.next.prev = fo, fo
}

func (fo *fold) unlink() {
	fo.prev.next, fo.next.prev = fo.next, fo.prev
}
