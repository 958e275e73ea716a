package slots

import (
	"errors"
	"fmt"
	"iter"

	"github.com/conclave-go/conclave/internal/machine/ordered"
)

// Former returns what is remembered, the oldest first.
func (x *Numbers) Former() iter.Seq[*Former] {
	if x.former == nil {
		return func(func(*Former) bool) {}
	}
	return x.former.ages.All(new(ordered.Visits))
}

// Check reports an inconsistency, for tests. want is the numbers that are taken, and which of them by a lock-delay.
func (x *Numbers) Check(want map[uint32]bool) error {
	n, broken := int(x.taken.low), false
	if x.taken.spans != nil {
		end := x.taken.low
		x.taken.spans.Ascend(func(s span) bool {
			if s.first <= end || s.end <= s.first {
				broken = true
			}
			n, end = n+int(s.end-s.first), s.end
			return true
		})
	}
	if broken || n != len(want) {
		return fmt.Errorf("%d numbers are taken, want %d; the spans are out of order: %t", n, len(want), broken)
	}
	if x.isBlank() && (x.former != nil || x.taken.spans != nil) {
		return errors.New("what is not needed takes memory")
	}
	free := 0
	for number := range want { // order: any inconsistency is one
		if !x.taken.has(number) {
			return fmt.Errorf("the number %d is free", number)
		}
	}
	for f := range x.Former() {
		delayed, taken := want[f.Number]
		if f.of != x || f.Session == "" || x.former.byNumber[f.Number] != f || f.delayed != taken || taken && !delayed || x.former.byName.Has(f) == f.delayed {
			return fmt.Errorf("the number %d is remembered of %q, delayed %t", f.Number, f.Session, f.delayed)
		}
		if !f.delayed {
			free++
		}
	}
	if f := x.former; f != nil && (f.ages.Len > MaxFormer || len(f.byNumber) != f.ages.Len || f.byName.Len() != free) {
		return fmt.Errorf("%d numbers are remembered, %d are found, and %d of %d free ones", f.ages.Len, len(f.byNumber), f.byName.Len(), free)
	}
	return nil
}

// isBlank reports that nothing is taken and nothing remembered.
func (x *Numbers) isBlank() bool {
	return x.taken.low == 0 && (x.taken.spans == nil || x.taken.spans.Len() == 0) && (x.former == nil || x.former.ages.Len == 0)
}

// Check reports an inconsistency, for tests. n is how many numbers are remembered of all semaphores.
func (v *Space) Check(n int) error {
	bytes, last := 0, uint64(0)
	for f := range v.ages.All(new(ordered.Visits)) {
		if f.Position <= last {
			return fmt.Errorf("the number %d of %q is out of order", f.Number, f.Semaphore)
		}
		last = f.Position
		bytes += f.bytes()
	}
	if v.ages.Len != n || v.bytes != bytes || bytes > v.MostBytes {
		return fmt.Errorf("%d numbers are remembered with %d bytes, want %d with %d", v.ages.Len, v.bytes, n, bytes)
	}
	return nil
}
