package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// waiter is a place in a queue.
type waiter struct {
	ticket  wire.Ticket
	session wire.ID
	permits int64
	shared  bool
	maxHold int64
	arrival uint64
}

// checkQueues: waiters are granted in log order, as soon as the resource is free,
// and no caller overtakes a waiter.
func (a *audit) checkQueues(own wire.Ticket, c *wire.Command, outcomes []fact.Outcome) {
	clear(a.fresh)
	a.request = a.requestOf(own, c, outcomes)
	a.jobs.command(own, c, outcomes)
	for _, o := range outcomes {
		a.tasks.outcome(own, c, o)
		switch r, waits := a.waiting[o.Ticket]; {
		case a.setOutcome(own, c, o), a.jobs.outcome(own, c, o):
		case o.More && !waits:
			a.enqueue(o.Ticket, c)
		case o.More: // a repeated outcome
		case waits:
			a.dequeue(r, o)
		case o.Ticket == own && o.Reply.GetCode() == wire.Code_OK && !a.answered[own]:
			a.checkBarging(c)
			if l := c.GetLock(); l != nil && !l.Election {
				a.lockGranted(o, l.Name, 0)
			}
		}
		a.answered[o.Ticket] = true
	}
	if a.sim.faults.tasks {
		a.tasks.check(outcomes)
	}
	a.checkClaims(own, c, outcomes)
	a.checkSets(c)
	a.jobs.check()
	for r, queue := range a.queues { // order: each is checked
		if len(queue) > 0 && a.isFree(r, queue[0]) && !(r.kind == "lock" && a.isReserved(r.name, queue[0].shared, queue[0].arrival)) {
			a.sim.fail("%v is free while %d callers wait for it", r, len(queue))
		}
	}
}

func (a *audit) enqueue(ticket wire.Ticket, c *wire.Command) {
	r, w := resource{"lock", c.GetLock().GetName()}, waiter{ticket: ticket, shared: c.GetLock().GetShared() && a.sharing(), maxHold: c.GetLock().GetMaxHold()}
	switch {
	case c.GetAcquire() != nil:
		r, w.permits = resource{"semaphore", c.GetAcquire().GetName()}, int64(c.GetAcquire().GetPermits())
		w.maxHold = c.GetAcquire().GetMaxHold()
	case c.GetLock().GetElection():
		r.kind = "election"
	}
	w.session, _ = wire.IDFrom(sessionOf(c))
	a.arrivals++
	w.arrival = a.arrivals
	a.queues[r] = append(a.queues[r], w)
	a.waiting[ticket] = r
}

// dequeue handles a waiter's last outcome.
func (a *audit) dequeue(r resource, o fact.Outcome) {
	i := slices.IndexFunc(a.queues[r], func(w waiter) bool { return w.ticket == o.Ticket })
	if o.Reply.GetCode() == wire.Code_OK && i != 0 {
		a.sim.fail("%v is granted to the waiter at position %d of the queue", r, i+1)
	}
	arrival := a.queues[r][i].arrival
	a.queues[r] = slices.Delete(a.queues[r], i, i+1)
	delete(a.waiting, o.Ticket)
	if o.Reply.GetCode() == wire.Code_OK && r.kind == "lock" {
		a.lockGranted(o, r.name, arrival)
	}
}

// checkBarging: only a session that claims its earlier process's acquisition may
// overtake waiters, and such a session has no TTL.
func (a *audit) checkBarging(c *wire.Command) {
	if c.GetLock() != nil {
		a.checkSharing(c.GetLock())
		return
	}
	acquire := c.GetAcquire()
	if acquire == nil || len(a.queues[resource{"semaphore", acquire.GetName()}]) == 0 {
		return
	}
	if id, _ := wire.IDFrom(acquire.GetSession()); a.sessions[id].TTL != 0 {
		a.sim.fail("%v is granted ahead of the waiters", acquire)
	}
}

// isFree reports whether the head of the queue could be granted the resource.
func (a *audit) isFree(r resource, head waiter) bool {
	switch r.kind {
	case "semaphore":
		v, _ := semaphoreOf(a.m, r.name)
		return v.Available >= head.permits
	case "election":
		return leaderOf(a.m, r.name) == nil && a.delayedUntil[r] <= a.m.Now()
	}
	v := lockOf(a.m, r.name)
	if head.shared {
		return (!v.Held || v.Shared > 0) && a.delayedUntil[r] <= a.m.Now()
	}
	return !v.Held && v.Shared == 0 && max(a.delayedUntil[r], a.sharedUntil[r]) <= a.m.Now()
}

// sharing reports whether the group is at the level of shared holds: below it, a request for one is exclusive.
func (a *audit) sharing() bool {
	level, _ := a.m.Level()
	return level >= wire.LevelShared
}

// checkSharing: no request for a lock overtakes an exclusive one that waits, nor an exclusive request any, unless its
// owner holds the lock, or a session without a TTL claims what its earlier process has left.
func (a *audit) checkSharing(c *wire.Lock) {
	if c.Election || c.Fence != 0 || c.Share != 0 {
		return
	}
	shared := c.Shared && a.sharing()
	overtaken := slices.ContainsFunc(a.queues[resource{"lock", c.Name}], func(w waiter) bool { return !shared || !w.shared })
	if id, _ := wire.IDFrom(c.GetSession()); overtaken && a.sessions[id].TTL != 0 {
		a.sim.fail("%v is granted ahead of the waiters", c)
	}
}
