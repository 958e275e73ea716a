package ordered

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/google/btree"
)

// Index keeps objects in the order of their names, so that a page of a listing
// costs O(page + log n).
//
// Most names live for a moment: a lock that is locked and unlocked must not pay
// for two changes of a large tree. So a new object waits in fresh, from which it
// is removed in O(1), and one that is removed from the tree waits in stale. Both
// are short, and are merged into the tree when they are full or the tree is read.
// The index is no part of the replicated state.
type Index[T any] struct {
	tree         *btree.BTreeG[*T]
	fresh, stale []*T
	name         func(*T) string
	slot         func(*T) *Slot
}

// Slot is an object's position in fresh, from 1; 0: the object is in the tree.
type Slot int16

// MaxMerged bounds the objects in fresh, and those in stale: merging them takes
// about 1 ms.
const MaxMerged = 2048

// NewIndex returns an empty index. at returns where an object keeps its slot.
func NewIndex[T any](v *Visits, name func(*T) string, at func(*T) *Slot) Index[T] {
	compare := func(a, b *T) int { return cmp.Compare(name(a), name(b)) }
	return Index[T]{tree: NewTree(v, compare), name: name, slot: at}
}

// Add adds an object whose name is not in the index.
func (x *Index[T]) Add(of *T) {
	if len(x.fresh) == MaxMerged {
		x.merge()
	}
	x.fresh = append(x.fresh, of)
	*x.slot(of) = Slot(len(x.fresh))
}

// Remove removes an object that is in the index.
func (x *Index[T]) Remove(of *T) {
	i, last := int(*x.slot(of))-1, len(x.fresh)-1
	if i < 0 {
		if len(x.stale) == MaxMerged {
			x.merge()
		}
		x.stale = append(x.stale, of)
		return
	}
	if i < last {
		moved := x.fresh[last]
		x.fresh[i], *x.slot(moved) = moved, Slot(i+1)
	}
	x.fresh[last] = nil
	x.fresh = x.fresh[:last]
}

// merge brings the tree up to date. Stale objects go first: a fresh one may have
// the name of a stale one.
func (x *Index[T]) merge() {
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

// Page calls f in order for the objects whose names begin with prefix and are
// larger than after, until f returns false. pivot has the larger of the two names.
func (x *Index[T]) Page(pivot *T, prefix, after string, f func(*T) bool) {
	x.merge()
	x.tree.AscendGreaterOrEqual(pivot, func(of *T) bool {
		name := x.name(of)
		if !strings.HasPrefix(name, prefix) {
			return false
		}
		return name == after || f(of)
	})
}

// Check returns how the index differs from the objects by name, or nil. It works on
// a copy of the tree, and merges nothing: tests call it after each change.
func (x *Index[T]) Check(byName map[string]*T) error {
	tree := x.tree.Clone()
	for _, of := range x.stale {
		if _, found := tree.Delete(of); !found {
			return fmt.Errorf("%q is stale and not in the tree", x.name(of))
		}
	}
	for i, of := range x.fresh {
		if _, found := tree.ReplaceOrInsert(of); found || int(*x.slot(of)) != i+1 {
			return fmt.Errorf("%q is listed twice, or has the wrong slot", x.name(of))
		}
	}
	var err error
	tree.Ascend(func(of *T) bool {
		if byName[x.name(of)] != of {
			err = fmt.Errorf("%q is listed, and not found", x.name(of))
		}
		return err == nil
	})
	if err == nil && tree.Len() != len(byName) {
		err = fmt.Errorf("%d names are listed of %d", tree.Len(), len(byName))
	}
	return err
}
