package machine

import "github.com/conclave-go/conclave/internal/wire"

// window holds the outcomes of an incarnation's tickets above its floor
// (Ongaro's dissertation, 6.3, bounded). It is a ring indexed by the sequence
// number, grown as far as MaxInFlight, so that neither the order of arrival
// nor the size of a jump of the floor costs anything.
type window struct {
	floor uint64
	count int           // of the outcomes
	ring  []*wire.Reply // its length is zero or a power of two
}

// get returns the outcome stored for seq, or nil.
func (w *window) get(seq uint64) *wire.Reply {
	if seq <= w.floor || seq-w.floor > uint64(len(w.ring)) {
		return nil
	}
	return w.ring[w.slot(seq)]
}

// put stores an outcome. The caller has checked that seq is within
// MaxInFlight of the floor.
func (w *window) put(seq uint64, r *wire.Reply) {
	if seq-w.floor > uint64(len(w.ring)) {
		w.grow(seq - w.floor)
	}
	slot := w.slot(seq)
	if w.ring[slot] == nil {
		w.count++
	}
	w.ring[slot] = r
}

// raise moves the floor up and returns the sequence numbers whose outcomes are
// dropped by it, ascending.
func (w *window) raise(floor uint64) (dropped []uint64) {
	last := min(floor-w.floor, uint64(len(w.ring)))
	for i := uint64(1); i <= last; i++ {
		slot := w.slot(w.floor + i)
		if w.ring[slot] != nil {
			w.ring[slot] = nil
			w.count--
			dropped = append(dropped, w.floor+i)
		}
	}
	w.floor = floor
	return dropped
}

func (w *window) grow(n uint64) {
	size := max(uint64(len(w.ring)), 16)
	for size < n {
		size *= 2
	}
	old := *w
	w.ring = make([]*wire.Reply, size)
	for i := range uint64(len(old.ring)) {
		seq := old.floor + 1 + i
		w.ring[w.slot(seq)] = old.ring[old.slot(seq)]
	}
}

func (w *window) slot(seq uint64) uint64 { return seq & uint64(len(w.ring)-1) }
