package machine

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// session is a lease under which locks, permits and keys are held. It ends when its
// incarnation is not renewed within the session's TTL or a check becomes critical.
type session struct {
	id          wire.ID
	name        string
	incarnation *incarnation // nil: unbound, and without a TTL
	member      uint64       // of the last process
	ttl         int64        // 0: never expires
	lockDelay   int64
	behavior    wire.Behavior
	checks      []string
	createIndex uint64

	inClass   link[session]
	inMember  link[session]
	holds     list[lock, holdsOfSession]     // by fence: in the order of acquisition
	permits   list[permit, permitsOfSession] // by fence
	unclaimed int32                          // of the permits
	waiters   list[waiter, waitersOfSession] // by position
	keys      map[string]struct{}            // locked by the session; nil: none
}

// never is the class of the sessions that never expire.
const never = math.MaxInt64

// class holds the sessions of one incarnation with the same TTL, and so the same
// deadline: a renewal moves the deadline of all in O(1).
type class struct {
	ttl      int64
	sessions list[session, sessionsOfClass]
}

// deadline must be called only for sessions with a TTL: those have an incarnation.
func (s *session) deadline() int64 { return after(s.incarnation.renewed, s.ttl) }

func (s *session) class() int64 {
	if s.ttl == 0 {
		return never
	}
	return s.ttl
}

// mayHaveMore refuses a session that holds and awaits too many.
func (m *Machine) mayHaveMore(s *session) *wire.Reply {
	if s.holds.len+s.permits.len+s.waiters.len+len(s.keys) >= MaxPlaces {
		return m.refuse(wire.Code_BUSY, "the session holds and awaits too many; release some")
	}
	return nil
}

// byCreation orders sessions; several may have been created by one entry.
func byCreation(a, b *session) int {
	return cmp.Or(cmp.Compare(a.createIndex, b.createIndex), bytes.Compare(a.id[:], b.id[:]))
}

func (m *Machine) openSession(inc *incarnation, c *wire.OpenSession) *wire.Reply {
	id, ok := wire.IDFrom(c.Id)
	if !ok || id.IsZero() {
		return m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes, or zero")
	}
	if r := m.checkOpening(c); r != nil {
		return r
	}
	if s := m.sessions[id]; s != nil {
		if s.incarnation != inc {
			return m.refuse(wire.Code_INVALID, "the session's ID is in use; draw a new one")
		}
		return m.reply(wire.Code_OK)
	}
	if len(m.sessions) >= MaxAllSessions {
		return m.refuse(wire.Code_BUSY, "the group has too many sessions; close some")
	}
	if r := cmp.Or(m.mayBind(inc), m.healthy(inc.member, c.Checks)); r != nil {
		return r
	}
	s := &session{
		id: id, name: c.Name, ttl: c.Ttl, lockDelay: c.LockDelay,
		behavior: c.Behavior, checks: c.Checks, createIndex: m.index,
	}
	m.sessions[id] = s
	m.byCreation.ReplaceOrInsert(s)
	m.belong(s, inc.member)
	inc.bind(s)
	m.renewed(inc)
	m.dirty.put(s.key(), s)
	return m.reply(wire.Code_OK)
}

// mayBind refuses a member that has too many sessions, unbound ones included.
func (m *Machine) mayBind(inc *incarnation) *wire.Reply {
	if m.members[inc.member].sessions.len >= MaxSessions {
		return m.refuse(wire.Code_BUSY, "the member has too many sessions; close some")
	}
	return nil
}

// belong assigns a session to a member.
func (m *Machine) belong(s *session, member uint64) {
	s.member = member
	m.members[member].sessions.push(s)
}

// attachSession binds an unbound session to the caller. Its holds remain, but are
// unclaimed: their handles ended with the earlier process, so the session's next
// acquisition of the same name claims them.
func (m *Machine) attachSession(inc *incarnation, c *wire.AttachSession) *wire.Reply {
	s, refusal := m.live(c.Id)
	switch {
	case s == nil:
		return refusal
	case s.ttl != 0:
		return m.refuse(wire.Code_INVALID, "only a session without a TTL can be attached")
	case s.incarnation == inc:
		return m.reply(wire.Code_OK)
	case s.incarnation != nil:
		return m.reply(wire.Code_SESSION_BOUND)
	}
	if s.member != inc.member { // else the member's count does not change
		if r := m.mayBind(inc); r != nil {
			return r
		}
	}
	if r := m.healthy(inc.member, s.checks); r != nil {
		return r
	}
	m.members[s.member].sessions.remove(s)
	m.belong(s, inc.member)
	inc.bind(s)
	m.dirty.put(s.key(), s)
	for l := s.holds.first; l != nil; l = l.inSession.next {
		l.voidTicket()
		l.unclaimed = true
		if l.isElection() {
			m.elect(l, l.leader().Value)
			m.leads(l) // at another member
		}
		m.dirty.put(l.key, l)
	}
	for p := s.permits.first; p != nil; p = p.inSession.next {
		p.voidTicket()
		p.unclaimed = true
		m.dirty.put(p.key(), p)
	}
	s.unclaimed = int32(s.permits.len)
	return m.reply(wire.Code_OK)
}

// closeSession ends a session by force for any caller, and gracefully for the
// process that it is bound to; an unbound one gracefully for any.
func (m *Machine) closeSession(inc *incarnation, c *wire.CloseSession) *wire.Reply {
	s, refusal := m.live(c.Id)
	switch {
	case s == nil:
		return refusal
	case c.Graceful && s.incarnation != nil && s.incarnation != inc:
		return m.reply(wire.Code_SESSION_BOUND)
	}
	m.endSessions([]*session{s}, ending(c.Graceful), nil)
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

func (inc *incarnation) bind(s *session) {
	s.incarnation = inc
	i, ok := inc.class(s.class())
	if !ok {
		inc.classes = slices.Insert(inc.classes, i, &class{ttl: s.class()})
	}
	inc.classes[i].sessions.push(s)
	inc.count++
}

func (inc *incarnation) unbind(s *session) {
	i, _ := inc.class(s.class())
	inc.classes[i].sessions.remove(s)
	if inc.classes[i].sessions.len == 0 {
		inc.classes = slices.Delete(inc.classes, i, i+1)
	}
	inc.count--
}

// untimed returns how many of the sessions never expire.
func (inc *incarnation) untimed() int {
	if i, ok := inc.class(never); ok {
		return inc.classes[i].sessions.len
	}
	return 0
}

func (inc *incarnation) class(ttl int64) (int, bool) {
	return slices.BinarySearchFunc(inc.classes, ttl, func(c *class, ttl int64) int {
		return cmp.Compare(c.ttl, ttl)
	})
}
