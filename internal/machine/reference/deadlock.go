package reference

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// deadlocks is the rules of requests whose wait would close a cycle.
type deadlocks struct{ *Model }

// waiting is a request that waits, or is about to: for a lock, or a set.
type waiting struct {
	lock *Lock // nil: for another thing
	Place
	set *Set
}

// step is a wait for a lock, and an owner of that; without an owner it only counts.
type step struct {
	lock     *Lock
	waiter   Place // as which the request waits for the lock
	owner    *Place
	shared   bool // by a share
	reserved bool // the owner holds nothing, but waits with a reservation
	linger   bool
}

// steps returns what a request waits for: with each, each reservation of a lock, and else the oldest alone.
func (x deadlocks) steps(w waiting, each bool) (steps []step) {
	switch {
	case w.set != nil:
		for _, p := range w.set.Parts {
			steps = append(steps, step{})
			if l := x.find(false, p.Name); l != nil {
				of := w.Place
				of.shared, of.set = p.Shared, w.set
				behind := len(l.Queue) > 0 && older(l.Queue[0].arrival, w.arrival) && !sharing(x).due(l)
				steps = append(steps, x.owners(l, of, !p.Shared || behind, each)...)
			}
		}
	case w.lock != nil:
		steps = x.owners(w.lock, w.Place, !sharing(x).due(w.lock), each)
	}
	return steps
}

func (x deadlocks) owners(l *Lock, p Place, byShares, each bool) (steps []step) {
	switch {
	case l.Owner != nil:
		steps = append(steps, step{lock: l, waiter: p, owner: l.Owner, linger: l.Lingering})
	case byShares:
		for _, sh := range l.Live() {
			steps = append(steps, step{lock: l, waiter: p, owner: &sh.Place, shared: true, linger: sh.linger})
		}
	}
	for _, s := range x.reservations(l, p, each) {
		if s == nil {
			steps = append(steps, step{})
			continue
		}
		of := s.Place
		part, _ := s.part(l)
		of.set, of.shared = s, part.Shared
		steps = append(steps, step{lock: l, waiter: p, owner: &of, reserved: true})
	}
	return steps
}

// reservations returns the sets that have reserved a lock before a request: each, or the oldest one alone. nil is a
// waiter that it looks at.
func (x deadlocks) reservations(l *Lock, p Place, each bool) (all []*Set) {
	if !each {
		if s := (sets(x)).holdsBack(l, p); s != nil {
			all = append(all, s)
		}
		return all
	}
	reserved := func(shared bool, arrival int) (some []*Set) {
		for _, s := range x.Waiting {
			if part, ok := s.part(l); ok && part.Shared == shared && s.Passed >= MaxPassed && older(s.arrival, arrival) {
				some = append(some, s)
			}
		}
		return some
	}
	all = reserved(false, p.arrival)
	if !p.shared {
		return append(all, reserved(true, p.arrival)...)
	}
	if !l.exclusive() || len(reserved(true, 0)) == 0 {
		return all
	}
	for _, q := range slices.Backward(l.Queue) {
		all = append(all, nil)
		if !q.shared && older(q.arrival, p.arrival) { // it waits for those
			jobs(x).reached("a share behind a waiter")
			return append(all, reserved(true, q.arrival)...)
		}
	}
	return all
}

// has reports whether a session holds a lock or a run or leads, or has one reserved.
func (x deadlocks) has(session wire.ID) bool {
	return slices.ContainsFunc(x.Locks, func(l *Lock) bool {
		return l.Owner != nil && l.Owner.Session == session ||
			slices.ContainsFunc(l.Live(), func(sh Share) bool { return sh.Session == session })
	}) || slices.ContainsFunc(x.Waiting, func(s *Set) bool { return s.Passed >= MaxPassed && s.Session == session })
}

// closes returns the cycle that the wait would close, or nil: by all ways with one step, then by those
// with one more.
func (x deadlocks) closes(w waiting) *wire.Cycle {
	if !x.has(w.Session) {
		return nil
	}
	spent := x.searched[x.forClient]
	defer func() { x.searched[x.forClient] = spent }()
	return x.search(w, &spent)
}

// reservationCloses reports whether the reservation of its names for a set, which is made, closes a cycle.
func (x deadlocks) reservationCloses(s *Set) bool {
	forClient := x.session(s.Session[:]).Client && x.Level >= wire.LevelApart
	spent := x.searchedSets[forClient]
	defer func() { x.searchedSets[forClient] = spent }()
	return x.search(waiting{set: s, Place: s.Place}, &spent) != nil
}

// search returns a cycle through a request. sum counts the steps of the searches of its kind.
func (x deadlocks) search(w waiting, sum *int) *wire.Cycle {
	most := min(cmp.Or(x.MostSearched, MaxSearched), cmp.Or(x.MostAllSearched, MaxAllSearched)-*sum)
	spent := 0
	defer func() { *sum += spent }()
	type place struct {
		waiting
		way []step // to it
	}
	reached := map[wire.ID]bool{}
	for at := []place{{w, nil}}; len(at) > 0; at = at[1:] {
		if spent++; spent > most {
			return nil
		}
		for _, s := range x.steps(at[0].waiting, x.Level >= 10) {
			if s.shared || s.owner == nil || s.reserved && x.Level >= 10 {
				spent++
			}
			if spent > most {
				return nil
			}
			if s.owner == nil {
				continue
			}
			to := s.owner.Session
			if s.linger || x.lateSession(to) != nil || to == at[0].Session || reached[to] {
				continue
			}
			way := append(slices.Clone(at[0].way), s)
			if to == w.Session {
				return x.cycle(way)
			}
			spent += 8
			reached[to] = true
			for _, next := range x.waits(to) {
				at = append(at, place{next, way})
			}
		}
		if spent > most {
			return nil
		}
	}
	return nil
}

// waits returns the requests of a session that wait, those for sets last.
func (x deadlocks) waits(session wire.ID) (all []waiting) {
	places := x.places(func(p Place) bool { return p.Session == session })
	for _, p := range places {
		if p.set == nil {
			w := waiting{Place: p}
			for _, l := range x.Locks {
				if l.Job == "" && slices.ContainsFunc(l.Queue, func(q Place) bool { return q.arrival == p.arrival }) {
					w.lock = l
				}
			}
			all = append(all, w)
		}
	}
	for _, p := range places {
		if p.set != nil {
			all = append(all, waiting{Place: p, set: p.set})
		}
	}
	return all
}

// cycle lists the first steps of a cycle.
func (x deadlocks) cycle(way []step) *wire.Cycle {
	c, left := &wire.Cycle{Length: uint32(len(way))}, 4096
	for _, s := range way {
		w := &wire.Wait{Name: s.lock.Name, Election: s.lock.Election, Waiter: x.party(s.waiter), Holder: x.party(*s.owner)}
		w.Waiter.Shared, w.Holder.Shared, w.Holder.Reserved = s.waiter.shared, s.shared || s.reserved && s.owner.shared, s.reserved
		w.Waiter.Reserved = s.waiter.set != nil && s.waiter.set.Passed >= MaxPassed
		if s.waiter.arrival == 0 { // the request itself
			w.Waiter.Since = x.since(x.stamp())
		}
		if left -= stepBytes(w); left < 0 {
			break
		}
		c.Waits = append(c.Waits, w)
	}
	return c
}

// stepBytes is what a step of a cycle counts.
func stepBytes(w *wire.Wait) int {
	return 256 + len(w.Name) + len(w.Waiter.Name) + len(w.Waiter.Label) + len(w.Holder.Name) + len(w.Holder.Label)
}

func (x deadlocks) since(stamp int64) int64 {
	if stamp == 0 {
		return -1
	}
	return x.Now - stamp
}

// party describes a handle with its session.
func (x deadlocks) party(p Place) *wire.LockOwner {
	s := x.session(p.Session[:])
	o := &wire.LockOwner{
		Session: s.ID[:], Name: s.name, Member: s.Member, Client: s.Client, Handle: p.Handle, Label: p.Label, Since: x.since(p.Since),
		Ttl: s.ttl, Renewed: -1,
		Set: uint32(p.names()),
	}
	renewed := s.renewed
	if s.Incarnation != (wire.ID{}) {
		renewed = x.Incarnation(s.Incarnation).renewed
	}
	if s.Standalone || s.Incarnation != (wire.ID{}) {
		o.Renewed = x.Now - renewed
	}
	if s.ttl != 0 {
		o.Remaining = later(renewed, s.ttl) - x.Now
	}
	return o
}
