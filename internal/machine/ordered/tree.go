package ordered

import "github.com/google/btree"

// Degree is that of trees: a node fits a few cache lines.
const Degree = 32

// NewTree returns a tree of which each comparison is a visit.
func NewTree[T any](v *Visits, compare func(a, b T) int) *btree.BTreeG[T] {
	return NewSharingTree(v, compare, btree.NewFreeListG[T](btree.DefaultFreeListSize))
}

// NewSharingTree returns a tree that shares its free nodes with others.
func NewSharingTree[T any](v *Visits, compare func(a, b T) int, free *btree.FreeListG[T]) *btree.BTreeG[T] {
	return btree.NewWithFreeListG(Degree, func(a, b T) bool {
		v.Count()
		return compare(a, b) < 0
	}, free)
}
