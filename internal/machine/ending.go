package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// ending is the way in which a session ends.
type ending bool

const (
	graceful    ending = true  // closed by its owner: no lock-delay follows
	invalidated ending = false // the session's lock-delay follows
)

// endSessions ends several sessions in one entry. All their queue places go before
// anything that they hold is released, so that nothing is granted to a session that
// ends. shortened are queues that have lost other waiters in the same entry.
func (m *Machine) endSessions(ending []*session, how ending, shortened shortened) {
	for _, s := range ending {
		m.removeSession(s)
	}
	for _, s := range ending {
		for w := s.waiters.first; w != nil; w = s.waiters.first {
			m.dequeue(w)
			m.settle(w, m.reply(wire.Code_SESSION_EXPIRED))
			shortened.by(w)
		}
	}
	for _, s := range ending {
		m.releaseAll(s, s.delayAfter(how))
	}
	m.serveAll(shortened)
}

// releaseAll releases everything that a session holds: locks and permits by fence,
// keys by name.
func (m *Machine) releaseAll(s *session, delay int64) {
	for l := s.holds.first; l != nil; l = s.holds.first {
		m.release(l, delay)
	}
	for p := s.permits.first; p != nil; p = s.permits.first {
		m.endPermit(p, delay)
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		m.endKey(key, s.behavior, delay)
	}
}

func (s *session) delayAfter(how ending) int64 {
	if how == graceful {
		return 0
	}
	return s.lockDelay
}

// removeSession removes a session and emits that it has ended.
func (m *Machine) removeSession(s *session) {
	ended := wire.Ended{Session: s.id}
	if s.incarnation != nil {
		ended.Incarnation = s.incarnation.id
		s.incarnation.unbind(s)
	}
	delete(m.sessions, s.id)
	m.byCreation.Delete(s)
	m.members[s.member].sessions.remove(s)
	m.dirty.drop(s.key())
	m.ended = append(m.ended, ended)
}
