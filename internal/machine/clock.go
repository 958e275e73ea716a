package machine

import (
	"cmp"
	"math"
	"slices"
)

// advance moves group time forward, never back, and fires what is due: first all
// sessions together, whether their own TTL or that of a check has expired, then
// lock-delays, then incarnations. The queue places of expiring incarnations go
// before everything else, so that nothing is granted to a session or a process
// that ends in the same entry.
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

// startTerm renews every session and every check: without a leader no renewal could
// commit. Lock-delays run on, since they depend on no renewal.
func (m *Machine) startTerm() {
	for _, inc := range m.incarnations {
		m.renewed(inc)
	}
	m.refreshChecks()
}

// NextDeadline returns the earliest group time at which applying a batch fires
// something; ok is false if nothing is pending.
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

// dueSessions returns the expired sessions by deadline.
func (m *Machine) dueSessions() []*session {
	var due []*session
	for _, inc := range m.incarnations {
		for _, c := range inc.classes {
			if c.ttl == never || after(inc.renewed, c.ttl) > m.now {
				break // classes are sorted by TTL
			}
			due = c.sessions.appendTo(due)
		}
	}
	slices.SortFunc(due, func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.deadline(), b.deadline()), byCreation(a, b))
	})
	return due
}

// silent returns the expired incarnations that, once the ending sessions have
// ended, have no session with a TTL.
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

// after returns t + d, or the largest time if that overflows. Both are >= 0.
func after(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}
