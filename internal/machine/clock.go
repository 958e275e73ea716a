package machine

import (
	"cmp"
	"math"
	"slices"
)

// advance moves group time forward, never back, and fires what has become due:
// first all sessions together, whether by their own time or by a check's, then
// lock-delays, then incarnations. Sessions go first, and before them the places
// of incarnations that go, so that nothing is granted to a session or a process
// that is gone at the same moment.
func (m *Machine) advance(time int64) {
	m.now = max(m.now, time)
	overdue := m.overdueChecks()
	due := m.dueSessions()
	if len(overdue) > 0 {
		due = append(due, slices.DeleteFunc(m.dependents(overdue...), m.isDue)...)
	}
	silent := m.silent(due)
	var shortened shortened
	for _, inc := range silent {
		shortened = append(shortened, m.dropPlaces(inc)...)
	}
	m.endSessions(due, invalidated, shortened)
	m.endDelays()
	for _, inc := range silent {
		m.drop(inc, invalidated)
	}
}

// startTerm gives every session and every check a full TTL again: while there
// was no leader nobody could renew. Lock-delays run on; they wait for no one's
// renewal.
func (m *Machine) startTerm() {
	for _, inc := range m.incarnations {
		m.renewed(inc)
	}
	m.refreshChecks()
}

// NextDeadline returns the earliest group time at which applying a batch would
// fire something; ok is false when nothing is pending.
func (m *Machine) NextDeadline() (at int64, ok bool) {
	at = math.MaxInt64
	for _, inc := range m.incarnations {
		at, ok = min(at, inc.deadline()), true
	}
	if len(m.delays) > 0 {
		at, ok = min(at, m.delays[0].ends()), true
	}
	if len(m.checkups) > 0 {
		at, ok = min(at, m.checkups[0].deadline()), true
	}
	if !ok {
		return 0, false
	}
	return at, true
}

func (m *Machine) isDue(s *session) bool { return s.ttl != 0 && s.deadline() <= m.now }

// dueSessions returns the sessions whose deadline has come, by deadline.
func (m *Machine) dueSessions() []*session {
	var due []*session
	for _, inc := range m.incarnations {
		for _, c := range inc.classes {
			if c.ttl == never || after(inc.renewed, c.ttl) > m.now {
				break // classes are by TTL: the others are later still
			}
			due = c.sessions.appendTo(due)
		}
	}
	slices.SortFunc(due, func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.deadline(), b.deadline()), byCreation(a, b))
	})
	return due
}

// silent returns the incarnations that were silent for their TTL and have no
// session left that ends by time, once those that are ending have ended.
func (m *Machine) silent(ending []*session) []*incarnation {
	var silent []*incarnation
	for _, inc := range m.incarnations {
		if after(inc.renewed, inc.ttl) > m.now {
			continue
		}
		timed := inc.count - inc.untimed()
		for _, s := range ending {
			if s.incarnation == inc && s.ttl != 0 {
				timed--
			}
		}
		if timed == 0 {
			silent = append(silent, inc)
		}
	}
	return silent
}

// after is t + d, and the end of time where that overflows. Both are >= 0.
func after(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}
