package machine

import "slices"

// slots checks that no two permits have the same number.
func (a *auditor) slots(name string, s *semaphore) {
	taken := make(map[uint32]bool)
	for _, p := range s.all() {
		if n := len(p.slots); n != 0 && (n != int(p.n) || n > MaxSlots) || !slices.IsSorted(p.slots) {
			a.fail("semaphore %q: %d permits with the numbers %v", name, p.n, p.slots)
		}
		for _, number := range p.slots {
			if _, twice := taken[number]; twice {
				a.fail("semaphore %q: two permits with the number %d", name, number)
			}
			taken[number] = p.owner == nil
		}
	}
	if err := s.numbers.Check(taken); err != nil {
		a.fail("semaphore %q: %v", name, err)
	}
	for range s.numbers.Former() {
		a.former++
	}
}
