package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// place is a place in a queue.
type place struct {
	ticket  wire.Ticket
	permits int64
}

// queued: who waits is served in the order of the log, as soon as what he waits
// for is free, and nobody jumps the queue.
func (a *audit) queued(own wire.Ticket, c *wire.Command, outcomes []wire.Outcome) {
	for _, o := range outcomes {
		switch t, waits := a.awaited[o.Ticket]; {
		case o.More && !waits:
			a.joins(o.Ticket, c)
		case o.More: // said again
		case waits:
			a.served(t, o)
		case o.Ticket == own && o.Reply.GetCode() == wire.Code_OK && !a.answered[own]:
			a.grantedAtOnce(c)
		}
		a.answered[o.Ticket] = true
	}
	for t, queue := range a.queues { // order: each is looked at
		if len(queue) > 0 && a.couldHave(t, queue[0]) {
			a.w.fail("%v is free, and %d wait for it", t, len(queue))
		}
	}
}

func (a *audit) joins(ticket wire.Ticket, c *wire.Command) {
	t, p := thing{"lock", c.GetLock().GetName()}, place{ticket, 0}
	switch {
	case c.GetAcquire() != nil:
		t, p.permits = thing{"semaphore", c.GetAcquire().GetName()}, int64(c.GetAcquire().GetPermits())
	case c.GetLock().GetElection():
		t.kind = "election"
	}
	a.queues[t] = append(a.queues[t], p)
	a.awaited[ticket] = t
}

// served is the last word to somebody who waits.
func (a *audit) served(t thing, o wire.Outcome) {
	i := slices.IndexFunc(a.queues[t], func(p place) bool { return p.ticket == o.Ticket })
	if o.Reply.GetCode() == wire.Code_OK && i != 0 {
		a.w.fail("%v is granted to who is number %d in the queue", t, i+1)
	}
	a.queues[t] = slices.Delete(a.queues[t], i, i+1)
	delete(a.awaited, o.Ticket)
}

// grantedAtOnce: only the session that has left something may be served ahead of
// others, and such a session has no TTL.
func (a *audit) grantedAtOnce(c *wire.Command) {
	acquire := c.GetAcquire()
	if acquire == nil || len(a.queues[thing{"semaphore", acquire.GetName()}]) == 0 {
		return
	}
	if id, _ := wire.IDFrom(acquire.GetSession()); a.sessions[id].TTL != 0 {
		a.w.fail("%v is granted ahead of those who wait", acquire)
	}
}

// couldHave says that the head of a queue is waiting for nothing.
func (a *audit) couldHave(t thing, head place) bool {
	switch t.kind {
	case "semaphore":
		v, _ := semaphoreOf(a.m, t.name)
		return v.Available >= head.permits
	case "election":
		return leaderOf(a.m, t.name) == nil && a.delays[t] <= a.m.Now()
	}
	v := lockOf(a.m, t.name)
	return !v.Held && a.delays[t] <= a.m.Now()
}
