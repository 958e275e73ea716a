package reference

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// deadlocks is the rules of requests whose wait would close a cycle.
type deadlocks struct{ *Model }

// step is a wait for a lock, and an owner of that.
type step struct {
	lock   *Lock
	waiter Place
	owner  *Place
	shared bool
	linger bool
}

// steps returns what a place in the queue for a lock waits for.
func (x deadlocks) steps(l *Lock, p Place) (steps []step) {
	switch {
	case l.Owner != nil:
		steps = append(steps, step{lock: l, waiter: p, owner: l.Owner, linger: l.Lingering})
	case !l.Due():
		for _, sh := range l.Live() {
			steps = append(steps, step{l, p, &sh.Place, true, sh.linger})
		}
	}
	return steps
}

// has reports whether a session holds a lock or leads.
func (x deadlocks) has(session wire.ID) bool {
	return slices.ContainsFunc(x.Locks, func(l *Lock) bool {
		return l.Owner != nil && l.Owner.Session == session ||
			slices.ContainsFunc(l.Live(), func(sh Share) bool { return sh.Session == session })
	})
}

// closes returns the cycle that the wait for a lock would close, or nil: by all ways with one step, then by those
// with one more.
func (x deadlocks) closes(l *Lock, p Place) *wire.Cycle {
	if !x.has(p.Session) {
		return nil
	}
	most := min(cmp.Or(x.MostSearched, MaxSearched), cmp.Or(x.MostAllSearched, MaxAllSearched)-x.searched[x.forClient])
	spent := 0
	defer func() { x.searched[x.forClient] += spent }()
	type place struct {
		lock  *Lock
		place Place
		way   []step // to it
	}
	reached := map[wire.ID]bool{}
	for at := []place{{l, p, nil}}; len(at) > 0; at = at[1:] {
		if spent++; spent > most {
			return nil
		}
		for _, s := range x.steps(at[0].lock, at[0].place) {
			if s.shared {
				if spent++; spent > most {
					return nil
				}
			}
			to := s.owner.Session
			if s.linger || x.lateSession(to) != nil || to == at[0].place.Session || reached[to] {
				continue
			}
			way := append(slices.Clone(at[0].way), s)
			if to == p.Session {
				return x.cycle(way)
			}
			spent += 8
			reached[to] = true
			for _, next := range x.places(func(q Place) bool { return q.Session == to }) {
				of := &Lock{} // none, for permits
				for _, l := range x.Locks {
					if slices.ContainsFunc(l.Queue, func(q Place) bool { return q.arrival == next.arrival }) {
						of = l
					}
				}
				at = append(at, place{of, next, way})
			}
		}
	}
	return nil
}

// cycle lists the first steps of a cycle.
func (x deadlocks) cycle(way []step) *wire.Cycle {
	c, left := &wire.Cycle{Length: uint32(len(way))}, 4096
	for _, s := range way {
		w := &wire.Wait{Name: s.lock.Name, Election: s.lock.Election, Waiter: x.party(s.waiter), Holder: x.party(*s.owner)}
		w.Waiter.Shared, w.Holder.Shared = s.waiter.shared, s.shared
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
