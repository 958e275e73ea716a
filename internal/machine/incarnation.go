package machine

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// incarnation is one registered start of a member's process. It owns sessions and
// submits commands.
type incarnation struct {
	id      wire.ID
	member  uint64
	ttl     int64
	renewed int64 // group time of the last renewal
	window  window
	classes []*class // of its sessions, by TTL
	count   int      // of sessions
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
	removed     bool    // from the group
	checks      map[string]*check
	sessions    list[session, sessionsOfMember] // of all its processes
}

// deadline returns when the incarnation's first session expires or, if none has a
// TTL, the incarnation itself.
func (inc *incarnation) deadline() int64 {
	if len(inc.classes) > 0 && inc.classes[0].ttl != never {
		return after(inc.renewed, inc.classes[0].ttl)
	}
	return after(inc.renewed, inc.ttl)
}

func (m *Machine) incarnation(id wire.ID) *incarnation {
	if i, ok := m.search(id); ok {
		return m.incarnations[i]
	}
	return nil
}

func (m *Machine) search(id wire.ID) (int, bool) {
	return slices.BinarySearchFunc(m.incarnations, id, func(inc *incarnation, id wire.ID) int {
		return bytes.Compare(inc.id[:], id[:])
	})
}

// register registers an incarnation in place of the member's previous one.
func (m *Machine) register(id wire.ID, floor uint64, c *wire.Register) *wire.Reply {
	if r := m.checkTTL(c.Ttl); r != nil {
		return r
	}
	if c.Member == 0 || id.IsZero() {
		return m.refuse(wire.Code_INVALID, "invalid registration: the member or the incarnation is zero")
	}
	if inc := m.incarnation(id); inc != nil {
		if inc.member != c.Member {
			return m.refuse(wire.Code_INVALID, "the incarnation belongs to another member; draw a new one")
		}
		return m.reply(wire.Code_OK)
	}
	known := m.members[c.Member]
	if known != nil && known.removed {
		return m.refuse(wire.Code_REMOVED, "the member has been removed from the group")
	}
	if known != nil && known.incarnation == id {
		// Registered once and expired. It must not return: without its window,
		// late duplicates of its commands would be applied again.
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the registration has expired; draw a new incarnation")
	}
	if known != nil && !known.precedes(c) {
		return m.refuse(wire.Code_STALE_BOOT, "the member has registered with this boot and attempt or later ones")
	}
	if known != nil {
		if old := m.incarnation(known.incarnation); old != nil {
			m.drop(old, invalidated)
		}
	}
	if len(m.incarnations) >= MaxIncarnations {
		return m.refuse(wire.Code_BUSY, "too many incarnations are registered; wait until some expire")
	}
	inc := &incarnation{id: id, member: c.Member, ttl: c.Ttl, window: window{floor: floor}}
	m.insert(inc)
	m.renewed(inc)
	m.remember(c, id)
	return m.reply(wire.Code_OK)
}

// precedes reports whether c is later than the last registration.
func (k *member) precedes(c *wire.Register) bool {
	return cmp.Or(cmp.Compare(c.Boot, k.boot), cmp.Compare(c.Attempt, k.attempt)) > 0
}

// remember records the member's latest registration, which also proves that it is
// alive, whatever the failure detector reported of an earlier start.
func (m *Machine) remember(c *wire.Register, id wire.ID) {
	k := m.members[c.Member]
	if k == nil {
		k = newMember(c.Member)
		m.addMember(k)
	}
	k.boot, k.attempt, k.incarnation, k.silent = c.Boot, c.Attempt, id, false
	m.dirty.put(k.key(), k)
}

func newMember(id uint64) *member {
	return &member{id: id, checks: make(map[string]*check)}
}

func (m *Machine) addMember(k *member) {
	m.members[k.id] = k
	m.checks.ReplaceOrInsert(k.builtIn())
}

// insert adds an incarnation in the order of IDs.
func (m *Machine) insert(inc *incarnation) {
	inc.acquisitions = newAcquisitions()
	i, _ := m.search(inc.id)
	m.incarnations = slices.Insert(m.incarnations, i, inc)
}

// renewed renews the incarnation and all its sessions in O(1).
func (m *Machine) renewed(inc *incarnation) {
	inc.renewed = m.now
	m.dirty.put(inc.key(), inc)
}

// drop ends an incarnation with its sessions, except those without a TTL, which
// become unbound; its queue places, tickets and stored outcomes. Queue places that
// would outlive it go first: nothing may be granted to a process that ends in the
// same entry.
func (m *Machine) drop(inc *incarnation, how ending) {
	shortened := m.dropPlaces(inc)
	var ending, unbound []*session
	for _, c := range inc.classes {
		if c.ttl == never {
			unbound = c.sessions.appendTo(unbound)
		} else {
			ending = c.sessions.appendTo(ending)
		}
	}
	slices.SortFunc(ending, byCreation)
	m.endSessions(ending, how, shortened)
	slices.SortFunc(unbound, byCreation)
	for _, s := range unbound {
		inc.unbind(s)
		s.incarnation = nil
		m.ended = append(m.ended, wire.Ended{Incarnation: inc.id, Session: s.id, Unbound: true})
		m.dirty.put(s.key(), s)
	}
	m.endTickets(inc)
	m.raiseFloor(inc, math.MaxUint64)
	i, _ := m.search(inc.id)
	m.incarnations = slices.Delete(m.incarnations, i, i+1)
	m.dirty.drop(inc.key())
}

// dropPlaces removes the incarnation's queue places, except those under sessions of
// its own with a TTL, which end with it.
func (m *Machine) dropPlaces(inc *incarnation) (shortened shortened) {
	for _, w := range byPosition(inc.waiters) {
		if w.session.incarnation == inc && w.session.ttl != 0 {
			continue
		}
		m.dequeue(w)
		m.settle(w, m.reply(wire.Code_WITHDRAWN))
		shortened.by(w)
	}
	return shortened
}
