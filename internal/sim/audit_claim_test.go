package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// claims counts what became of sets that a process left in a session which another one attached.
type claims struct {
	sets, shared     int // claimed; of these, those with shared names
	excluded, single int // released by a request for other names or modes; of these, by one for a lock alone
	beside           int // requests that were granted other sets while one remained unclaimed
	ended, expired   int // that ended unclaimed with their session, and by MaxHold
	foreign          int // commands that named one that was not claimed
}

func (c *claims) add(o claims) {
	c.sets += o.sets
	c.shared += o.shared
	c.excluded += o.excluded
	c.single += o.single
	c.beside += o.beside
	c.ended += o.ended
	c.expired += o.expired
	c.foreign += o.foreign
}

// occurred reports whether there was some of each.
func (c claims) occurred() bool {
	return c.sets > 0 && c.shared > 0 && c.excluded > 0 && c.single > 0 && c.beside > 0 && c.ended > 0 && c.expired > 0 && c.foreign > 0
}

// request is a command that asks for locks, and was carried out: granted, queued, or refused for what others have.
type request struct {
	wanted
	session wire.ID
	ofSet   bool
	first   bool // not a repeated command
	done    bool // else there is none
	granted bool // at once
	claims  bool // it has claimed a set
}

// requestOf returns what a command has asked for.
func (a *audit) requestOf(own wire.Ticket, c *wire.Command, outcomes []fact.Outcome) (r request) {
	r.wanted, r.ofSet = wantedBy(c)
	if r.first = !a.answered[own]; !r.first || len(r.names)+len(r.shared) == 0 {
		return r
	}
	r.session, _ = wire.IDFrom(sessionOf(c))
	for _, o := range outcomes {
		if o.Ticket == own {
			switch o.Reply.GetCode() {
			case wire.Code_OK, wire.Code_QUEUED, wire.Code_LOCKED, wire.Code_LOCK_DELAY:
				r.done, r.granted = true, o.Reply.GetCode() == wire.Code_OK
			}
		}
	}
	return r
}

// claimed handles the first outcome of a request for what its session was left, and reports whether it is one. The request is
// granted at once, whatever waits: with a new fence, but the phases of the shared names go on, and nothing else ends or begins.
func (a *audit) claimed(o fact.Outcome, w *setWaiter) bool {
	left := uint64(0)
	for fence, s := range a.heldSets { // order: the oldest is found
		if s.unclaimed && s.session == w.session && s.equal(w.wanted) && (left == 0 || fence < left) {
			left = fence
		}
	}
	if left == 0 || !a.request.done {
		return false
	}
	if o.Reply.GetCode() != wire.Code_OK {
		a.sim.fail("the session has the set of %v and %v with fence %d, which no process has claimed, and a request for it is answered with %v", w.names, w.shared, left, o.Reply)
	}
	old := a.heldSets[left]
	for _, id := range old.ids(left) {
		if _, there := a.grants[id]; there {
			a.sim.fail("the set of %v and %v with fence %d is claimed with fence %d, and %+v is still held", w.names, w.shared, left, o.Reply.GetFence(), id)
		}
	}
	if !slices.Equal(o.Reply.GetSet().GetFences(), old.fences) {
		a.sim.fail("the set of %v and %v with the fences %v of shared names is claimed: %v", w.names, w.shared, old.fences, o.Reply)
	}
	delete(a.heldSets, left)
	a.beginSet(o, w)
	a.request.claims = true
	a.sim.claims.sets++
	a.sim.claims.shared += btoi(len(w.shared) > 0)
	a.sim.trace("the set of %v and %v with fence %d is claimed with fence %d", w.names, w.shared, left, o.Reply.GetFence())
	return true
}

// checkClaims: what a session was left remains until it is claimed or in the way of a request of the session, whose outcome
// depends on what others have alone. No command names it.
func (a *audit) checkClaims(own wire.Ticket, c *wire.Command, outcomes []fact.Outcome) {
	for _, o := range outcomes {
		switch {
		case o.Ticket == own && a.request.first:
			a.checkNamed(c, o.Reply)
		case a.request.claims && o.Reply.GetCode() == wire.Code_OK:
			a.sim.fail("a claim of the set of %v and %v lets another request be granted: %v", a.request.names, a.request.shared, o.Reply)
		}
	}
	switch {
	case a.request.claims || !a.request.done:
		return
	case a.request.ofSet && a.request.granted:
		a.checkSetBarging()
	}
	for fence, s := range a.heldSets { // order: each is checked
		if !s.unclaimed || s.session != a.request.session {
			continue
		}
		_, held := a.grants[s.ids(fence)[0]]
		if held && a.request.conflictsWith(s.wanted) {
			a.sim.fail("the set of %v and %v with fence %d is unclaimed, and in the way of a request of its session for %v and %v", s.names, s.shared, fence, a.request.names, a.request.shared)
		}
		a.sim.claims.beside += btoi(held && a.request.granted)
	}
}

// checkSetBarging: no request for a set overtakes a waiter for one of its names, unless it claims what its session was left.
func (a *audit) checkSetBarging() {
	for _, name := range slices.Concat(a.request.names, a.request.shared) {
		if len(a.queues[resource{"lock", name}]) > 0 {
			a.sim.fail("the set of %v and %v is granted ahead of the waiters for %s", a.request.names, a.request.shared, name)
		}
	}
}

// checkNamed handles the first outcome of a command that names a set, and that of one that attaches a session.
func (a *audit) checkNamed(c *wire.Command, r *wire.Reply) {
	fence := c.GetUnlockSet().GetFence()
	if c.GetExtend().GetSet() {
		fence = c.GetExtend().GetFence()
	}
	switch s := a.heldSets[fence]; {
	case s.unclaimed && r.GetCode() == wire.Code_OK:
		a.sim.fail("%v names the set of %v and %v, which no process has claimed: %v", c, s.names, s.shared, r)
	case s.unclaimed:
		a.sim.claims.foreign++
	}
	id, _ := wire.IDFrom(c.GetAttachSession().GetId())
	if c.GetAttachSession() == nil || r.GetCode() != wire.Code_OK || !a.sessions[id].Incarnation.IsZero() {
		return
	}
	for fence, s := range a.heldSets { // order: each is marked
		if s.session == id {
			s.unclaimed = true
			a.heldSets[fence] = s
			a.sim.trace("the set of %v and %v with fence %d is left to be claimed", s.names, s.shared, fence)
		}
	}
}

// unclaimedGone handles that a set is not held any more.
func (a *audit) unclaimedGone(s heldSet, fence uint64) {
	if !s.unclaimed {
		return
	}
	_, alive := liveSession(a.m, s.session)
	switch r := a.request; {
	case a.endedHolds[setNumber(fence, len(s.names))]:
		a.sim.claims.expired++
	case !alive:
		a.sim.claims.ended++
	case !r.done || r.session != s.session || !r.conflictsWith(s.wanted):
		a.sim.fail("the set of %v and %v with fence %d is lost, which no process has claimed", s.names, s.shared, fence)
	default:
		a.sim.claims.excluded++
		a.sim.claims.single += btoi(!r.ofSet)
	}
}
