// Package slots numbers the permits of semaphores, for users that need an identity with a permit: the ID of a
// worker, a port, a partition. No number is taken twice at a time. A session gets the numbers that one of its name
// had last, as far as they are free, and then the smallest.
package slots

import (
	"cmp"
	"slices"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
)

// Bounds of what is remembered. Beyond them the oldest is forgotten.
const (
	MaxFormer      = 1_024   // numbers of one semaphore
	MaxFormerBytes = 1 << 20 // of those of all

	formerBytes = 64 // of a number, without the name
)

// Space is what the numbers of all semaphores share.
type Space struct {
	records   Records
	visits    *ordered.Visits
	freeSpans *btree.FreeListG[span]
	freeNames *btree.FreeListG[*Former]
	ages      ordered.List[Former, formerOfSpace]
	bytes     int

	MostEach, MostBytes int // MaxFormer and MaxFormerBytes; smaller ones in tests
}

// Records is where changes of what is remembered are noted.
type Records interface {
	Put(*Former)
	Drop(*Former)
}

// NewSpace returns an empty space.
func NewSpace(v *ordered.Visits, r Records) *Space {
	return &Space{
		records: r, visits: v, MostEach: MaxFormer, MostBytes: MaxFormerBytes,
		freeSpans: btree.NewFreeListG[span](btree.DefaultFreeListSize),
		freeNames: btree.NewFreeListG[*Former](btree.DefaultFreeListSize),
	}
}

// Bytes is about what everything that is remembered takes.
func (v *Space) Bytes() int { return v.bytes }

// Numbers is the numbers of one semaphore, from 0 on: which are taken, and what is remembered of others. The zero
// value has none of either.
type Numbers struct {
	taken  taken
	former *former // nil: nothing is remembered
}

// former is what is remembered of the numbers of a semaphore.
type former struct {
	byNumber map[uint32]*Former
	byName   *btree.BTreeG[*Former] // those that are free
	ages     ordered.List[Former, formerOfNumbers]
}

// Former is a number that no session has, with the name of the one that had it last.
type Former struct {
	Semaphore, Session string
	Number             uint32
	Position           uint64 // among all that are remembered: the oldest has the smallest

	of      *Numbers
	delayed bool // the number is taken all the same, by a lock-delay
	inAll   ordered.Link[Former]
	inOne   ordered.Link[Former]
}

type (
	formerOfSpace   struct{}
	formerOfNumbers struct{}
)

func (formerOfSpace) Of(f *Former) *ordered.Link[Former]   { return &f.inAll }
func (formerOfNumbers) Of(f *Former) *ordered.Link[Former] { return &f.inOne }

func byName(a, b *Former) int {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Number, b.Number))
}

// Take takes n numbers below limit for a session of that name, "": none, and returns them in ascending order. As
// many must be free.
func (x *Numbers) Take(v *Space, session string, n int, limit uint32) []uint32 {
	numbers := make([]uint32, 0, n)
	if x.former == nil { // what follows would do the same
		for len(numbers) < n && x.taken.spans == nil {
			numbers = append(numbers, x.taken.low)
			x.taken.low++
		}
	}
	for _, f := range x.preferred(session, n-len(numbers), limit) {
		numbers = append(numbers, f.Number)
		x.taken.add(f.Number, v)
		v.forget(f)
	}
	for len(numbers) < n {
		number := x.taken.low
		numbers = append(numbers, number)
		x.taken.addLow()
		if f := x.formerOf(number); f != nil {
			v.forget(f)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// preferred returns the free numbers below limit that a session of that name had last, n at most.
func (x *Numbers) preferred(session string, n int, limit uint32) (all []*Former) {
	if session == "" || x.former == nil {
		return nil
	}
	x.former.byName.AscendGreaterOrEqual(&Former{Session: session}, func(f *Former) bool {
		if len(all) == n || f.Session != session || f.Number >= limit {
			return false
		}
		all = append(all, f)
		return true
	})
	return all
}

func (x *Numbers) formerOf(number uint32) *Former {
	if x.former == nil {
		return nil
	}
	return x.former.byNumber[number]
}

// Free frees numbers that a session had, or whose lock-delay has ended.
func (x *Numbers) Free(v *Space, numbers []uint32) {
	for _, n := range numbers {
		x.taken.remove(n, v)
		if f := x.formerOf(n); f != nil {
			f.delayed = false
			x.former.byName.ReplaceOrInsert(f)
		}
	}
	x.trim()
}

// Remember remembers that a session of that name, "": none, had the numbers last. They have been freed, or from now
// on are taken by a lock-delay.
func (x *Numbers) Remember(v *Space, semaphore, session string, numbers []uint32) {
	if session == "" {
		return
	}
	for i := len(numbers) - 1; i >= 0; i-- { // the smallest is forgotten last
		f := &Former{Semaphore: semaphore, Session: session, Number: numbers[i], Position: 1, delayed: x.taken.has(numbers[i])}
		if last := v.ages.Last(); last != nil {
			f.Position = last.Position + 1
		}
		x.add(v, f)
		v.records.Put(f)
		if x.former.ages.Len > v.MostEach {
			v.forget(x.former.ages.First())
		}
		for v.bytes > v.MostBytes {
			v.forget(v.ages.First())
		}
	}
}

func (x *Numbers) add(v *Space, f *Former) {
	if x.former == nil {
		x.former = &former{byNumber: make(map[uint32]*Former), byName: ordered.NewSharingTree(v.visits, byName, v.freeNames)}
	}
	f.of = x
	x.former.byNumber[f.Number] = f
	x.former.ages.Push(f)
	if !f.delayed {
		x.former.byName.ReplaceOrInsert(f)
	}
	v.ages.Push(f)
	v.bytes += f.bytes()
}

func (f *Former) bytes() int { return formerBytes + len(f.Session) }

func (v *Space) forget(f *Former) {
	x := f.of
	delete(x.former.byNumber, f.Number)
	x.former.ages.Remove(f)
	if !f.delayed {
		x.former.byName.Delete(f)
	}
	v.ages.Remove(f)
	v.bytes -= f.bytes()
	v.records.Drop(f)
	x.trim()
}

// trim frees what takes memory and will not be needed soon.
func (x *Numbers) trim() {
	if x.former != nil && x.former.ages.Len == 0 && x.taken.isEmpty() {
		x.former.byName.Clear(true)
		x.former = nil
	}
}

// Forget forgets everything that is remembered of the numbers.
func (x *Numbers) Forget(v *Space) {
	for x.former != nil && x.former.ages.Len > 0 {
		v.visits.Count()
		v.forget(x.former.ages.First())
	}
}
