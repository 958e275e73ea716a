package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// maxPassed is how many later requests may be granted a name of a set that waits.
const maxPassed = 4

// setWaiter is a set that waits.
type setWaiter struct {
	wanted
	ticket   wire.Ticket
	session  wire.ID
	handle   uint64
	maxHold  int64
	arrival  uint64
	passed   int
	unsure   int  // grants that have passed over it unless they were claims, which the log does not show
	refuses  bool // it refuses deadlocks, so that its names are reserved only where that closes no cycle
	reserved bool // of one that refuses them: its names are
}

// reserves reports whether the names are, or may be, reserved for the set.
func (w *setWaiter) reserves() bool {
	if w.refuses {
		return w.reserved
	}
	return w.passed+w.unsure >= maxPassed
}

// heldSet is a set that is held: the numbers of its shares are those before its fence.
type heldSet struct {
	session wire.ID
	wanted
	fences    []uint64 // of the shared names
	unclaimed bool     // the session was attached since
}

// ids are those of the holds that the set consists of.
func (s heldSet) ids(fence uint64) (all []holdID) {
	for _, name := range s.names {
		all = append(all, holdID{fence, name})
	}
	for i := range s.shared {
		all = append(all, holdID{number: fence - uint64(len(s.shared)) + uint64(i)})
	}
	return all
}

// setOutcome handles an outcome of a LockSet, and reports whether it is one.
func (a *audit) setOutcome(own wire.Ticket, c *wire.Command, o fact.Outcome) bool {
	i := slices.IndexFunc(a.waitingSets, func(w *setWaiter) bool { return w.ticket == o.Ticket })
	first := o.Ticket == own && !a.answered[own] && c.GetLockSet() != nil
	switch granted := o.Reply.GetCode() == wire.Code_OK; {
	case i < 0 && !first:
		return false
	case i >= 0 && o.More: // a repeated outcome
	case i >= 0:
		w := a.waitingSets[i]
		a.waitingSets = slices.Delete(a.waitingSets, i, i+1)
		if granted {
			a.sim.sets.queued++
			a.setGranted(o, w)
		}
	default:
		session, _ := wire.IDFrom(c.GetLockSet().GetSession())
		w := &setWaiter{
			ticket: own, session: session, handle: c.GetLockSet().GetHandle(), maxHold: c.GetLockSet().GetMaxHold(), refuses: c.GetLockSet().GetRefuseDeadlock(),
			wanted: wanted{c.GetLockSet().GetNames(), c.GetLockSet().GetShared()},
		}
		if a.claimed(o, w) {
			break
		}
		if o.More {
			a.arrivals++
			w.arrival = a.arrivals
			a.waitingSets = append(a.waitingSets, w)
		} else if granted {
			a.sim.sets.atOnce++
			a.setGranted(o, w)
		}
	}
	return true
}

// setGranted: all names are granted at one index, with fences above all before.
func (a *audit) setGranted(o fact.Outcome, w *setWaiter) {
	fence := o.Reply.GetFence()
	a.beginSet(o, w)
	for _, id := range a.heldSets[fence].ids(fence) {
		a.fresh[id] = w.arrival
	}
	p := pass{arrival: w.arrival, session: w.session, by: fence}
	for _, name := range w.names {
		a.passOver(p, name, false)
	}
	for _, name := range w.shared {
		a.passOver(p, name, true)
	}
}

// beginSet notes a set that is held from now on.
func (a *audit) beginSet(o fact.Outcome, w *setWaiter) {
	fence, fences := o.Reply.GetFence(), o.Reply.GetSet().GetFences()
	s := heldSet{session: w.session, wanted: w.wanted, fences: fences}
	for _, id := range s.ids(fence) {
		if g, there := a.grants[id]; !there || g.session != w.session {
			a.sim.fail("a set is granted without %+v: %v; held are %v", id, o.Reply, a.grants)
		}
	}
	for i, name := range w.shared {
		if v := lockOf(a.m, name); v.Fence != fences[i] || v.Shared == 0 {
			a.sim.fail("a set has the fence %d of %s: %+v", fences[i], name, v)
		}
	}
	a.heldSets[fence] = s
}

// pass is a grant that may pass over waiting sets. A grant of a set counts once for each.
type pass struct {
	arrival uint64 // 0: it was not queued
	session wire.ID
	by      uint64
}

// lockGranted notes the grant of a single lock. A session without a TTL may claim what its earlier process has left.
func (a *audit) lockGranted(o fact.Outcome, name string, arrival uint64) {
	shared := o.Reply.GetShare() != 0
	id := holdID{number: o.Reply.GetFence()}
	if shared {
		id.number = o.Reply.GetShare()
	}
	if _, old := a.previous[id]; old {
		return
	}
	g := a.grants[id]
	for before, other := range a.previous { // order: none is found, or any
		_, goesOn := a.grants[before]
		if arrival == 0 && a.sessions[g.session].TTL == 0 && other.session == g.session && other.resource == g.resource && !goesOn {
			a.mayPassOver(name, shared)
			return
		}
	}
	a.fresh[id] = arrival
	a.passOver(pass{arrival: arrival, session: g.session, by: id.number}, name, shared)
}

// mayPassOver notes a grant that may be a claim.
func (a *audit) mayPassOver(name string, shared bool) {
	for _, w := range a.waitingSets {
		if w.conflicts(name, shared) {
			w.unsure++
		}
	}
}

// passOver: at most four later requests are granted a name of a set that waits.
func (a *audit) passOver(p pass, name string, shared bool) {
	for _, w := range a.waitingSets {
		_, alive := liveSession(a.m, w.session)
		older := p.arrival == 0 || w.arrival < p.arrival
		if !alive || !older || !w.conflicts(name, shared) || a.lastPass[w.ticket] == p.by {
			continue
		}
		a.lastPass[w.ticket] = p.by
		switch w.passed++; {
		case w.passed == 1:
			a.sim.sets.passed++
		case w.passed == maxPassed && !w.refuses:
			a.sim.sets.reserved++
		case w.passed >= maxPassed && !w.reserved && w.refuses:
			a.tasks.passedOver = append(a.tasks.passedOver, w)
		case w.passed > maxPassed:
			a.sim.fail("%s is granted with number %d to a request that passes over the set of %v and %v, as %d before", name, p.by, w.names, w.shared, w.passed-1)
		}
	}
}

// checkSets: a set is held as a whole or not at all, and one that waits cannot be granted, nor could it before a later request
// when a command released one lock. What ended sessions had is released in several steps, and the locks of a set are served one
// after the other.
func (a *audit) checkSets(c *wire.Command) {
	if c.GetUnlock() == nil {
		clear(a.fresh)
	}
	for fence, s := range a.heldSets { // order: each is checked
		ids := s.ids(fence)
		_, held := a.grants[ids[0]]
		for _, id := range ids {
			if g, there := a.grants[id]; there != held || there && g.session != s.session {
				a.sim.fail("of the set of %v and %v with fence %d, %+v is held %t, and %+v %t", s.names, s.shared, fence, ids[0], held, id, there)
			}
		}
		if held {
			continue
		}
		delete(a.heldSets, fence)
		a.unclaimedGone(s, fence)
		if _, alive := liveSession(a.m, s.session); !alive || a.endedHolds[setNumber(fence, len(s.names))] {
			a.sim.sets.lost++
		}
	}
	for _, w := range a.waitingSets {
		if _, alive := liveSession(a.m, w.session); alive && (a.isReady(w, nil) || a.isReady(w, a.fresh)) {
			a.sim.fail("the set of %v and %v waits, and all of its names are free, or were when a later request was granted one", w.names, w.shared)
		}
	}
}

// isReady reports whether all names are free for a set that waits, but for what fresh has of grants to later requests. Those to
// earlier ones were in its way.
func (a *audit) isReady(w *setWaiter, fresh map[holdID]uint64) bool {
	free := func(name string, shared bool) bool {
		r := resource{"lock", name}
		for id, g := range a.grants { // order: none is found, or any
			arrival, isFresh := fresh[id]
			earlier := isFresh && arrival != 0 && arrival < w.arrival
			if g.resource == r && (earlier || !isFresh && !(shared && g.shared)) {
				return false
			}
		}
		switch queue := a.queues[r]; {
		case a.delayedUntil[r] > a.m.Now(), !shared && a.sharedUntil[r] > a.m.Now():
			return false
		case len(queue) > 0 && queue[0].arrival < w.arrival:
			return false
		}
		return !a.isReserved(name, shared, w.arrival)
	}
	for _, name := range w.names {
		if !free(name, false) {
			return false
		}
	}
	for _, name := range w.shared {
		if !free(name, true) {
			return false
		}
	}
	return true
}

// isReserved reports whether a set that waits has a name reserved against a request that came after it.
func (a *audit) isReserved(name string, shared bool, arrival uint64) bool {
	return slices.ContainsFunc(a.waitingSets, func(w *setWaiter) bool {
		return w.reserves() && w.arrival < arrival && w.conflicts(name, shared)
	})
}

// waitsForSet reports whether a set waits for the lock.
func (a *audit) waitsForSet(name string) bool {
	return slices.ContainsFunc(a.waitingSets, func(w *setWaiter) bool { return w.conflicts(name, false) })
}
