package sim

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// checkEnds: a hold with MaxHold ends by group time that long after its grant or its last Extend, with the lock-delay of its
// session, which lives on with all else that it has. While time alone passes, nothing else of a session is lost.
func (a *audit) checkEnds(p part, outcomes []fact.Outcome) {
	current, numbers := make(map[holdID]grant), make(map[uint64]bool)
	for hold, g := range a.holds {
		current[hold], numbers[hold.number] = g, true
	}
	for _, hold := range slices.SortedFunc(maps.Keys(a.grants), holdID.compare) {
		if _, goesOn := current[hold]; !goesOn {
			a.holdGone(p, hold)
		}
	}
	for _, o := range outcomes {
		a.noteEnd(p, o, numbers)
	}
	for hold := range a.grants { // order: each is looked at
		if _, goesOn := current[hold]; !goesOn {
			delete(a.ends, hold.number)
		}
	}
	for number, ends := range a.ends { // order: each is checked
		if ends <= a.m.Now() {
			a.sim.fail("the hold with number %d is held at %d, and was to end at %d", number, a.m.Now(), ends)
		}
	}
	a.checkEndsShown()
}

func (a *audit) holdGone(p part, hold holdID) {
	g, number, now := a.grants[hold], hold.number, a.m.Now()
	ends, bounded := a.ends[number]
	before := a.sessions[g.session]
	_, alive := liveSession(a.m, g.session)
	switch {
	case bounded && ends <= now:
	case p.command == nil && alive:
		a.sim.fail("%v with number %d is lost at %d, while its session lives; it was to end at %d", g, number, now, ends)
		return
	default:
		return // by a command, or with its session
	}
	if a.endedHolds[number] && hold.part != "" { // another name of the set
		alive = false
	}
	if a.endedHolds[number] = true; alive {
		a.sim.checkEnded(g, number)
	}
	switch until := now + before.LockDelay; {
	case before.LockDelay == 0:
	case g.kind == "semaphore" && alive:
		a.delayedSlots = append(a.delayedSlots, delayedSlot{g.name, g.permits, g.numbers, until})
	case g.kind == "semaphore": // sessionEnded has noted it
	case g.shared:
		a.sharedUntil[g.resource] = max(a.sharedUntil[g.resource], until)
	default:
		a.delayedUntil[g.resource] = max(a.delayedUntil[g.resource], until)
	}
}

// noteEnd notes until when a hold lasts that an outcome grants, or whose end it moves.
func (a *audit) noteEnd(p part, o fact.Outcome, numbers map[uint64]bool) {
	r, own := o.Reply, o.Ticket == p.ticket && !a.answered[p.ticket]
	if o.More || r.GetCode() != wire.Code_OK {
		return
	}
	number := r.GetFence()
	if r.GetShare() != 0 {
		number = r.GetShare()
	}
	maxHold := int64(0)
	switch w, waits := a.waiterOf(o.Ticket); {
	case waits:
		maxHold = w.maxHold
	case a.setEnd(p, o, own, numbers), !own:
		return
	case p.command.GetLock() != nil:
		maxHold = p.command.GetLock().MaxHold
	case p.command.GetAcquire() != nil:
		maxHold = p.command.GetAcquire().MaxHold
	case p.command.GetDowngrade() != nil:
		if ends, bounded := a.ends[p.command.GetDowngrade().Fence]; bounded {
			a.ends[number] = ends
		}
		return
	case p.command.GetExtend() != nil:
		a.extended(p.command.GetExtend(), r, number)
		return
	}
	_, old := a.grants[holdID{number: number}]
	if maxHold != 0 && numbers[number] && !old {
		a.ends[number] = a.m.Now() + maxHold
		a.requested[o.Ticket] = number
	}
}

// setEnd is noteEnd for a set, all of whose holds end at one time, and reports whether the outcome is of one.
func (a *audit) setEnd(p part, o fact.Outcome, own bool, numbers map[uint64]bool) bool {
	w, r := &setWaiter{}, o.Reply
	switch i := slices.IndexFunc(a.waitingSets, func(w *setWaiter) bool { return w.ticket == o.Ticket }); {
	case i >= 0:
		w = a.waitingSets[i]
	case own && p.command.GetLockSet() != nil:
		c := p.command.GetLockSet()
		w.names, w.shared, w.maxHold = c.GetNames(), c.GetShared(), c.GetMaxHold()
	case own && p.command.GetExtend().GetSet():
		s := a.heldSets[r.GetFence()]
		number := setNumber(r.GetFence(), len(s.names))
		a.extended(p.command.GetExtend(), r, number)
		for _, id := range s.ids(r.GetFence()) {
			a.ends[id.number] = a.ends[number]
		}
		return true
	default:
		return false
	}
	for _, id := range (heldSet{wanted: w.wanted}).ids(r.GetFence()) {
		if w.maxHold != 0 && numbers[id.number] {
			a.ends[id.number] = a.m.Now() + w.maxHold
		}
	}
	a.requested[o.Ticket] = setNumber(r.GetFence(), len(w.names))
	return true
}

func (a *audit) extended(c *wire.Extend, r *wire.Reply, number uint64) {
	before, bounded := a.ends[number]
	after := a.m.Now() + c.MaxHold
	if !bounded || r.GetAllowed() != c.MaxHold || r.GetNow() != a.m.Now() {
		a.sim.fail("at %d %v is answered with %v, of a hold that was to end at %d", a.m.Now(), c, r, before)
	}
	if a.ends[number] = after; after > before {
		a.sim.ends.later++
	} else {
		a.sim.ends.earlier++
	}
}

// checkEndsShown: a listing states when a hold ends.
func (a *audit) checkEndsShown() {
	check := func(name string, number uint64, shown int64) {
		want := int64(0)
		if ends, bounded := a.ends[number]; bounded {
			want = ends - a.m.Now()
		}
		if shown != want {
			a.sim.fail("%s is shown to end in %d, for the hold with number %d that ends in %d", name, shown, number, want)
		}
	}
	for _, v := range locksOf(a.m) {
		for _, sh := range v.Holders {
			check(v.Name, sh.Number, sh.EndsIn)
		}
		if v.Held && v.Shared == 0 {
			check(v.Name, v.Fence, v.EndsIn)
		}
	}
	for _, name := range semaphores {
		v, _ := semaphoreOf(a.m, name)
		for _, p := range v.Holders {
			check(name, p.Fence, p.EndsIn)
		}
	}
}

// grantEnded reports whether the hold that a request was granted has ended by its MaxHold.
func (a *audit) grantEnded(t wire.Ticket) bool { return a.endedHolds[a.requested[t]] }

func (a *audit) waiterOf(t wire.Ticket) (waiter, bool) {
	queue := a.queues[a.waiting[t]]
	i := slices.IndexFunc(queue, func(w waiter) bool { return w.ticket == t })
	if i < 0 {
		return waiter{}, false
	}
	return queue[i], true
}
