package machine

import (
	"bytes"
	"cmp"
	"math"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// session is a lease under which locks, permits and keys are held. It ends when its
// incarnation is not renewed within the session's TTL or a check becomes critical.
type session struct {
	id          wire.ID
	name        string
	incarnation *incarnation // nil: unbound, and without a TTL or standalone
	member      uint64       // of the last process
	client      bool         // the member is a client
	ttl         int64        // 0: never expires
	lockDelay   int64
	behavior    wire.Behavior
	checks      []string
	createIndex uint64
	attached    uint64 // the largest fence when it was last attached; see claimable
	standalone  bool   // bound to no process, ever
	renewed     int64  // group time of the last renewal, if it is standalone
	at          int    // position in Machine.standalone; 0: it is not there

	ended    uint64 // see SessionState; 0: the session lives
	endedAt  int64
	graceful bool
	recorded bool // the end is durable

	inEnding ordered.Link[session]
	inMember ordered.Link[session]
	depends  []dependency
	holds    ordered.List[lock, holdsOfSession]     // of locks, by fence: in the order of acquisition
	leads    ordered.List[lock, holdsOfSession]     // of elections, by fence
	permits  ordered.List[permit, permitsOfSession] // by fence
	claims   *btree.BTreeG[*permit]                 // the permits by what claims them; nil: none, or a session with a TTL
	shares   ordered.List[share, sharesOfSession]   // by number
	waiters  ordered.List[waiter, waitersOfSession] // by position
	sets     ordered.List[set, setsOfSession]       // that are held, by fence
	inSets   int                                    // names of those
	keys     *btree.BTreeG[string]                  // locked by the session; nil: none

	workers ordered.List[worker, workersOfSession] // of sets of shards, in the order of joining
	sharded int                                    // shards that they work on

	shareClaims *btree.BTreeG[*share] // as claims

	waitingSets   ordered.List[set, setsOfSession] // by position
	inWaitingSets int                              // names of those
	reserving     int                              // those of them whose names are reserved
}

// never is the class of the sessions that never expire.
const never = math.MaxInt64

// class holds the sessions of one incarnation with the same TTL, and so the same
// deadline: a renewal moves the deadline of all in O(1).
type class struct {
	ttl      int64
	sessions *btree.BTreeG[*session] // by creation
}

// deadline must be called only for sessions with a TTL: those have an incarnation.
func (s *session) deadline() int64 { return after(s.lastRenewed(), s.ttl) }

// lastRenewed returns the group time of the last renewal of a session that is not unbound.
func (s *session) lastRenewed() int64 {
	if s.standalone {
		return s.renewed
	}
	return s.incarnation.renewed
}

func (s *session) class() int64 {
	if s.ttl == 0 {
		return never
	}
	return s.ttl
}

// mayHaveMore refuses a session that holds and awaits too many.
func (m *Machine) mayHaveMore(s *session) *wire.Reply {
	if s.held()+s.awaited() >= MaxPlaces {
		return m.refuse(wire.Code_BUSY, "the session holds and awaits too many; release some")
	}
	return nil
}

// held counts what the session holds: locks, those of sets too, elections, shares, acquisitions of permits, shards, and keys.
func (s *session) held() int {
	return s.holds.Len + s.inSets + s.leads.Len + s.shares.Len + s.permits.Len + s.sharded + s.locked()
}

// awaited counts the queue places of the session.
func (s *session) awaited() int { return s.waiters.Len + s.inWaitingSets }

// byCreation orders sessions; several may have been created by one entry.
func byCreation(a, b *session) int {
	return cmp.Or(cmp.Compare(a.createIndex, b.createIndex), bytes.Compare(a.id[:], b.id[:]))
}

func (m *Machine) openSession(inc *incarnation, c *wire.OpenSession) *wire.Reply {
	return m.open(inc, c, false)
}

// open opens a session that is bound to the incarnation, or a standalone one of its member.
func (m *Machine) open(inc *incarnation, c *wire.OpenSession, standalone bool) *wire.Reply {
	id, ok := wire.IDFrom(c.Id)
	if !ok || id.IsZero() {
		return m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes, or zero")
	}
	if r := m.checkOpening(c); r != nil {
		return r
	}
	if r := m.mayDepend(inc, c.Checks); r != nil {
		return r
	}
	if s := m.sessions[id]; s != nil {
		if s.dead() || s.standalone != standalone || !standalone && s.incarnation != inc || s.member != inc.member {
			return m.refuse(wire.Code_INVALID, "the session's ID is in use; draw a new one")
		}
		return m.bound(s)
	}
	if len(m.sessions) >= m.limit(MaxAllSessions, ReservedSessions) {
		return m.refuse(wire.Code_BUSY, "the group has too many sessions; close some")
	}
	if r := cmp.Or(m.mayBind(inc, standalone), m.healthy(inc.member, c.Checks)); r != nil {
		return r
	}
	s := &session{
		id: id, name: c.Name, ttl: c.Ttl, lockDelay: c.LockDelay,
		behavior: c.Behavior, checks: c.Checks, createIndex: m.index,
	}
	if standalone {
		if r := m.mayStandAlone(c); r != nil {
			return r
		}
		s.standalone, s.renewed = true, m.now
		m.standAlone(s)
	}
	m.sessions[id] = s
	m.byCreation.ReplaceOrInsert(s)
	m.belong(s, inc.member, inc.client)
	if !standalone {
		m.bind(inc, s)
		m.renewed(inc)
	}
	m.dirty.put(s.key(), s)
	return m.bound(s)
}

// bound replies that the session is bound to the caller, with what decides when it can
// end by time.
func (m *Machine) bound(s *session) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.LockDelay = s.lockDelay
	for _, name := range s.checks {
		c := m.members[s.member].checks[name]
		if c == nil {
			c = &check{name: name} // the built-in one
		}
		r.Checks = append(r.Checks, m.terms(c))
	}
	return r
}

// mayBind refuses a member or client that has too many sessions, unbound ones included. From
// level 6 on standalone ones count apart: a client of Consul's API that creates and forgets them
// must not use up those of the program.
func (m *Machine) mayBind(inc *incarnation, standalone bool) *wire.Reply {
	if inc.client {
		if m.clients[inc.member].sessions.Len >= MaxClientSessions {
			return m.refuse(wire.Code_BUSY, "the client has too many sessions; close some")
		}
		return nil
	}
	k := m.members[inc.member]
	n := k.sessions.Len
	switch {
	case m.hasBounds() && standalone:
		n = k.standalone
	case m.hasBounds():
		n -= k.standalone
	}
	switch {
	case n >= MaxSessions && standalone:
		return m.refuse(wire.Code_BUSY, "the member has too many sessions that no process is bound to; close some")
	case n >= MaxSessions:
		return m.refuse(wire.Code_BUSY, "the member has too many sessions; close some")
	}
	return nil
}

// belong assigns a session to a member, or to a client.
func (m *Machine) belong(s *session, member uint64, client bool) {
	s.member, s.client = member, client
	m.listed = true
	if client {
		m.clientOf(member).sessions.Push(s)
		return
	}
	k := m.members[member]
	k.sessions.Push(s)
	if s.standalone {
		k.standalone++
	}
	s.depends = make([]dependency, len(s.checks))
	for i, name := range s.checks {
		s.depends[i].session = s
		on := k.dependents[name]
		if on == nil {
			on = new(ordered.List[dependency, sessionsOfCheck])
			k.dependents[name] = on
		}
		on.Push(&s.depends[i])
	}
}

// leave undoes belong.
func (m *Machine) leave(s *session) {
	if s.client {
		m.clients[s.member].sessions.Remove(s)
		m.forgetClient(s.member)
		return
	}
	k := m.members[s.member]
	k.sessions.Remove(s)
	if s.standalone {
		k.standalone--
	}
	for i, name := range s.checks {
		on := k.dependents[name]
		if on.Remove(&s.depends[i]); on.Len == 0 {
			delete(k.dependents, name)
		}
	}
	s.depends = nil
}

// dependency is a check that a session depends on.
type dependency struct {
	session *session
	inCheck ordered.Link[dependency]
}

// attachSession binds an unbound session to the caller. Its holds remain, but are
// unclaimed: their handles ended with the earlier process, so the session's next
// acquisition of the same name claims them. It renews the process, whose deadline for
// the session counts from when it asked.
func (m *Machine) attachSession(inc *incarnation, c *wire.AttachSession) *wire.Reply {
	s, refusal := m.live(c.Id)
	switch {
	case s == nil:
		return refusal
	case s.ttl != 0:
		return m.refuse(wire.Code_INVALID, "only a session without a TTL can be attached")
	case s.standalone:
		return m.refuse(wire.Code_INVALID, "no process can attach the session: it was created to be bound to none")
	case s.incarnation == inc:
		m.renewed(inc)
		return m.bound(s)
	case s.incarnation != nil:
		return m.reply(wire.Code_SESSION_BOUND)
	}
	if r := m.mayDepend(inc, s.checks); r != nil {
		return r
	}
	if s.member != inc.member || s.client != inc.client { // else the member's count does not change
		if r := m.mayBind(inc, false); r != nil {
			return r
		}
	}
	if r := m.healthy(inc.member, s.checks); r != nil {
		return r
	}
	m.leave(s)
	m.belong(s, inc.member, inc.client)
	m.bind(inc, s)
	m.renewed(inc)
	s.attached = m.fence()
	m.dirty.put(s.key(), s)
	sharding{m}.attached(s)
	for l := range s.leads.All(&m.visits) { // it is at another member
		m.elect(l, l.leader().Value)
		m.leads(l)
	}
	return m.bound(s)
}

// claimable reports whether what the session holds under the fence is unclaimed: held
// since before the session was last attached. A claim grants a new fence, so attaching
// touches no hold.
func (s *session) claimable(fence uint64) bool { return fence <= s.attached }

// isBoundTo reports whether there is the session, and it is bound to the incarnation of the ticket.
func (s *session) isBoundTo(t wire.Ticket) bool {
	return s != nil && s.incarnation != nil && s.incarnation.id == t.Incarnation
}

// list is the list that a lock or an election of the session is in.
func (s *session) list(l *lock) *ordered.List[lock, holdsOfSession] {
	if l.isElection() {
		return &s.leads
	}
	return &s.holds
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
	why := fact.Forced
	if c.Graceful {
		why = fact.Closed
	}
	m.endSessions([]*session{s}, why, shortened{})
	return m.reply(wire.Code_OK)
}

// live returns the session, or the refusal of a command under it.
func (m *Machine) live(b []byte) (*session, *wire.Reply) {
	id, ok := wire.IDFrom(b)
	if !ok {
		return nil, m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes")
	}
	if s := m.sessions[id]; s != nil && !s.dead() {
		return s, nil
	}
	return nil, m.reply(wire.Code_SESSION_EXPIRED)
}

// bind binds a session to a process.
func (m *Machine) bind(inc *incarnation, s *session) {
	s.incarnation = inc
	c, ok := inc.classes.Get(&class{ttl: s.class()})
	if !ok {
		c = &class{ttl: s.class(), sessions: ordered.NewSharingTree(&m.visits, byCreation, m.freeSessions)}
		inc.classes.ReplaceOrInsert(c)
	}
	c.sessions.ReplaceOrInsert(s)
	inc.count++
	inc.timed += s.countTimed()
	m.deadlines.Fix(inc)
}

// unbind undoes bind, but for the session's pointer.
func (m *Machine) unbind(s *session) {
	inc := s.incarnation
	if inc.classes == nil {
		return
	}
	c, _ := inc.classes.Get(&class{ttl: s.class()})
	c.sessions.Delete(s)
	if c.sessions.Len() == 0 {
		inc.classes.Delete(c)
	}
	inc.count--
	inc.timed -= s.countTimed()
	m.deadlines.Fix(inc)
}

func (s *session) countTimed() int {
	if s.ttl == 0 {
		return 0
	}
	return 1
}

// process returns the incarnation that the session is bound to; zero: it is unbound.
func (s *session) process() (id wire.ID) {
	if s.incarnation != nil {
		id = s.incarnation.id
	}
	return id
}
