package sim

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// taskAudit checks that tasks which refuse deadlocks never wait in a cycle, and that no request is refused without one. Its graph
// is made of what the audit knows: which session holds what, the queues, and the sets that wait.
type taskAudit struct {
	*audit
	passedOver []*setWaiter // by the last command, once more than the first times
}

// lockWait is a name that a session waits for, alone or with others.
type lockWait struct {
	session wire.ID
	name    string
	shared  bool
	ofSet   bool
	arrival uint64
}

// waits returns what tasks wait for, in the order of arrival.
func (a *taskAudit) waits() (all []lockWait) {
	for _, name := range taskNames {
		for _, w := range a.queues[resource{"lock", name}] {
			all = append(all, lockWait{w.session, name, w.shared, false, w.arrival})
		}
	}
	for _, w := range a.waitingSets {
		all = append(all, w.waits()...)
	}
	all = slices.DeleteFunc(all, func(w lockWait) bool {
		_, alive := liveSession(a.m, w.session)
		return !alive || !slices.Contains(taskNames, w.name) // other sessions do many things at a time
	})
	slices.SortStableFunc(all, func(x, y lockWait) int { return cmp.Compare(x.arrival, y.arrival) })
	return all
}

func (w *setWaiter) waits() (all []lockWait) {
	for _, name := range w.names {
		all = append(all, lockWait{w.session, name, false, true, w.arrival})
	}
	for _, name := range w.shared {
		all = append(all, lockWait{w.session, name, true, true, w.arrival})
	}
	return all
}

// blockers returns the sessions for which one waits: those that hold the lock, those with a request before it in the queue, those of
// sets for which it is reserved, and all for which these wait because of the same lock.
func (a *taskAudit) blockers(w lockWait, all []lockWait) []wire.ID {
	var by []wire.ID
	behind := false
	for _, before := range all {
		if before.name != w.name || before.arrival >= w.arrival {
			continue
		}
		inQueue := !before.ofSet && (w.ofSet || !w.shared || !before.shared)
		if inQueue || before.ofSet && !(w.shared && before.shared) && a.isReservedFor(before) {
			behind = true
			by = append(append(by, before.session), a.blockers(before, all)...)
		}
	}
	for _, g := range a.grants { // order: the result is a set
		if g.resource == (resource{"lock", w.name}) && !(w.shared && g.shared && !behind) {
			by = append(by, g.session)
		}
	}
	return by
}

func (a *taskAudit) isReservedFor(w lockWait) bool {
	return slices.ContainsFunc(a.waitingSets, func(s *setWaiter) bool { return s.arrival == w.arrival && s.reserves() })
}

// reaches reports whether a session waits for another one, or for one that does, and so on.
func (a *taskAudit) reaches(from, to wire.ID, all []lockWait) bool {
	seen, next := map[wire.ID]bool{}, []wire.ID{from}
	for ; len(next) > 0; next = next[1:] {
		for _, w := range all {
			if w.session != next[0] {
				continue
			}
			for _, id := range a.blockers(w, all) {
				switch {
				case id == w.session || seen[id]:
				case id == to:
					return true
				default:
					seen[id] = true
					next = append(next, id)
				}
			}
		}
	}
	return false
}

// outcome checks the refusal of a request that would have closed a cycle.
func (a *taskAudit) outcome(own wire.Ticket, c *wire.Command, o fact.Outcome) {
	if o.Reply.GetCode() == wire.Code_DEADLOCK && o.Ticket == own && !a.answered[own] {
		a.checkRefusal(c, o.Reply)
	}
}

// checkRefusal: the listed cycle exists. Nothing has changed since the request was refused.
func (a *taskAudit) checkRefusal(c *wire.Command, r *wire.Reply) {
	all := a.waits()
	all = append(all, wanting(c, a.arrivals+1)...)
	own, _ := wire.IDFrom(sessionOf(c))
	at := own
	cycle := machine.Cycle(r)
	for i, step := range cycle {
		waits := slices.ContainsFunc(all, func(w lockWait) bool {
			return w.session == at && w.name == step.Name && slices.Contains(a.blockers(w, all), step.Holder.Session)
		})
		if !waits || step.Waiter.Session != at {
			a.sim.fail("%v is refused, and step %d of the cycle is wrong: %v; the requests are %v, the holds %v", c, i+1, cycle, all, a.grants)
		}
		at = step.Holder.Session
	}
	if len(cycle) == 0 || int(r.GetCycle().GetLength()) != len(cycle) || at != own {
		a.sim.fail("%v is refused for what is no cycle: %v", c, r)
	}
	a.sim.tasks.refused++
	a.sim.tasks.longest = max(a.sim.tasks.longest, len(cycle))
}

// wanting is what a request waits for if it is queued at that position.
func wanting(c *wire.Command, arrival uint64) []lockWait {
	session, _ := wire.IDFrom(sessionOf(c))
	if l := c.GetLock(); l != nil {
		return []lockWait{{session, l.Name, l.Shared, false, arrival}}
	}
	w := setWaiter{session: session, wanted: wanted{c.GetLockSet().GetNames(), c.GetLockSet().GetShared()}, arrival: arrival}
	return w.waits()
}

// check: no sessions wait for each other. That names are reserved for a set the machine says; they stay so, and are not reserved only
// where that would close a cycle, which is known where one request alone was granted.
func (a *taskAudit) check(outcomes []fact.Outcome) {
	for _, w := range a.waitingSets {
		if now := a.isReservedInMachine(w); w.refuses && now != w.reserved {
			if w.reserved || w.passed+w.unsure < maxPassed {
				a.sim.fail("the names of the set of %v and %v are reserved %t, after %d grants have passed over it", w.names, w.shared, now, w.passed)
			}
			w.reserved = now
			a.sim.tasks.reserved++
		}
	}
	all := a.waits()
	for _, w := range all {
		if a.reaches(w.session, w.session, all) {
			a.sim.fail("sessions wait for each other: the requests are %v, the holds %v", all, a.grants)
		}
	}
	granted := 0
	for _, o := range outcomes {
		granted += btoi(o.Reply.GetCode() == wire.Code_OK && (o.Reply.GetFence() != 0))
	}
	for _, w := range a.passedOver {
		if w.reserved || !slices.Contains(a.waitingSets, w) {
			continue
		}
		a.sim.tasks.unreserved++
		w.reserved = true
		if closes := a.reaches(w.session, w.session, all); !closes && granted == 1 {
			a.sim.fail("the set of %v and %v was passed over %d times, and its names are not reserved: the requests are %v, the holds %v", w.names, w.shared, w.passed, all, a.grants)
		}
		w.reserved = false
	}
	a.passedOver = a.passedOver[:0]
}

func (a *taskAudit) isReservedInMachine(w *setWaiter) bool {
	name := slices.Concat(w.names, w.shared)[0]
	v := machine.Ask[*machine.ExplainView](a.m, machine.ExplainQuery{Name: name, Limit: 1 << 10})
	return v != nil && slices.ContainsFunc(v.Queue, func(o machine.OwnerView) bool {
		return o.Reserved && o.Session == w.session && o.Handle == w.handle
	})
}
