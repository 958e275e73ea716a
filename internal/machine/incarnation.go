package machine

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// incarnation is one registered start of a member's process, or of a client. It owns
// sessions and submits commands.
type incarnation struct {
	id      wire.ID
	member  uint64
	client  bool // the member is a client
	ttl     int64
	until   int64 // of a client: see RegisterClient
	renewed int64 // group time of the last renewal
	window  window
	barred  uint64                // see bar; 0: none
	classes *btree.BTreeG[*class] // of its sessions, by TTL; nil: it ends or has ended
	timed   int                   // of the sessions: those with a TTL
	gone    bool                  // ended: see Machine.gone
	at      int                   // position in deadlines
	count   int                   // of sessions
	touched int32                 // position of its last ticket in dirty, perhaps of an earlier entry
	acquisitions
}

// member is what is kept of a member forever, so that a copied or rolled-back
// directory cannot register.
type member struct {
	id          uint64
	boot        uint64
	attempt     uint32
	incarnation wire.ID // the last
	silent      bool    // declared dead by the failure detector
	crashed     bool    // see reportProcess
	removed     bool    // from the group
	token       wire.ID // of the last registration
	public      string  // key; empty: none was presented
	level       uint32  // the highest feature level of the last process
	name        string
	advertise   string
	ephemeral   bool  // it has no directory
	since       int64 // group time: of the admission until it registers; of silence
	checks      map[string]*check
	sessions    ordered.List[session, sessionsOfMember]               // of all its processes
	standalone  int                                                   // of the sessions
	forClients  int                                                   // of the checks
	dependents  map[string]*ordered.List[dependency, sessionsOfCheck] // by the check
}

// deadline returns when the incarnation's first session expires or, if none has a
// TTL, the incarnation itself.
func (inc *incarnation) deadline() int64 {
	if c, ok := inc.classes.Min(); ok && c.ttl != never {
		return after(inc.renewed, c.ttl)
	}
	return after(inc.renewed, inc.ttl)
}

// byDeadline orders incarnations.
func byDeadline(a, b *incarnation) int {
	return cmp.Or(cmp.Compare(a.deadline(), b.deadline()), bytes.Compare(a.id[:], b.id[:]))
}

func (m *Machine) incarnation(id wire.ID) *incarnation { return m.registry.byID[id] }

// process returns the incarnation of the member's last process; nil: it is not registered.
func (m *Machine) process(k *member) *incarnation {
	inc := m.incarnation(k.incarnation)
	if inc == nil || inc.client { // by now a client's of that ID
		return nil
	}
	return inc
}

func newMember(id uint64) *member {
	return &member{id: id, checks: make(map[string]*check), dependents: make(map[string]*ordered.List[dependency, sessionsOfCheck])}
}

func (m *Machine) addMember(k *member) {
	m.members[k.id] = k
	k.listBuiltIn(m)
}

// insert adds an incarnation.
func (m *Machine) insert(inc *incarnation) {
	inc.acquisitions = m.newAcquisitions()
	inc.classes = ordered.NewSharingTree(&m.visits, func(a, b *class) int { return cmp.Compare(a.ttl, b.ttl) }, m.registry.freeClasses)
	m.registry.add(inc)
	if inc.client {
		m.clientOf(inc.member).incarnation = inc
	}
	m.deadlines.Push(inc)
}

// renewed renews the incarnation and all its sessions in O(1).
func (m *Machine) renewed(inc *incarnation) {
	inc.renewed = m.now
	m.deadlines.Fix(inc)
	m.dirty.put(inc.key(), inc)
}

// drop ends an incarnation with its sessions, except those without a TTL, which
// become unbound; its queue places and stored outcomes. Queue places that
// would outlive it go first: nothing may be granted to a process that ends in the
// same entry.
func (m *Machine) drop(inc *incarnation, why fact.Cause) {
	m.dirty.expect(inc.count + inc.waiters.Len() + inc.waitingSets.Len())
	m.ended = slices.Grow(m.ended, inc.count)
	var shortened shortened
	m.dropPlaces(inc, &shortened)
	var ending, unbound []*session
	inc.classes.Ascend(func(c *class) bool {
		c.sessions.Ascend(func(s *session) bool {
			if c.ttl == never {
				unbound = append(unbound, s)
			} else {
				ending = append(ending, s)
			}
			return true
		})
		return true
	})
	m.deadlines.Remove(inc)
	inc.classes = nil // all at once: see unbind
	slices.SortFunc(ending, byCreation)
	m.endSessions(ending, why, shortened)
	for _, s := range unbound {
		s.incarnation = nil
		m.ended = append(m.ended, fact.Ended{Incarnation: inc.id, Session: s.id, Unbound: true, Outcomes: len(m.outcomes)})
		m.dirty.put(s.key(), s)
		sharding{m}.unbound(s)
	}
	m.raiseFloor(inc, math.MaxUint64)
	m.dirty.rememberTickets(inc)
	inc.window = window{}
	m.registry.remove(inc)
	if inc.client {
		m.endClient(inc)
	}
	if inc.gone = true; !inc.idle() {
		m.gone[inc.id] = inc
	}
	m.dirty.drop(inc.key())
}

// dropPlaces removes the incarnation's queue places, except those under sessions of
// its own with a TTL, which end with it.
func (m *Machine) dropPlaces(inc *incarnation, shortened *shortened) {
	var places []request
	outlives := func(s *session) bool { return !s.dead() && (s.incarnation != inc || s.ttl == 0) }
	inc.waiters.Ascend(func(w *waiter) bool {
		if outlives(w.session) {
			places = append(places, request{waiter: w})
		}
		return true
	})
	inc.waitingSets.Ascend(func(s *set) bool {
		if outlives(s.session) {
			places = append(places, request{set: s})
		}
		return true
	})
	slices.SortFunc(places, func(a, b request) int { return cmp.Compare(a.position(), b.position()) })
	for _, p := range places {
		if w := p.waiter; w != nil {
			m.dequeue(w)
			m.settle(w.ticket, m.reply(wire.Code_WITHDRAWN))
			shortened.by(w)
			continue
		}
		for _, part := range (setting{m}).dismissed(p.set, wire.Code_WITHDRAWN) {
			shortened.add(part.lock)
		}
	}
}
