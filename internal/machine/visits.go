package machine

import "github.com/google/btree"

// visits counts the elements of the machine's structures that entries look at. A
// test measures by it how the work of each command grows with the state: time
// would depend on the computer.
type visits struct{ n uint64 }

func (v *visits) count() { v.n++ }

// newTree returns a tree of which each comparison is a visit.
func newTree[T any](v *visits, compare func(a, b T) int) *btree.BTreeG[T] {
	return newSharingTree(v, compare, btree.NewFreeListG[T](btree.DefaultFreeListSize))
}

// newSharingTree returns a tree that shares its free nodes with others.
func newSharingTree[T any](v *visits, compare func(a, b T) int, free *btree.FreeListG[T]) *btree.BTreeG[T] {
	return btree.NewWithFreeListG(degree, func(a, b T) bool {
		v.count()
		return compare(a, b) < 0
	}, free)
}
