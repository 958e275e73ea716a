package machine

import (
	"cmp"
	"strings"

	"github.com/google/btree"
)

// index keeps objects in the order of their names, so that a page of a listing
// costs O(page + log n).
//
// Most names live for a moment: a lock that is locked and unlocked must not pay
// for two changes of a large tree. So a new object waits in fresh, from which it
// is removed in O(1), and one that is removed from the tree waits in stale. Both
// are short, and are merged into the tree when they are full or the tree is read.
// The index is no part of the replicated state.
type index[T any] struct {
	tree         *btree.BTreeG[*T]
	fresh, stale []*T
	name         func(*T) string
	slot         func(*T) *slot
}

// slot is an object's position in fresh, from 1; 0: the object is in the tree.
type slot int16

const (
	degree    = 32   // of a tree: a node fits a few cache lines
	maxMerged = 2048 // objects in fresh or stale: merging them takes about 1 ms
)

func newIndex[T any](v *visits, name func(*T) string, at func(*T) *slot) index[T] {
	compare := func(a, b *T) int { return cmp.Compare(name(a), name(b)) }
	return index[T]{tree: newTree(v, compare), name: name, slot: at}
}

func (x *index[T]) add(of *T) {
	if len(x.fresh) == maxMerged {
		x.merge()
	}
	x.fresh = append(x.fresh, of)
	*x.slot(of) = slot(len(x.fresh))
}

func (x *index[T]) remove(of *T) {
	i, last := int(*x.slot(of))-1, len(x.fresh)-1
	if i < 0 {
		if len(x.stale) == maxMerged {
			x.merge()
		}
		x.stale = append(x.stale, of)
		return
	}
	if i < last {
		moved := x.fresh[last]
		x.fresh[i], *x.slot(moved) = moved, slot(i+1)
	}
	x.fresh[last] = nil
	x.fresh = x.fresh[:last]
}

// merge brings the tree up to date. Stale objects go first: a fresh one may have
// the name of a stale one.
func (x *index[T]) merge() {
	for _, of := range x.stale {
		x.tree.Delete(of)
	}
	for _, of := range x.fresh {
		x.tree.ReplaceOrInsert(of)
		*x.slot(of) = 0
	}
	clear(x.stale)
	clear(x.fresh)
	x.stale, x.fresh = x.stale[:0], x.fresh[:0]
}

// page calls f in order for the objects whose names begin with prefix and are
// larger than after, until f returns false. pivot has the larger of the two names.
func (x *index[T]) page(pivot *T, prefix, after string, f func(*T) bool) {
	x.merge()
	x.tree.AscendGreaterOrEqual(pivot, func(of *T) bool {
		name := x.name(of)
		if !strings.HasPrefix(name, prefix) {
			return false
		}
		return name == after || f(of)
	})
}
