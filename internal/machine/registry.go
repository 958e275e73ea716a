package machine

import (
	"bytes"
	"iter"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// registry is the registered incarnations, of members and of clients. There may be tens of
// thousands, and each call looks for its own.
type registry struct {
	byID    map[wire.ID]*incarnation
	sorted  *btree.BTreeG[*incarnation] // by ID
	clients int                         // of them

	// Shared by the trees of all of them.
	freeClasses *btree.FreeListG[*class]
	freeWaiters *btree.FreeListG[*waiter]
	freeHolds   *btree.FreeListG[*lock]
	freeShares  *btree.FreeListG[*share]
	freePermits *btree.FreeListG[*permit]
	freeSets    *btree.FreeListG[*set]
}

func newRegistry(v *ordered.Visits) registry {
	return registry{
		byID:        make(map[wire.ID]*incarnation),
		sorted:      ordered.NewTree(v, func(a, b *incarnation) int { return bytes.Compare(a.id[:], b.id[:]) }),
		freeClasses: btree.NewFreeListG[*class](btree.DefaultFreeListSize),
		freeWaiters: btree.NewFreeListG[*waiter](btree.DefaultFreeListSize),
		freeHolds:   btree.NewFreeListG[*lock](btree.DefaultFreeListSize),
		freeShares:  btree.NewFreeListG[*share](btree.DefaultFreeListSize),
		freePermits: btree.NewFreeListG[*permit](btree.DefaultFreeListSize),
		freeSets:    btree.NewFreeListG[*set](btree.DefaultFreeListSize),
	}
}

// members is how many of them are members'.
func (r *registry) members() int { return len(r.byID) - r.clients }

func (r *registry) add(inc *incarnation) {
	r.byID[inc.id] = inc
	r.sorted.ReplaceOrInsert(inc)
	if inc.client {
		r.clients++
	}
}

func (r *registry) remove(inc *incarnation) {
	delete(r.byID, inc.id)
	r.sorted.Delete(inc)
	if inc.client {
		r.clients--
	}
}

// from iterates over the incarnations in the order of their IDs, from one on.
func (r *registry) from(id wire.ID) iter.Seq[*incarnation] {
	return func(yield func(*incarnation) bool) {
		r.sorted.AscendGreaterOrEqual(&incarnation{id: id}, yield)
	}
}

// all iterates over the incarnations in the order of their IDs.
func (r *registry) all() iter.Seq[*incarnation] { return r.from(wire.ID{}) }
