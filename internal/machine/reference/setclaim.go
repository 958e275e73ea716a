package reference

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// What an attached session was left: sets are claimed as a whole, by the same request.

// claims reports whether a request by an attached session is for the set as it was left.
func (s *Set) claims(left *Set) bool {
	return left.Unclaimed && left.Session == s.Session && slices.EqualFunc(left.Parts, s.Parts, func(a, b Part) bool {
		return a.Name == b.Name && a.Shared == b.Shared
	})
}

// claim grants a set again in place. Each phase goes on: it has the former share until it has the new one.
func (x sets) claim(left, s *Set) *wire.Reply {
	reply := x.grant(s)
	x.Sets = slices.DeleteFunc(x.Sets, func(o *Set) bool { return o == left })
	for _, p := range left.Parts {
		l := x.find(false, p.Name)
		l.Shares = slices.DeleteFunc(l.Shares, func(sh Share) bool { return p.Shared && sh.Number == p.number })
	}
	return reply
}

// disclaim releases what an attached session has not claimed and what would keep it from the names, as far as the
// entry may.
func (x sets) disclaim(session wire.ID, parts ...Part) *wire.Reply {
	released := 0
	for _, p := range parts {
		for release, names := x.unclaimed(session, p); release != nil; release, names = x.unclaimed(session, p) {
			if released > 0 && x.quota <= 0 {
				return answer(wire.Code_BUSY)
			}
			released++
			x.quota -= names
			release()
		}
	}
	return nil
}

// visited returns what a request asks for, once what ended sessions and an earlier process have left of it does not stand
// before others; nil: there is nothing.
func (x sets) visited(c *wire.Lock, session wire.ID) (*Lock, *wire.Reply) {
	if bad := x.visitLock(x.find(c.Election, c.Name)); bad != nil {
		return nil, bad
	}
	if c.Fence == 0 && c.Share == 0 { // else it claims nothing
		if bad := x.disclaimOwner(x.find(c.Election, c.Name), session); bad != nil {
			return nil, bad
		}
	}
	return x.find(c.Election, c.Name), nil
}

// cleared returns the lock that a session asks for exclusively, once the shares are released that it would wait for itself.
// nil: there is none then.
func (x sets) cleared(l *Lock, c *wire.Lock, session wire.ID) (*Lock, *wire.Reply) {
	if c.Election || l.heldBy(c.Session, c.Handle) || l != nil && l.Unclaimed && l.Owner.Session == session {
		return l, nil
	}
	bad := x.disclaim(session, Part{Name: c.Name})
	return x.find(false, c.Name), bad
}

// disclaimOwner releases an unclaimed set of an attached session that has a lock which it asks for alone.
func (x sets) disclaimOwner(l *Lock, session wire.ID) *wire.Reply {
	if l != nil && l.Owner != nil && l.Owner.set != nil && l.Owner.set.Unclaimed && l.Owner.Session == session {
		if bad := x.touch(len(l.Owner.set.Parts), false); bad != nil {
			return bad
		}
		x.release(l.Owner.set, 0)
	}
	return nil
}

// touch counts the names of a set that a command takes or releases, or refuses it: the entry has done enough.
func (x sets) touch(names int, release bool) *wire.Reply {
	most, sum := cmp.Or(x.MostTouched, MaxTouched), x.touched[x.forClient]
	if !release {
		most /= 2
	}
	if sum > 0 && sum+names > most {
		return answer(wire.Code_BUSY)
	}
	x.touched[x.forClient] = sum + names
	return nil
}

// unclaimed returns what releases the first of those things, and how many names that has; nil: there is none.
func (x sets) unclaimed(session wire.ID, p Part) (release func(), names int) {
	l := x.find(false, p.Name)
	if l == nil {
		return nil, 0
	}
	if o := l.Owner; o != nil && o.Session == session {
		switch {
		case o.set != nil && o.set.Unclaimed:
			return func() { x.release(o.set, 0) }, len(o.set.Parts)
		case l.Unclaimed:
			return func() { x.Model.free(l, 0) }, 1
		}
	}
	for _, sh := range l.Live() {
		switch {
		case p.Shared || sh.Session != session:
		case sh.set != nil && sh.set.Unclaimed:
			return func() { x.release(sh.set, 0) }, len(sh.set.Parts)
		case sh.Unclaimed:
			return func() { sharing(x).lose(l, sh.Number, 0) }, 1
		}
	}
	return nil, 0
}
