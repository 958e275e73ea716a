package machine

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// session is a lease under which locks are held. It lives as long as its
// incarnation is renewed within the session's TTL.
type session struct {
	id          wire.ID
	name        string
	incarnation *incarnation
	ttl         int64
	lockDelay   int64
	createIndex uint64

	inClass link[session]
	holds   list[lock]   // by fence: in the order of acquisition
	waiters list[waiter] // by position
}

// class holds the sessions of one incarnation that have the same TTL, and so
// the same deadline: one renewal moves the deadline of all.
type class struct {
	ttl      int64
	sessions list[session]
}

// ending says how a session ends: by intent of its owner, or else.
type ending bool

const (
	graceful    ending = true  // no lock-delay follows
	invalidated ending = false // lock-delay follows
)

func (s *session) deadline() int64 { return after(s.incarnation.renewed, s.ttl) }

// places is how many locks the session holds and waits for.
func (s *session) places() int { return s.holds.len + s.waiters.len }

// byCreation orders sessions; several may have been created by one entry.
func byCreation(a, b *session) int {
	return cmp.Or(cmp.Compare(a.createIndex, b.createIndex), bytes.Compare(a.id[:], b.id[:]))
}

func (m *Machine) openSession(inc *incarnation, c *wire.OpenSession) *wire.Reply {
	id, ok := wire.IDFrom(c.Id)
	if !ok || id.IsZero() {
		return m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes, or zero")
	}
	if r := cmp.Or(m.checkLabel(c.Name), m.checkTTL(c.Ttl), m.checkLockDelay(c.LockDelay)); r != nil {
		return r
	}
	if s := m.sessions[id]; s != nil {
		if s.incarnation != inc {
			return m.refuse(wire.Code_INVALID, "the session's ID is in use; draw a new one")
		}
		return m.reply(wire.Code_OK)
	}
	if inc.count >= MaxSessions {
		return m.refuse(wire.Code_TOO_LARGE, "the member has too many sessions; close some")
	}
	s := &session{id: id, name: c.Name, incarnation: inc, ttl: c.Ttl, lockDelay: c.LockDelay, createIndex: m.index}
	m.sessions[id] = s
	inc.bind(s)
	m.renewed(inc)
	m.dirty.put(s.key(), s)
	return m.reply(wire.Code_OK)
}

func (m *Machine) closeSession(c *wire.CloseSession) *wire.Reply {
	s, refusal := m.live(c.Id)
	if s == nil {
		return refusal
	}
	m.endSessions([]*session{s}, ending(c.Graceful))
	return m.reply(wire.Code_OK)
}

// live returns the session, or the refusal of a command under it.
func (m *Machine) live(b []byte) (*session, *wire.Reply) {
	id, ok := wire.IDFrom(b)
	if !ok {
		return nil, m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes")
	}
	if s := m.sessions[id]; s != nil {
		return s, nil
	}
	return nil, m.reply(wire.Code_SESSION_EXPIRED)
}

// endSessions ends several sessions at one moment. Before any of their locks
// is handed on, all of their queue places go: no grant to a dead session.
func (m *Machine) endSessions(ending []*session, how ending) {
	for _, s := range ending {
		m.unbind(s)
	}
	for _, s := range ending {
		for w := s.waiters.head(); w != nil; w = s.waiters.head() {
			m.dequeue(w)
			m.settle(w, m.reply(wire.Code_SESSION_EXPIRED))
		}
	}
	for _, s := range ending {
		for l := s.holds.head(); l != nil; l = s.holds.head() {
			m.release(l, s.delayAfter(how))
		}
	}
}

func (s *session) delayAfter(how ending) int64 {
	if how == graceful {
		return 0
	}
	return s.lockDelay
}

// unbind forgets a session and says that it ended.
func (m *Machine) unbind(s *session) {
	delete(m.sessions, s.id)
	s.incarnation.unbind(s)
	m.dirty.drop(s.key())
	m.ended = append(m.ended, wire.Ended{Incarnation: s.incarnation.id, Session: s.id})
}

func (inc *incarnation) bind(s *session) {
	i, ok := inc.class(s.ttl)
	if !ok {
		inc.classes = slices.Insert(inc.classes, i, &class{ttl: s.ttl})
	}
	inc.classes[i].sessions.push(&s.inClass, s)
	inc.count++
}

func (inc *incarnation) unbind(s *session) {
	i, _ := inc.class(s.ttl)
	inc.classes[i].sessions.remove(&s.inClass)
	if inc.classes[i].sessions.len == 0 {
		inc.classes = slices.Delete(inc.classes, i, i+1)
	}
	inc.count--
}

func (inc *incarnation) class(ttl int64) (int, bool) {
	return slices.BinarySearchFunc(inc.classes, ttl, func(c *class, ttl int64) int {
		return cmp.Compare(c.ttl, ttl)
	})
}
