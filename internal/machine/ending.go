package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// ending says how a session ends: by intent of its owner, or else.
type ending bool

const (
	graceful    ending = true  // no lock-delay follows
	invalidated ending = false // lock-delay follows
)

// endSessions ends several sessions at one moment. Before anything of theirs is
// handed on, all of their queue places go: no grant to a dead session. shortened
// are queues from which others have gone at the same moment.
func (m *Machine) endSessions(ending []*session, how ending, shortened shortened) {
	for _, s := range ending {
		m.forgetSession(s)
	}
	for _, s := range ending {
		for w := s.waiters.first; w != nil; w = s.waiters.first {
			m.dequeue(w)
			m.settle(w, m.reply(wire.Code_SESSION_EXPIRED))
			shortened.by(w)
		}
	}
	for _, s := range ending {
		m.handOn(s, s.delayAfter(how))
	}
	m.serveAll(shortened)
}

// handOn gives back what a session held, by fence and the keys by name.
func (m *Machine) handOn(s *session, delay int64) {
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

// forgetSession strikes a session off and says that it ended.
func (m *Machine) forgetSession(s *session) {
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
