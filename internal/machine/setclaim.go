package machine

import "github.com/conclave-go/conclave/internal/wire"

// What an attached session left of sets. The first request for the same names claims a set as a whole; a request
// that one of its names is in the way of releases it, since it would wait for itself.

// unclaimed returns the unclaimed set of the attached session that a request for the same names claims, or nil.
func (x setting) unclaimed(s *set) (old *set) {
	l := x.locks.byName[s.parts[0].key[1:]]
	if l == nil {
		return nil
	}
	if s.shared < len(s.parts) {
		if old = l.set(); old != nil && old.session == s.session && old.unclaimed() && old.hasSameNames(s) {
			return old
		}
		return nil
	}
	s.session.unclaimedShares(l, true, func(sh *share) bool {
		if sh.set().hasSameNames(s) {
			old = sh.set()
		}
		return old == nil
	})
	return old
}

// claim transfers an unclaimed set to the first handle of the attached session that asks for the same names. They are not
// free in between, so no waiter is passed over; the fence is new, in case that the earlier process still acts.
func (x setting) claim(old, s *set) *wire.Reply {
	if !x.hasFences(s) {
		return x.exhausted()
	}
	x.drop(old)
	phases := old.phases()
	for i := range s.parts {
		p := &s.parts[i]
		if p.lock = old.parts[i].lock; p.shared {
			x.leavePhase(old.parts[i].share)
		}
	}
	r := x.grant(s)
	for i, fence := range phases {
		s.parts[len(s.parts)-s.shared+i].lock.phase().fence = fence
		r.Set.Fences[i] = fence
	}
	return r
}

// disclaim releases what an attached session left unclaimed of a lock and what is in the way of its request for that, as
// it would wait for itself. If that is more than the entry may release, the request is refused, and another one
// goes on.
func (x setting) disclaim(name string, s *session, shared bool, first *bool) *wire.Reply {
	for {
		l := x.locks.byName[name]
		if l == nil {
			return nil
		}
		of := l.set()
		owned := l.owner == s && s.claimable(l.fence)
		var sh *share
		if !owned && !shared {
			sh = s.unclaimedOf(l)
		}
		if !owned && sh == nil {
			return nil
		}
		if !*first && x.left <= 0 {
			return x.refuse(wire.Code_BUSY, tooMuchLeft)
		}
		*first = false
		if !owned {
			of = sh.set()
		}
		x.left -= max(1, of.len())
		switch {
		case of != nil:
			x.release(of, 0)
		case owned:
			x.releaseLock(l, 0)
		default:
			sharing(x).endShare(sh, 0)
		}
	}
}

const tooMuchLeft = "the session left too many shares of the lock; try again: they are being released"

// disclaimSets releases the unclaimed sets of an attached session that are in the way of its request for a lock alone, and
// returns the lock as it is then, or nil.
func (x setting) disclaimSets(l *lock, s *session) (*lock, *wire.Reply) {
	of := l.set()
	if of == nil || of.session != s || !of.unclaimed() {
		return l, nil
	}
	if r := x.mayTouch(of.len(), false); r != nil {
		return nil, r
	}
	x.release(of, 0)
	return x.locks.byName[l.name()], nil
}
