package machine

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// endSessions ends several sessions at one index: none of them can be used, holds
// anything or is granted anything from here on. What they had is released as far as
// the entry may, and by the entries that follow. shortened are queues that have lost
// other waiters in the same entry.
func (m *Machine) endSessions(ending []*session, why fact.Cause, shortened shortened) {
	for _, s := range ending {
		m.endSession(s, why)
	}
	if len(shortened.locks) > 0 {
		m.shortened++
		m.unserved = m.shortened
	}
	m.release()
	m.unserved = 0
	m.serveAll(shortened)
}

// endSession ends a session and emits that it has ended.
func (m *Machine) endSession(s *session, why fact.Cause) {
	ended := fact.Ended{
		Session: s.id, Outcomes: len(m.outcomes), Member: s.member, Name: s.name, Cause: why,
		Held: s.held(),
	}
	if s.incarnation != nil {
		ended.Incarnation = s.incarnation.id
		m.unbind(s)
		s.incarnation = nil
	}
	sharding{m}.endedFor(s)
	m.endStandalone(s)
	m.leave(s)
	m.endings++
	s.ended, s.endedAt, s.graceful = m.endings, m.now, why == fact.Closed
	m.ending.Push(s)
	m.unlist(s)
	m.ended, m.listed = append(m.ended, ended), true
}

// unlist takes an ended session out of the listings, so that no page has to skip what is only
// being released.
func (m *Machine) unlist(s *session) {
	m.byCreation.Delete(s)
	if s.locked() > 0 {
		m.keys.enders.ReplaceOrInsert(ender{s.id, s.behavior})
	}
}

// dead reports whether the session has ended, and what it had is being released.
func (s *session) dead() bool { return s.ended != 0 }

// release releases what ended sessions had, in the order in which they ended, as far
// as the entry may. The deadline of the rest is now.
func (m *Machine) release() {
	for s := m.ending.First(); s != nil && m.left > 0; s = m.ending.First() {
		m.left--
		m.releaseOne(s)
	}
}

// releaseOne releases the next thing that an ended session had: queue places by
// position, locks, elections and permits by fence, shares by number, sets by fence, workers of shards in the order of joining, keys by name; last the session itself.
func (m *Machine) releaseOne(s *session) {
	switch {
	case s.waiters.First() != nil:
		m.dismiss(s.waiters.First(), wire.Code_SESSION_EXPIRED)
	case s.waitingSets.First() != nil:
		first := s.waitingSets.First()
		m.left -= len(first.parts) - 1
		setting{m}.dismiss(first, wire.Code_SESSION_EXPIRED)
	case s.holds.First() != nil:
		m.releaseLock(s.holds.First(), s.delayUntil())
	case s.leads.First() != nil:
		m.releaseLock(s.leads.First(), s.delayUntil())
	case s.permits.First() != nil:
		m.endPermit(s.permits.First(), s.delayUntil())
	case s.shares.First() != nil:
		sharing{m}.endShare(s.shares.First(), s.delayUntil())
	case s.sets.First() != nil:
		first := s.sets.First()
		m.left -= len(first.parts) - 1
		setting{m}.release(first, s.delayUntil())
	case s.workers.First() != nil:
		sharding{m}.vanish(s.workers.First())
	case s.locked() > 0:
		key, _ := s.keys.Min()
		m.endKey(key, s)
	default:
		m.ending.Remove(s)
		delete(m.sessions, s.id)
		m.keys.enders.Delete(ender{id: s.id})
		m.dirty.drop(s.key())
	}
}

// recordEndings makes the sessions durable that have ended in this entry and have
// something left to be released.
func (m *Machine) recordEndings() {
	for s := m.ending.Last(); s != nil && !s.recorded; s = s.inEnding.Prev() {
		s.recorded = true
		m.dirty.put(s.key(), s)
	}
}

// goneAs returns the ended incarnation that tickets name.
func (m *Machine) goneAs(id wire.ID) *incarnation {
	inc := m.gone[id]
	if inc == nil {
		inc = &incarnation{id: id, gone: true, acquisitions: m.newAcquisitions()}
		m.gone[id] = inc
	}
	return inc
}

// forget drops an ended incarnation that no ticket names any more. Until then no other can
// be registered under its ID: the tickets would be found as its own.
func (m *Machine) forget(inc *incarnation) {
	if inc.gone && inc.idle() {
		delete(m.gone, inc.id)
	}
}

// idle reports that no ticket has obtained anything.
func (a *acquisitions) idle() bool {
	return a.waiters.Len()+a.holds.Len()+a.shares.Len()+a.permits.Len()+a.sets.Len()+a.waitingSets.Len() == 0
}
