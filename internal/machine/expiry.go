package machine

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// advance moves group time forward, never back, and fires what is due: first all
// sessions together, whether their own TTL or that of a check has expired or their member is removed, then
// holds whose MaxHold has passed, then lock-delays, then shares that the last entry had no room for, then incarnations, then the removal of a member, then tombstones. The queue places of expiring incarnations go
// before anything is released, so that nothing is granted to a session or a process
// that ends in the same entry.
func (m *Machine) advance(time int64) {
	m.now = max(m.now, time)
	overdue := m.overdueChecks()
	for _, s := range m.dueSessions() {
		m.endSession(s, fact.Expired)
	}
	for _, s := range m.dependents(overdue...) {
		m.endSession(s, fact.CheckFailed)
	}
	silent := m.silent()
	var shortened shortened
	for _, inc := range silent {
		m.dropPlaces(inc, &shortened)
	}
	var late *member
	if out := (removing{m}); out.endsTogether() {
		if late = out.overdue(); late != nil {
			out.begin(late, &shortened)
		}
	}
	m.endSessions(nil, fact.Expired, shortened)
	bounding{m}.end()
	m.endDelays()
	sharding{m}.endWaits()
	sharing{m}.servePortions()
	for _, inc := range silent {
		m.drop(inc, fact.Expired)
	}
	if late != nil {
		removing{m}.finish(late)
	}
	removing{m}.removeOverdue()
	m.dropTombstones()
}

// startTerm renews every session and every check: without a leader no renewal could
// commit. Lock-delays run on, since they depend on no renewal.
func (m *Machine) startTerm() {
	for inc := range m.registry.all() {
		m.renewed(inc)
	}
	m.refreshStandalone()
	m.refreshChecks()
}

// NextDeadline returns the earliest group time at which applying a batch fires
// something; ok is false if nothing is pending.
func (m *Machine) NextDeadline() (at int64, ok bool) {
	at = math.MaxInt64
	if (grouping{m}).isSealed() {
		return at, false
	}
	if inc := m.deadlines.First(); inc != nil {
		at, ok = min(at, inc.deadline()), true
	}
	if s := m.standalone.First(); s != nil {
		at, ok = min(at, s.deadline()), true
	}
	if x := m.delays.First(); x != nil {
		at, ok = min(at, x.ends()), true
	}
	if b := m.bounds.First(); b != nil {
		at, ok = min(at, b.ends), true
	}
	if c := m.checkups.First(); c != nil {
		at, ok = min(at, c.deadline()), true
	}
	if id, due := m.nextRemoval(); id != 0 {
		at, ok = min(at, due), true
	}
	if t := m.tombstones.byEnd.First(); t != nil {
		at, ok = min(at, t.until), true
	}
	if w := m.shardSets.times.First(); w != nil {
		at, ok = min(at, w.ends()), true
	}
	if m.ending.Len > 0 || m.portions.Len() > 0 || m.shardSets.due.Len() > 0 {
		at, ok = min(at, m.now), true
	}
	if !ok {
		return 0, false
	}
	return at, true
}

// dueSessions returns expired sessions by deadline, and no more of them than the entry
// releases: each one that ends costs a change. The others expire in the next entries,
// unless they are renewed before, since a TTL is a lower bound.
func (m *Machine) dueSessions() []*session {
	var sessions []*session
	room := m.split - m.ending.Len
	for _, d := range m.due() {
		if len(sessions) >= room {
			break
		}
		if d.alone != nil {
			sessions = append(sessions, d.alone)
			continue
		}
		d.sessions.Ascend(func(s *session) bool {
			m.visits.Count()
			sessions = append(sessions, s)
			return len(sessions) < room
		})
	}
	slices.SortFunc(sessions, func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.deadline(), b.deadline()), byCreation(a, b))
	})
	return sessions
}

// dueClass is sessions that have expired together: those of an incarnation with one TTL, or a
// standalone one.
type dueClass struct {
	at int64
	of wire.ID // the incarnation
	*class
	alone *session
}

// due returns what has expired, the earliest first, and as much of it as an entry may end.
func (m *Machine) due() []dueClass {
	var all []dueClass
	for _, inc := range m.dueIncarnations() {
		n := 0
		inc.classes.Ascend(func(c *class) bool {
			if n == m.split || c.ttl == never || after(inc.renewed, c.ttl) > m.now {
				return false // classes are sorted by TTL
			}
			n++
			all = append(all, dueClass{at: after(inc.renewed, c.ttl), of: inc.id, class: c})
			return true
		})
	}
	for _, s := range m.standalone.Until(func(s *session) bool { return s.deadline() <= m.now }) {
		all = append(all, dueClass{at: s.deadline(), alone: s})
	}
	slices.SortFunc(all, func(a, b dueClass) int {
		c := cmp.Or(cmp.Compare(a.at, b.at), bytes.Compare(a.of[:], b.of[:]))
		if c == 0 && a.alone != nil && b.alone != nil {
			return byCreation(a.alone, b.alone)
		}
		return c
	})
	return all
}

// dueIncarnations returns those whose deadline has passed.
func (m *Machine) dueIncarnations() []*incarnation {
	return m.deadlines.Until(func(inc *incarnation) bool { return inc.deadline() <= m.now })
}

// silent returns the expired incarnations that have no session with a TTL, by ID, as many
// as a portion has room for.
func (m *Machine) silent() []*incarnation {
	silent := slices.DeleteFunc(m.dueIncarnations(), func(inc *incarnation) bool { return inc.timed > 0 })
	slices.SortFunc(silent, func(a, b *incarnation) int { return bytes.Compare(a.id[:], b.id[:]) })
	room := portion{size: m.split}
	for i, inc := range silent {
		if !room.fits(1 + inc.count + inc.places() + inc.window.count) {
			return silent[:i]
		}
	}
	return silent
}

// portion is what one entry does of what is due: the first, whatever its size, and what
// else there is room for. The rest is due in the next entries.
type portion struct{ size, used int }

func (p *portion) fits(n int) bool {
	if p.used > 0 && p.used+n > p.size {
		return false
	}
	p.used += n
	return true
}

// after returns t + d, or the largest time if that overflows. Both are >= 0.
func after(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}
