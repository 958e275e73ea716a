package machine

import (
	"cmp"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// sharing is a machine as far as it grants locks, in particular shared ones.
//
// Requests are granted in the order of the queue: an exclusive one when there is no hold, a shared
// one when there is no exclusive one. A shared request behind an exclusive one waits, so that
// shared holds that overlap cannot keep the lock from an exclusive owner for ever.
type sharing struct{ *Machine }

// hasShared reports whether the group is at the level of shared holds.
func (x sharing) hasShared() bool { return x.levels.agreed >= wire.LevelShared }

// newPhase returns what a lock needs before the first shared request for it.
func (x sharing) newPhase() *phase {
	return &phase{live: ordered.NewSharingTree(&x.visits, byNumber, x.registry.freeShares)}
}

// sharedBy returns what the lock has of shared holds, and adds that to one that has none.
func (x sharing) sharedBy(l *lock) *phase {
	more := l.more()
	if more.shared == nil {
		more.shared = x.newPhase()
	}
	return more.shared
}

// request grants a share, or queues for one.
func (x sharing) request(w *waiter, c *wire.Lock) *wire.Reply {
	l, s := w.lock, w.session
	switch {
	case c.Election:
		return x.refuse(wire.Code_INVALID, "an election has one leader: it cannot be shared")
	case c.Share != 0:
		return x.reenterShare(w, c)
	case l != nil && l.owner == s && l.unclaimed():
		return x.claimExclusive(w)
	case l != nil && l.ownedBy(s, w.handle) && c.Reentrant:
		return x.refuse(wire.Code_INVALID, "the handle holds the lock exclusively; Downgrade makes a shared hold of that")
	}
	if l != nil {
		if sh := s.unclaimedShare(l); sh != nil {
			return x.claimShare(sh, w)
		}
	}
	if r := x.mayHaveMore(s); r != nil {
		return r
	}
	free := l == nil || l.owner == nil && l.delayUntil == 0 && l.exclusives() == 0 && l.sets().reservation(true, 0) == nil
	switch {
	case !free && !c.Wait:
		return x.refuseShare(w)
	case l != nil && l.shareRequests() >= MaxShares:
		return x.refuse(wire.Code_BUSY, "the lock is held or awaited shared by too many (16384)")
	case !free:
		if r := cmp.Or(x.mayJoin(w), deadlocks(x).mayQueue(w, c.RefuseDeadlock)); r != nil {
			return r
		}
		return x.enqueue(w)
	case x.fences >= maxFences:
		return x.exhausted()
	case l == nil:
		l = &lock{key: lockKey(false, c.Name)}
		x.locks.add(l)
	}
	r := x.grantShare(l, w)
	x.shareGranted(l, w, r)
	return r
}

// shareGranted notes that w was granted a share, as the reply states.
func (x sharing) shareGranted(l *lock, w *waiter, r *wire.Reply) {
	if l.sets() != nil {
		sh, _ := l.phase().live.Get(&share{number: r.Share})
		setting(x).granted(l, w, sh)
	}
}

// refuseShare refuses a caller that does not wait: an exclusive owner is in its way, or a waiter
// that wants to become one, or only a lock-delay.
func (x sharing) refuseShare(w *waiter) *wire.Reply {
	l := w.lock
	if l.owner != nil || l.exclusives() > 0 || l.sets().reservation(true, 0) != nil {
		if !w.lingering || l.owner != w.session { // as for an exclusive request
			x.recallOwner(l)
		}
		return x.locked(l.obstacle())
	}
	r := x.reply(wire.Code_LOCK_DELAY)
	r.Delay = max(0, l.delayUntil-x.now)
	return r
}

// obstacle describes what keeps a lock from shared requests: the exclusive owner, or the waiter
// that is the next one; nil: a lock-delay, or one further behind.
func (l *lock) obstacle() *wire.Holder {
	if l.owner != nil {
		return l.holder()
	}
	switch w, s := l.head(), l.sets().reservation(true, 0); {
	case w != nil && !w.shared && (s == nil || w.position < s.set.position):
		return w.asHolder()
	case s != nil:
		return s.set.holder()
	}
	return nil
}

// asHolder describes a waiter that stands before another request; nil: its session has ended.
func (w *waiter) asHolder() *wire.Holder {
	if w.session.dead() {
		return nil
	}
	return &wire.Holder{Session: w.session.id[:], Member: w.session.member, Handle: w.handle, Waiting: true}
}

// refuseLock refuses a caller that does not wait: an owner or shares are in its way, or only
// lock-delays.
func (x sharing) refuseLock(w *waiter) *wire.Reply {
	l, until := w.lock, w.lock.delayUntil
	switch p := l.phase(); {
	case l.owner != nil:
		if !w.lingering || l.owner != w.session { // else it would take the lock from its own process
			x.recallOwner(l)
		}
		return x.locked(l.holder())
	case p.isLive() || l.isDue():
		x.recallShares(l)
		return x.locked(l.holder())
	case l.sets().reservation(false, 0) != nil:
		return x.locked(l.sets().reservation(false, 0).set.holder())
	case p != nil && p.delayed > 0:
		until = p.delayUntil
	}
	r := x.reply(wire.Code_LOCK_DELAY)
	r.Delay = max(0, until-x.now)
	return r
}

// grantShare adds a share to a lock that has no exclusive owner. The first of a phase begins it.
func (x sharing) grantShare(l *lock, w *waiter) *wire.Reply {
	sh := &share{
		lock: l, owner: w.session, handle: w.handle, holds: 1, lingering: w.lingering,
		number: x.nextFences(1), ticket: w.granted(), since: x.stamp(), label: w.label,
	}
	if p := x.sharedBy(l); !p.isLive() {
		p.fence = sh.number
	}
	x.add(sh)
	x.dirty.create(sh.key(), sh)
	r := x.sharedHold(sh)
	bounding(x).begin(sh, w, r)
	return r
}

// add links a live share into its lock, its owner and its incarnation.
func (x sharing) add(sh *share) {
	p := sh.lock.phase()
	p.live.ReplaceOrInsert(sh)
	if sh.lingering {
		p.lingering.Push(sh)
	}
	sh.owner.shares.Push(sh)
	if sh.owner.ttl == 0 { // it can be attached
		x.claimsOf(sh.owner).ReplaceOrInsert(sh)
	}
	if sh.ticket != (ticket{}) {
		sh.ticket.by.shares.ReplaceOrInsert(sh)
	}
	x.labels += len(sh.label)
	x.shares++
}

// claimsOf returns the shares of a session by what claims them.
func (x sharing) claimsOf(s *session) *btree.BTreeG[*share] {
	if s.shareClaims == nil {
		s.shareClaims = ordered.NewSharingTree(&x.visits, byClaimOfLock, x.registry.freeShares)
	}
	return s.shareClaims
}

// remove undoes add.
func (x sharing) remove(sh *share) {
	p := sh.lock.phase()
	p.live.Delete(sh)
	if sh.lingering {
		p.lingering.Remove(sh)
	}
	sh.owner.shares.Remove(sh)
	if sh.owner.shareClaims != nil {
		sh.owner.shareClaims.Delete(sh)
	}
	x.voidShareTicket(sh)
	bounding(x).drop(sh.end)
	x.labels -= len(sh.label)
	x.shares--
	x.dirty.drop(sh.key())
}

// voidShareTicket makes the share independent of its ticket.
func (x sharing) voidShareTicket(sh *share) {
	if by := sh.ticket.by; by != nil {
		by.shares.Delete(sh)
		sh.ticket = ticket{}
		x.forget(by)
	}
}

// sharedHold is the reply that states the share as it is.
func (x sharing) sharedHold(sh *share) *wire.Reply {
	r := x.reply(wire.Code_OK)
	r.Fence, r.Holds, r.Share = sh.lock.phase().fence, sh.holds, sh.number
	return r
}

// reenterShare adds a hold to a share. It is granted although others wait: they wait for this
// share.
func (x sharing) reenterShare(w *waiter, c *wire.Lock) *wire.Reply {
	var sh *share
	if w.lock != nil {
		sh = w.lock.phase().find(w.session, c.Share)
	}
	switch {
	case sh == nil:
		return x.reply(wire.Code_OWNERSHIP_LOST)
	case !c.Reentrant:
		return x.refuse(wire.Code_INVALID, "the number of a share is that of one that is re-entered")
	case sh.holds >= MaxHolds || c.Limit != 0 && sh.holds >= c.Limit:
		return x.reply(wire.Code_LIMIT_REACHED)
	}
	sh.holds++
	x.dirty.put(sh.key(), sh)
	r := x.sharedHold(sh)
	sh.end.reply(r, x.now)
	return r
}

// claimShare transfers an unclaimed share to the first handle of the attached session that asks
// for one. The phase goes on, with its fence.
func (x sharing) claimShare(sh *share, w *waiter) *wire.Reply {
	if x.fences >= maxFences {
		return x.exhausted()
	}
	p := sh.lock.phase()
	fence := p.fence
	x.remove(sh)
	r := x.grantShare(sh.lock, w)
	p.fence, r.Fence = fence, fence
	x.recallClaimed(sh.lock, r.Share)
	return r
}

// claimExclusive makes a share of an unclaimed exclusive hold, for the first handle of the attached
// session that asks for the lock, if it asks for a share: no other request can claim the hold
// before the session ends, and the handle would wait for its own session.
func (x sharing) claimExclusive(w *waiter) *wire.Reply {
	l := w.lock
	if x.fences >= maxFences {
		return x.exhausted()
	}
	x.disown(l)
	x.dirty.drop(l.key)
	r := x.grantShare(l, w)
	x.serve(l)
	x.recallClaimed(l, r.Share)
	return r
}

// disclaim releases the unclaimed shares, alone or of sets, of an attached session on a lock that it asks for
// exclusively, since it would wait for itself. It returns the lock as it is then, or nil. If they
// are more than the entry may release, the request is refused, and another one goes on.
func (x sharing) disclaim(l *lock, s *session) (*lock, *wire.Reply) {
	for sh, first := s.unclaimedOf(l), true; sh != nil; sh, first = s.unclaimedOf(l), false {
		if !first && x.left <= 0 {
			return nil, x.refuse(wire.Code_BUSY, tooMuchLeft)
		}
		of := sh.set()
		if x.left -= max(1, of.len()); of != nil {
			setting(x).release(of, 0)
		} else {
			x.endShare(sh, 0)
		}
	}
	return l.spaceIn(x.Machine).byName[l.name()], nil
}

// unlock releases one hold of a share; with the last the share ends.
func (x sharing) unlock(s *session, c *wire.Unlock) *wire.Reply {
	var sh *share
	if l := x.locks.byName[c.Name]; l != nil && !c.Election {
		sh = l.phase().find(s, c.Share)
	}
	if sh == nil {
		return x.reply(wire.Code_NOT_HELD)
	}
	x.cause = x.traceOf(c.Trace)
	r := x.releaseShare(sh)
	x.cause = nil
	return r
}

// releaseShare releases one hold.
func (x sharing) releaseShare(sh *share) *wire.Reply {
	sh.holds--
	r := x.sharedHold(sh)
	if sh.holds == 0 {
		x.endShare(sh, 0)
	} else {
		x.dirty.put(sh.key(), sh)
	}
	return r
}

// endShare takes the share from its owner, at once or when its lock-delay ends.
func (x sharing) endShare(sh *share, until int64) {
	x.remove(sh)
	if until > x.now {
		x.delayShare(sh, until)
	}
	x.vacated(sh.lock, false)
}

// vacated serves a lock that has lost a share. While it has others, only waiters gain by that which are due, or were before
// others and have ended: a set that waits for a share waits for another of its names, unless that is still to be served. all:
// locks are still to be served that have lost one of the same set.
func (x sharing) vacated(l *lock, all bool) {
	w := l.head()
	switch held := l.phase().held(); {
	case held && x.unserved == 0 && (w == nil || !w.session.dead() && !l.isDue()):
	case all:
		x.serve(l)
	case held:
		x.serveBehind(l, x.positions, x.positions) // behind the head
	default:
		x.serveBehind(l, 0, x.positions)
	}
}

// delayShare begins the lock-delay of a share that was taken from its owner.
func (x sharing) delayShare(sh *share, until int64) {
	*sh = share{lock: sh.lock, number: sh.number, delayUntil: until}
	sh.lock.phase().delay(sh)
	x.shares++
	x.beginDelay(sh)
	x.dirty.put(sh.key(), sh)
}

// downgrade makes a share of an exclusive hold, with all its holds. It begins a phase, which the
// shared requests join that are next in the queue.
func (x sharing) downgrade(c *wire.Downgrade) *wire.Reply {
	if r := x.checkName(c.Name); r != nil {
		return r
	}
	s, refusal := x.live(c.Session)
	if s == nil {
		return refusal
	}
	l, refusal := x.holdOf(s, &x.locks, c.Name, c.Handle, c.Fence)
	switch {
	case l == nil:
		return refusal
	case l.lingering:
		return x.refuse(wire.Code_INVALID, "the lock lingers: its process gives the tenure up first")
	case x.fences >= maxFences:
		return x.exhausted()
	}
	w, holds, end := &waiter{session: s, handle: l.handle, label: l.label()}, l.holds, l.bound()
	x.disown(l)
	x.dirty.drop(l.key)
	x.grantShare(l, w)
	sh := l.phase().first()
	sh.holds = holds
	r := x.sharedHold(sh)
	if end != nil {
		end.of = sh
		bounding(x).add(end)
		end.reply(r, x.now)
	}
	x.cause = x.traceOf(c.Trace)
	x.serve(l)
	x.cause = nil
	return r
}
