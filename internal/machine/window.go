package machine

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// window holds the outcomes of an incarnation's tickets above its floor
// (Ongaro's dissertation, 6.3, bounded). It is a ring indexed by the sequence
// number, grown as far as MaxInFlight, so that neither the order of arrival
// nor the size of a jump of the floor costs anything. Outcomes are encoded: an idle
// client keeps some, and as messages they would take ten times as much.
type window struct {
	floor uint64
	top   uint64   // the largest number that has ever had an outcome
	count int      // of the outcomes
	bytes int      // that the outcomes count: see wire.OutcomeBytes
	ring  []answer // its length is zero or a power of two
	chunk []byte   // the last memory of outcomes; what is left of it is used next
}

// answer is the outcome of a ticket.
type answer struct {
	encoded []byte // nil: none
	bytes   int32  // that it counts
	touched int32  // where the present entry has touched it, if it has; see dirty.ticket
}

// maxIdleRing is the length up to which an empty window keeps its ring.
const maxIdleRing = 256

// maxChunk bounds the memory that outcomes share: one of them keeps all of it.
const maxChunk = 4 << 10

// at returns the outcome stored for seq, or nil.
func (w *window) at(seq uint64) *answer {
	if seq <= w.floor || seq-w.floor > uint64(len(w.ring)) {
		return nil
	}
	if a := &w.ring[w.slot(seq)]; a.encoded != nil {
		return a
	}
	return nil
}

// reply returns the outcome as a message.
func (a *answer) reply() *wire.Reply {
	r := new(wire.Reply)
	_ = proto.Unmarshal(a.encoded, r) // it cannot fail: the machine has encoded it
	return r
}

// put stores an outcome and its encoded form, which is copied. The caller has checked that seq
// is within MaxInFlight of the floor.
func (w *window) put(seq uint64, r *wire.Reply, encoded []byte) *answer {
	if seq-w.floor > uint64(len(w.ring)) {
		w.grow(seq - w.floor)
	}
	a := &w.ring[w.slot(seq)]
	if a.encoded == nil {
		w.count++
	}
	w.top = max(w.top, seq)
	w.bytes -= int(a.bytes)
	a.bytes = int32(wire.OutcomeBytes(r))
	w.bytes += int(a.bytes)
	a.encoded = w.keep(encoded)
	return a
}

// keep copies an outcome to the memory of the window.
func (w *window) keep(encoded []byte) []byte {
	if cap(w.chunk)-len(w.chunk) < len(encoded) || w.chunk == nil {
		w.chunk = make([]byte, 0, max(len(encoded), min(maxChunk, 32*(1+w.count))))
	}
	start := len(w.chunk)
	w.chunk = append(w.chunk, encoded...)
	return w.chunk[start:len(w.chunk):len(w.chunk)]
}

// raise moves the floor up, and passes the outcomes that are dropped by it to drop,
// ascending.
func (w *window) raise(floor uint64, drop func(seq uint64, touched int32)) {
	last := min(floor-w.floor, uint64(len(w.ring)))
	for i := uint64(1); i <= last; i++ {
		if a := &w.ring[w.slot(w.floor+i)]; a.encoded != nil {
			w.count--
			w.bytes -= int(a.bytes)
			a.encoded, a.bytes = nil, 0
			drop(w.floor+i, a.touched)
		}
	}
	w.floor = floor
	if w.count == 0 && len(w.ring) > maxIdleRing {
		w.ring, w.chunk = nil, nil
	}
}

// size returns what the window counts if seq gets an outcome, without that outcome; 0: as it is.
func (w *window) size(seq uint64) int {
	n := w.bytes
	if top := max(w.top, seq); top > w.floor {
		n += wire.TicketBytes * int(top-w.floor)
	}
	return n
}

func (w *window) grow(n uint64) {
	size := max(uint64(len(w.ring)), 8)
	for size < n {
		size *= 2
	}
	old := *w
	w.ring = make([]answer, size)
	for i := range uint64(len(old.ring)) {
		seq := old.floor + 1 + i
		w.ring[w.slot(seq)] = old.ring[old.slot(seq)]
	}
}

func (w *window) slot(seq uint64) uint64 { return seq & uint64(len(w.ring)-1) }
