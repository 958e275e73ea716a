package reference

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Sets that wait. They hold nothing, and are granted once all their names are free.

// older reports whether the one request comes before the other; 0: that is about to be queued or granted at once.
func older(arrival, than int) bool { return than == 0 || arrival < than }

// conflict reports whether not both can have the name.
func (p Part) conflict(o Part) bool { return p.Name == o.Name && !(p.Shared && o.Shared) }

// part returns what the set wants of a lock.
func (s *Set) part(l *Lock) (Part, bool) {
	i := slices.IndexFunc(s.Parts, func(p Part) bool { return !l.Election && p.Name == l.Name })
	if i < 0 {
		return Part{}, false
	}
	return s.Parts[i], true
}

// conflicts reports whether the set wants any of those names in a conflicting mode.
func (s *Set) conflicts(parts ...Part) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return slices.ContainsFunc(s.Parts, p.conflict) })
}

// reserved returns the oldest set that waits longer than a request and has the name reserved in a conflicting mode.
func (x sets) reserved(arrival int, p Part) *Set {
	for _, s := range x.Waiting {
		if s.Passed >= MaxPassed && older(s.arrival, arrival) && s.conflicts(p) {
			return s
		}
	}
	return nil
}

// holdsBack reports whether a set that waits longer has reserved a lock.
func (x sets) holdsBack(l *Lock, p Place) *Set {
	if l.Election {
		return nil
	}
	return x.reserved(p.arrival, Part{Name: l.Name, Shared: p.shared})
}

// idle reports that a lock has no owner and no lock-delay, and that no other request stands before a new one.
func (x sets) idle(l *Lock) bool {
	return l.Owner == nil && l.until == 0 && len(l.Shares)+len(l.Queue) == 0 && x.holdsBack(l, Place{}) == nil
}

// await returns the sets that wait for a lock.
func (x sets) await(l *Lock) (all []*Set) {
	for _, s := range x.Waiting {
		if _, ok := s.part(l); ok {
			all = append(all, s)
		}
	}
	return all
}

// wants reports whether a set waits that cannot have the lock together with such a request.
func (x sets) wants(l *Lock, shared bool) bool {
	return !l.Election && slices.ContainsFunc(x.Waiting, func(s *Set) bool { return s.conflicts(Part{Name: l.Name, Shared: shared}) })
}

func (x sets) free(s *Set, p Part) bool {
	l := x.find(false, p.Name)
	switch {
	case l == nil:
		return true
	case l.Owner != nil || l.until != 0 || !p.Shared && len(l.Shares) > 0:
		return false
	case len(l.Queue) > 0 && older(l.Queue[0].arrival, s.arrival):
		return false
	}
	return x.reserved(s.arrival, p) == nil
}

func (x sets) ready(s *Set) bool {
	return !slices.ContainsFunc(s.Parts, func(p Part) bool { return !x.free(s, p) })
}

// serve grants the sets that are ready and wait for the lock, as long as it has no owner: those before the head of its
// queue, and behind what was looked at.
func (x sets) serve(l *Lock, looked *int) {
	for _, s := range x.await(l) {
		if l.Owner != nil || len(l.Queue) > 0 && l.Queue[0].arrival < s.arrival {
			return
		}
		if s.arrival <= *looked {
			continue
		}
		*looked = s.arrival
		if x.lateSession(s.Session) != nil || !x.ready(s) {
			continue
		}
		x.forget(s)
		t := s.Place.Ticket
		reply := x.grant(s)
		reply.Trace = x.trace
		x.granted(s.arrival, s.Parts...)
		x.final(t, reply)
	}
}

// granted notes that names were granted to a request: the sets that have waited longer are passed over.
func (x sets) granted(arrival int, parts ...Part) {
	var due []*Set
	for _, s := range x.Waiting {
		switch {
		case !older(s.arrival, arrival) || x.lateSession(s.Session) != nil || !s.conflicts(parts...):
		case s.Passed == MaxPassed-1:
			due = append(due, s)
		default:
			s.Passed++
		}
	}
	for _, s := range due { // in the order of their arrival
		if s.Passed++; s.refuses && deadlocks(x).reservationCloses(s) {
			jobs(x).reached("not reserved: a cycle")
			s.Passed--
		}
	}
}

// grantedOne is granted for a request for one lock.
func (x sets) grantedOne(l *Lock, p Place) {
	if l.Election {
		return
	}
	x.granted(p.arrival, Part{Name: l.Name, Shared: p.shared})
	switch {
	case !p.linger || !x.wants(l, p.shared):
	case p.shared:
		sharing(x).recallShare(l, l.Shares[len(l.Shares)-1])
	default:
		x.recallOwner(l)
	}
}

// wait puts a set behind all that wait.
func (x sets) wait(s *Set, c *wire.LockSet) *wire.Reply {
	if x.queued(s.Ticket.Incarnation)+len(s.Parts) > MaxQueued {
		return answer(wire.Code_BUSY)
	}
	for _, p := range s.Parts {
		if l := x.find(false, p.Name); l != nil {
			n := len(l.Queue) + len(s.Parts)
			for _, other := range x.await(l) {
				n += len(other.Parts)
			}
			if n > MaxWaiters {
				return answer(wire.Code_BUSY)
			}
		}
	}
	if c.RefuseDeadlock && x.Level >= wire.LevelDeadlock {
		if cycle := deadlocks(x).closes(waiting{set: s, Place: s.Place}); cycle != nil {
			return &wire.Reply{Code: wire.Code_DEADLOCK, Cycle: cycle}
		}
	}
	first := x.taken(s)[0]
	reply := &wire.Reply{Code: wire.Code_QUEUED, Holder: first.Holder, Set: &wire.SetReply{Taken: []*wire.Taken{first}}}
	x.arrivals++
	for _, p := range s.Parts {
		l := x.existing(p.Name)
		sharing(x).recall(l, Place{shared: p.Shared})
		reply.Position = max(reply.Position, uint32(len(l.Queue)+len(x.await(l))+1))
		if p.Shared {
			reply.Set.Shared++
		}
	}
	s.arrival, s.Since, s.refuses = x.arrivals, x.stamp(), c.RefuseDeadlock && x.Level >= 10
	x.Waiting = append(x.Waiting, s)
	return reply
}

// forget removes a set from those that wait.
func (x sets) forget(s *Set) {
	x.Waiting = slices.DeleteFunc(x.Waiting, func(o *Set) bool { return o == s })
}

// leave removes a set that is not granted. It returns the locks that others may be granted now: those that were
// reserved. Others are dropped if they are idle.
func (x sets) leave(s *Set) (locks []*Lock) {
	x.forget(s)
	for _, p := range s.Parts {
		l := x.find(false, p.Name)
		switch {
		case s.Passed >= MaxPassed:
			locks = append(locks, l)
		case l.Owner == nil && l.until == 0 && len(l.Shares)+len(l.Queue) == 0 && len(x.await(l)) == 0:
			x.Locks = slices.DeleteFunc(x.Locks, func(o *Lock) bool { return o == l })
		}
	}
	return locks
}
