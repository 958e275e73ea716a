package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// waiter is a place in a queue.
type waiter struct {
	ticket  wire.Ticket
	permits int64
}

// checkQueues: waiters are granted in log order, as soon as the resource is free,
// and no caller overtakes a waiter.
func (a *audit) checkQueues(own wire.Ticket, c *wire.Command, outcomes []wire.Outcome) {
	for _, o := range outcomes {
		switch t, waits := a.waiting[o.Ticket]; {
		case o.More && !waits:
			a.enqueue(o.Ticket, c)
		case o.More: // a repeated outcome
		case waits:
			a.dequeue(t, o)
		case o.Ticket == own && o.Reply.GetCode() == wire.Code_OK && !a.answered[own]:
			a.checkBarging(c)
		}
		a.answered[o.Ticket] = true
	}
	for t, queue := range a.queues { // order: each is checked
		if len(queue) > 0 && a.isFree(t, queue[0]) {
			a.sim.fail("%v is free while %d callers wait for it", t, len(queue))
		}
	}
}

func (a *audit) enqueue(ticket wire.Ticket, c *wire.Command) {
	t, p := resource{"lock", c.GetLock().GetName()}, waiter{ticket, 0}
	switch {
	case c.GetAcquire() != nil:
		t, p.permits = resource{"semaphore", c.GetAcquire().GetName()}, int64(c.GetAcquire().GetPermits())
	case c.GetLock().GetElection():
		t.kind = "election"
	}
	a.queues[t] = append(a.queues[t], p)
	a.waiting[ticket] = t
}

// dequeue handles a waiter's last outcome.
func (a *audit) dequeue(t resource, o wire.Outcome) {
	i := slices.IndexFunc(a.queues[t], func(p waiter) bool { return p.ticket == o.Ticket })
	if o.Reply.GetCode() == wire.Code_OK && i != 0 {
		a.sim.fail("%v is granted to the waiter at position %d of the queue", t, i+1)
	}
	a.queues[t] = slices.Delete(a.queues[t], i, i+1)
	delete(a.waiting, o.Ticket)
}

// checkBarging: only a session that claims its earlier process's acquisition may
// overtake waiters, and such a session has no TTL.
func (a *audit) checkBarging(c *wire.Command) {
	acquire := c.GetAcquire()
	if acquire == nil || len(a.queues[resource{"semaphore", acquire.GetName()}]) == 0 {
		return
	}
	if id, _ := wire.IDFrom(acquire.GetSession()); a.sessions[id].TTL != 0 {
		a.sim.fail("%v is granted ahead of the waiters", acquire)
	}
}

// isFree reports whether the head of the queue could be granted the resource.
func (a *audit) isFree(t resource, head waiter) bool {
	switch t.kind {
	case "semaphore":
		v, _ := a.m.Semaphore(t.name)
		return v.Available >= head.permits
	case "election":
		return a.m.Leader(t.name) == nil && a.delayedUntil[t] <= a.m.Now()
	}
	v, _ := a.m.Lock(t.name)
	return !v.Held && a.delayedUntil[t] <= a.m.Now()
}
