package machine

import "github.com/conclave-go/conclave/internal/wire"

// window holds the outcomes of an incarnation's tickets above its floor
// (Ongaro's dissertation, 6.3, bounded). It is a ring indexed by the sequence
// number, grown as far as MaxInFlight, so that neither the order of arrival
// nor the size of a jump of the floor costs anything.
type window struct {
	floor uint64
	count int      // of the outcomes
	ring  []answer // its length is zero or a power of two
}

// answer is the outcome of a ticket.
type answer struct {
	reply   *wire.Reply // nil: none
	touched int32       // where the present entry has touched it, if it has; see dirty.ticket
}

// get returns the outcome stored for seq, or nil.
func (w *window) get(seq uint64) *wire.Reply {
	if seq <= w.floor || seq-w.floor > uint64(len(w.ring)) {
		return nil
	}
	return w.ring[w.slot(seq)].reply
}

// put stores an outcome. The caller has checked that seq is within
// MaxInFlight of the floor.
func (w *window) put(seq uint64, r *wire.Reply) *answer {
	if seq-w.floor > uint64(len(w.ring)) {
		w.grow(seq - w.floor)
	}
	a := &w.ring[w.slot(seq)]
	if a.reply == nil {
		w.count++
	}
	a.reply = r
	return a
}

// raise moves the floor up, and passes the outcomes that are dropped by it to drop,
// ascending.
func (w *window) raise(floor uint64, drop func(seq uint64, touched int32)) {
	last := min(floor-w.floor, uint64(len(w.ring)))
	for i := uint64(1); i <= last; i++ {
		if a := &w.ring[w.slot(w.floor+i)]; a.reply != nil {
			a.reply = nil
			w.count--
			drop(w.floor+i, a.touched)
		}
	}
	w.floor = floor
}

func (w *window) grow(n uint64) {
	size := max(uint64(len(w.ring)), 16)
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
