package machine

import "cmp"

// delayed is a lock, election, share, permit or key that cannot be acquired until its
// lock-delay ends.
type delayed interface {
	ends() int64
	place() place
	over(*Machine)
}

// place orders what is delayed until the same time, as its durable keys do.
type place struct {
	kind  byte
	name  string
	fence uint64 // of a permit; of a share: its number
}

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.fence, b.fence))
}

// byDelay orders everything under a lock-delay, by end.
func byDelay(a, b delayed) int {
	return cmp.Or(cmp.Compare(a.ends(), b.ends()), a.place().compare(b.place()))
}

// endDelays ends the lock-delays that have passed, by end, then by place, as far as
// the entry may. The deadline of the rest has passed.
func (m *Machine) endDelays() {
	for x := m.delays.First(); x != nil && x.ends() <= m.now && m.left > 0; x = m.delays.First() {
		m.left--
		m.delays.Pop().over(m)
	}
}

// delayUntil is when the lock-delay of an ended session's holds ends.
func (s *session) delayUntil() int64 {
	if s.graceful {
		return 0
	}
	return after(s.endedAt, s.lockDelay)
}

// beginDelay begins the lock-delay of what has its end set.
func (m *Machine) beginDelay(x delayed) { m.delays.Push(x) }
