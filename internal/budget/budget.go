// Package budget bounds the memory that several groups of one process take together: what each may have by itself would be more
// than the process has, if it has many.
package budget

import "sync/atomic"

// Budget is a number of bytes of which each user may take as many as are free for every other one (Choudhury and Hahne, Dynamic Queue
// Length Thresholds): half of it, if the others have nothing, and n users that want more have an equal part each and leave one more.
// Besides, each user may have so many bytes in any case, so that what others have taken never stops one. Nothing is bounded by a nil Budget. It
// may be used on any goroutine.
type Budget struct {
	bytes, least int64
	taken        atomic.Int64
}

// New returns a budget of so many bytes, with the least that each user may have.
func New(bytes, least int64) *Budget { return &Budget{bytes: bytes, least: least} }

// Take counts bytes that a user has from now on; negative: that it has no more. It does not refuse any: see Allowed.
func (b *Budget) Take(bytes int) {
	if b != nil {
		b.taken.Add(int64(bytes))
	}
}

// Taken returns how many bytes all users have.
func (b *Budget) Taken() int {
	if b == nil {
		return 0
	}
	return int(b.taken.Load())
}

// Allowed returns how many bytes a user may have now, where it may have most by a bound of its own.
func (b *Budget) Allowed(most int) int {
	if b == nil {
		return most
	}
	return int(min(int64(most), max(b.bytes-b.taken.Load(), b.least)))
}
