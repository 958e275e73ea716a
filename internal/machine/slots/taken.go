package slots

import (
	"cmp"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
)

// taken is a set of numbers: all below low, and those of spans. Its memory is bounded by what is in it, not by
// the largest number. Adding, removing and finding the smallest number that is not in it are O(log n).
type taken struct {
	low   uint32 // never in the set
	spans *btree.BTreeG[span]
}

// span is the numbers from first up to, and without, end. Those of a set do not touch each other, nor low: so
// equal sets are equal, whatever their histories.
type span struct{ first, end uint32 }

func byFirst(a, b span) int { return cmp.Compare(a.first, b.first) }

func (t *taken) isEmpty() bool { return t.low == 0 && t.spans == nil }

func (t *taken) has(number uint32) bool {
	return number < t.low || number < t.before(number).end
}

// before returns the last span that begins at number or before it, or an empty one.
func (t *taken) before(number uint32) (s span) {
	if t.spans == nil {
		return s
	}
	t.spans.DescendLessOrEqual(span{first: number}, func(found span) bool {
		s = found
		return false
	})
	return s
}

// addLow adds the smallest number that is not in the set.
func (t *taken) addLow() {
	t.low++
	if t.spans == nil {
		return
	}
	if next, ok := t.spans.Min(); ok && next.first == t.low {
		t.spans.DeleteMin()
		t.low = next.end
	}
}

// add adds a number that is not in the set.
func (t *taken) add(number uint32, v *Space) {
	if number == t.low {
		t.addLow()
		return
	}
	if t.spans == nil {
		t.spans = ordered.NewSharingTree(v.visits, byFirst, v.freeSpans)
	}
	s := span{number, number + 1}
	if before := t.before(number); before.end == number {
		t.spans.Delete(before)
		s.first = before.first
	}
	if next, ok := t.spans.Get(span{first: number + 1}); ok {
		t.spans.Delete(next)
		s.end = next.end
	}
	t.spans.ReplaceOrInsert(s)
}

// remove removes a number that is in the set.
func (t *taken) remove(number uint32, v *Space) {
	s := span{end: t.low}
	if number < t.low {
		t.low = number
	} else {
		s = t.before(number)
		t.spans.Delete(s)
		if s.first < number {
			t.spans.ReplaceOrInsert(span{s.first, number})
		}
	}
	if number+1 < s.end {
		if t.spans == nil {
			t.spans = ordered.NewSharingTree(v.visits, byFirst, v.freeSpans)
		}
		t.spans.ReplaceOrInsert(span{number + 1, s.end})
	}
	if t.low == 0 && t.spans != nil && t.spans.Len() == 0 {
		t.spans.Clear(true)
		t.spans = nil
	}
}

// Valid reports whether the numbers can be those of one grant: ascending, and none is limit or larger.
func Valid(numbers []uint32, limit uint32) bool {
	for i, n := range numbers {
		if n >= limit || i > 0 && n <= numbers[i-1] {
			return false
		}
	}
	return true
}
