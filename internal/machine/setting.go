package machine

import (
	"cmp"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/wire"
)

// setting is a machine as far as it grants several locks as a whole.
//
// A set is granted at the first index at which each of its names is free for it. Until then later requests may be
// granted its names, MaxPassed of them at most: then no later one is granted any of them before the set. So what
// sets wait for are holds, requests before them, and sets before them.
type setting struct{ *Machine }

// hasSets reports whether the group is at the level of sets.
func (x setting) hasSets() bool { return x.levels.agreed >= wire.LevelSets }

// sets is what a machine has of them.
type sets struct {
	byFence map[uint64]*set // those that are held
	waiting int
	bytes   int                     // of all records
	free    *btree.FreeListG[*part] // shared by the trees of all locks
}

// lock grants a set, or queues for it.
func (x setting) lock(inc *incarnation, seq uint64, c *wire.LockSet) *wire.Reply {
	if r := cmp.Or(x.checkNames(c), x.checkLabel(c.Label), bounding(x).check(c.MaxHold, true)); r != nil {
		return r
	}
	owner, refusal := x.live(c.Session)
	if owner == nil {
		return refusal
	}
	s := &set{session: owner, handle: c.Handle, label: string(c.Label), ticket: ticket{inc, seq}, maxHold: c.MaxHold}
	s.addParts(c.Names, c.Shared)
	if r := x.mayTouch(len(s.parts), false); r != nil {
		return r
	}
	if claimed, r := x.visit(s); r != nil || claimed {
		return r
	}
	return x.request(s, c)
}

// checkNames returns nil or the refusal of the names of a set.
func (x setting) checkNames(c *wire.LockSet) *wire.Reply {
	n := len(c.Names) + len(c.Shared)
	switch {
	case n == 0:
		return x.refuse(wire.Code_INVALID, "the set has no names: want 1 to 128")
	case n > MaxSet:
		return x.refuse(wire.Code_TOO_LARGE, "the set has too many names: want 1 to 128")
	}
	seen := make(map[string]struct{}, n)
	for _, names := range [2][]string{c.Names, c.Shared} {
		for _, name := range names {
			if r := x.checkName(name); r != nil {
				return r
			}
			if _, twice := seen[name]; twice {
				return x.refuse(wire.Code_INVALID, "a name is in the set twice")
			}
			seen[name] = struct{}{}
		}
	}
	return nil
}

// visit finds the locks of a request as they are now. What ended sessions have of them is released
// first, and what the session left of an earlier process is claimed, or released where it is in the way.
func (x setting) visit(s *set) (claimed bool, r *wire.Reply) {
	for i := range s.parts {
		if _, r := x.lockNow(&x.locks, s.parts[i].key[1:]); r != nil {
			return false, r
		}
	}
	if s.session.attached != 0 {
		if old := x.unclaimed(s); old != nil {
			return true, x.claim(old, s)
		}
		first := true
		for i := range s.parts {
			if r := x.disclaim(s.parts[i].key[1:], s.session, s.parts[i].shared, &first); r != nil {
				return false, r
			}
		}
	}
	for i := range s.parts {
		s.parts[i].lock = x.locks.byName[s.parts[i].key[1:]]
	}
	return false, nil
}

// request grants a set whose locks were found, or queues for it.
func (x setting) request(s *set, c *wire.LockSet) *wire.Reply {
	owner := s.session
	if owner.held()+owner.awaited()+len(s.parts) > MaxPlaces {
		return x.refuse(wire.Code_BUSY, "the session holds and awaits too many; release some")
	}
	at := x.obstacle(s)
	switch {
	case at == nil:
	case !c.Wait:
		return x.refuseSet(s)
	default:
		if r := x.mayJoin(s); r != nil {
			return r
		}
		if r := deadlocks(x).mayWait(request{set: s}, c.RefuseDeadlock); r != nil {
			return r
		}
		s.refuses = c.RefuseDeadlock && (deadlocks(x)).seesReservations()
		return x.enqueue(s, at)
	}
	if r := x.mayShare(s); r != nil {
		return r
	}
	if !x.hasFences(s) {
		return x.exhausted()
	}
	r := x.grant(s)
	x.passAll(s)
	return r
}

// mayShare refuses shares beyond those that a lock may have.
func (x setting) mayShare(s *set) *wire.Reply {
	for i := range s.parts {
		if p := &s.parts[i]; p.shared && p.lock != nil && p.lock.shareRequests() >= MaxShares {
			return x.refuse(wire.Code_BUSY, "a lock of the set is held or awaited shared by too many (16384)")
		}
	}
	return nil
}

// refuseSet refuses a caller that does not wait, with each name that is not available.
func (x setting) refuseSet(s *set) *wire.Reply {
	r := x.reply(wire.Code_LOCK_DELAY)
	r.Set = new(wire.SetReply)
	for i := range s.parts {
		p := &s.parts[i]
		if p.isFree() {
			continue
		}
		t := x.taken(p, i)
		r.Set.Taken = append(r.Set.Taken, t)
		r.Delay = max(r.Delay, t.Delay)
		if t.Holder != nil && r.Holder == nil {
			r.Holder = t.Holder
		}
		if p.isTaken() {
			r.Code = wire.Code_LOCKED
			x.recallHolders(p)
		}
	}
	if r.Code == wire.Code_LOCKED {
		r.Delay = 0
	}
	return r
}

// isTaken reports that more than a lock-delay keeps the lock from the part.
func (p *part) isTaken() bool {
	l := p.lock
	return l.owner != nil || !p.shared && l.phase().isLive() || l.head() != nil || l.sets().reservation(p.shared, p.set.position) != nil
}

// taken describes what keeps a name from a set.
func (x setting) taken(p *part, i int) *wire.Taken {
	l, t := p.lock, &wire.Taken{Name: uint32(i)}
	until := l.delayUntil
	if ph := l.phase(); !p.shared && ph != nil {
		until = max(until, ph.delayUntil)
	}
	t.Delay = max(0, until-x.now)
	reserved := l.sets().reservation(p.shared, p.set.position)
	switch head := l.head(); {
	case l.owner != nil, !p.shared && l.phase().isLive():
		t.Holder = l.holder()
	case head != nil && !head.session.dead():
		t.Holder = head.asHolder()
	case head == nil && reserved != nil:
		t.Holder = reserved.set.holder()
	}
	return t
}

// recallHolders recalls what lingers and is in the way.
func (x setting) recallHolders(p *part) {
	if x.recallOwner(p.lock); !p.shared {
		sharing(x).recallShares(p.lock)
	}
}

// grant makes the session the owner of all locks of the set. Each of them is free for it.
func (x setting) grant(s *set) *wire.Reply {
	s.fence, s.hold.of = x.nextFences(s.fences())+uint64(s.shared), s
	requested := s.since
	s.since = x.stamp()
	number := s.firstNumber()
	for i := range s.parts {
		p := &s.parts[i]
		if p.lock == nil {
			p.lock = &lock{key: p.key}
			x.locks.add(p.lock)
		}
		if p.shared {
			x.share(p, number)
			number++
		} else {
			x.own(p)
		}
	}
	if s.position == 0 { // it is released by its fence
		s.ticket = ticket{}
	}
	x.hold(s)
	x.dirty.create(s.key(), s)
	r := x.state(s)
	if s.maxHold != 0 {
		s.hold.ends, s.hold.requested = after(x.now, s.maxHold), x.now
		if s.position != 0 {
			s.hold.requested = requested
		}
		bounding(x).add(&s.hold)
		s.end.reply(r, s.end.requested)
	}
	return r
}

// own makes the set the exclusive owner of a lock.
func (x setting) own(p *part) {
	l, s := p.lock, p.set
	l.owner, l.handle, l.holds, l.fence, l.since = s.session, s.handle, 1, s.fence, s.since
	l.more().set = s
	if ph := l.phase(); ph != nil && ph.at != 0 { // waiters for shares were left for the next entry
		x.portions.Remove(l)
	}
}

// share gives the set a share of a lock. The first one of a phase begins it.
func (x setting) share(p *part, number uint64) {
	s := p.set
	p.share = &share{
		lock: p.lock, owner: s.session, handle: s.handle, holds: 1, number: number, since: s.since, label: s.label, end: &s.hold,
	}
	if ph := sharing(x).sharedBy(p.lock); !ph.isLive() {
		ph.fence = s.fence
	}
	x.joinPhase(p.share)
}

// joinPhase links the share of a set into its lock and, to be found by what claims it, its session.
func (x setting) joinPhase(sh *share) {
	sh.lock.phase().live.ReplaceOrInsert(sh)
	if sh.owner.ttl == 0 {
		sharing(x).claimsOf(sh.owner).ReplaceOrInsert(sh)
	}
	x.shares++
}

// leavePhase undoes joinPhase.
func (x setting) leavePhase(sh *share) {
	sh.lock.phase().live.Delete(sh)
	if sh.owner.shareClaims != nil {
		sh.owner.shareClaims.Delete(sh)
	}
	x.shares--
}

// hold links a set that is held into its session and its incarnation.
func (x setting) hold(s *set) {
	s.session.sets.Push(s)
	s.session.inSets += len(s.parts)
	if s.ticket != (ticket{}) {
		s.ticket.by.sets.ReplaceOrInsert(s)
	}
	x.sets.byFence[s.fence] = s
	x.sets.bytes += s.bytes()
}

// state is the reply that states the hold as it is.
func (x setting) state(s *set) *wire.Reply {
	r := x.reply(wire.Code_OK)
	r.Fence, r.Holds = s.fence, 1
	if s.shared > 0 {
		r.Set = &wire.SetReply{Fences: s.phases()}
	}
	return r
}

// unlock releases a set.
func (x setting) unlock(c *wire.UnlockSet) *wire.Reply {
	owner, refusal := x.live(c.Session)
	if owner == nil {
		return refusal
	}
	s := x.sets.of(owner, c.Fence)
	if s == nil {
		return x.reply(wire.Code_NOT_HELD)
	}
	x.cause = x.traceOf(c.Trace)
	r := x.releaseNow(s)
	x.cause = nil
	return r
}

// releaseNow releases a set for its owner.
func (x setting) releaseNow(s *set) *wire.Reply {
	if r := x.mayTouch(len(s.parts), true); r != nil {
		return r
	}
	r := x.reply(wire.Code_OK)
	r.Fence = s.fence
	x.release(s, 0)
	return r
}

// of returns the set that a handle of the session holds under the fence, or nil.
func (x *sets) of(owner *session, fence uint64) *set {
	if s := x.byFence[fence]; s != nil && s.session == owner && !s.unclaimed() {
		return s
	}
	return nil
}

// release takes all locks of a set from its owner, at once or when their lock-delays end. None of them is granted before
// all are free: others wait for several of them.
func (x setting) release(s *set, until int64) {
	x.drop(s)
	for i := range s.parts {
		x.disown(&s.parts[i], until)
	}
	last := lastGain(s.parts, 0)
	for i := range s.parts {
		if p := &s.parts[i]; p.shared {
			sharing(x).vacated(p.lock, i < last)
		} else {
			sharing(x).serve(p.lock)
		}
	}
}

// drop undoes hold.
func (x setting) drop(s *set) {
	s.session.sets.Remove(s)
	s.session.inSets -= len(s.parts)
	x.voidTicket(s)
	bounding(x).drop(s.end)
	delete(x.sets.byFence, s.fence)
	x.sets.bytes -= s.bytes()
	x.dirty.drop(s.key())
}

// voidTicket makes the hold independent of its ticket.
func (x setting) voidTicket(s *set) {
	if by := s.ticket.by; by != nil {
		by.sets.Delete(s)
		s.ticket = ticket{}
		x.forget(by)
	}
}

// disown takes a lock from a set, and begins its lock-delay.
func (x setting) disown(p *part, until int64) {
	l := p.lock
	if p.shared {
		x.leavePhase(p.share)
		if until > x.now {
			sharing(x).delayShare(p.share, until)
		}
		return
	}
	l.owner, l.handle, l.holds, l.fence, l.since = nil, 0, 0, 0, 0
	l.extra.set = nil
	if until > x.now {
		l.delayUntil = until
		x.beginDelay(l)
		x.dirty.put(l.key, l)
	}
}
