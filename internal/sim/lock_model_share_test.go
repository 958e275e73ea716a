package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// sharedHold is a share of a lock, as clients see it.
type sharedHold struct {
	owner   *sessionSpan
	handle  uint64
	process wire.ID
	grant   *operation // nil: a Downgrade
	bounded *operation // by which it ends in time, also after a Downgrade; nil: it does not
	holds   uint32
	number  uint64 // 0: unknown
}

func (s lockState) equal(o lockState) bool {
	if !slices.Equal(s.shares, o.shares) {
		return false
	}
	return s.owner == o.owner && s.handle == o.handle && s.process == o.process && s.grant == o.grant && s.holds == o.holds &&
		s.fence == o.fence && s.maxFence == o.maxFence && s.delayedUntil == o.delayedUntil && s.tenant == o.tenant &&
		s.sharedFence == o.sharedFence && s.sharedDelay == o.sharedDelay
}

// markShared notes what the model of locks does not contain: exclusive requests that wait.
func (h *clientHistory) markShared(op *operation) {
	c := op.command.GetLock()
	if c == nil || c.Election || !c.Shared || c.Wait {
		return
	}
	for _, other := range h.operations {
		l := other.command.GetLock()
		if l.GetWait() && !l.Shared && l.Name == c.Name && other.invokedAt < op.returnedAt && op.invokedAt < other.returnedAt {
			op.contended = true
		}
	}
}

// isFree reports whether an exclusive request may be granted at a time.
func (s lockState) isFree(at time.Duration) bool {
	return s.owner == nil && len(s.shares) == 0 && s.delayedUntil <= at && s.sharedDelay <= at
}

// possibleShares are the states in which the operation may find the shares: any session that has some may have ended. An end
// that was reported has come; another is put off until an operation depends on it, which keeps the states few: a request for
// the lock depends on all of them, another operation on that of its own session.
func (s lockState) possibleShares(op *operation) []lockState {
	var ended, all, own []holder
	for _, sh := range s.shares {
		h := sh.holder()
		if slices.Contains(all, h) {
			continue
		}
		all = append(all, h)
		if h.owner.endedBefore(op.invokedAt) {
			ended = append(ended, h)
		}
		if h.owner == op.session || op.withdraws != nil && h.owner == op.withdraws.session {
			own = append(own, h)
		}
	}
	states := s.withoutHolders(ended, op)
	var next []lockState
	for _, s := range states {
		next = append(next, s)
		if op.command.GetLock() != nil {
			next = append(next, s.withoutHolders(all, op)...)
		}
		if len(own) < len(all) || op.command.GetLock() == nil {
			next = append(next, s.withoutHolders(own, op)...)
		}
		for _, h := range own {
			if (h.bounded != nil || h.of != nil) && len(own) > 1 {
				next = append(next, s.withoutHolders([]holder{h}, op)...)
			}
		}
	}
	for i := range next {
		for j := len(next) - 1; j > i; j-- {
			if next[i].equal(next[j]) {
				next = slices.Delete(next, j, j+1)
			}
		}
	}
	return next
}

// holder is a process that has shares, and its session. A share with MaxHold is by itself, and so is one of a set that
// another process may claim.
type holder struct {
	owner   *sessionSpan
	process wire.ID
	bounded *operation
	of      *wire.LockSet
}

func (sh sharedHold) holder() holder {
	return holder{sh.owner, sh.process, sh.bounded, sh.grant.ofKept()}
}

// ends returns the ends of the lock-delays that may follow if the holder has lost its shares by the end of an operation: by the
// end of its session, by a claim, or by MaxHold.
func (h holder) ends(op *operation) []time.Duration {
	until := h.owner.possibleDelays(op.returnedTime)
	if h.releasedBy(op) {
		until = append(until, 0)
	}
	if h.bounded != nil {
		if delayed, ended := h.bounded.endedBy(op.returnedTime); ended {
			until = append(until, delayed)
		}
	}
	return until
}

// withoutHolders returns the states without the shares of all these, one for each lock-delay that may be left; none if one
// of them cannot have lost its shares.
func (s lockState) withoutHolders(holders []holder, op *operation) (next []lockState) {
	holders = slices.DeleteFunc(slices.Clone(holders), func(h holder) bool {
		return !slices.ContainsFunc(s.shares, func(sh sharedHold) bool { return h == sh.holder() })
	})
	latest, least := []time.Duration{0}, time.Duration(0)
	for _, h := range holders {
		until := h.ends(op)
		if len(until) == 0 {
			return nil
		}
		latest, least = append(latest, until...), max(least, slices.Min(until))
	}
	slices.Sort(latest)
	for _, until := range slices.Compact(latest) {
		if until >= least {
			next = append(next, s.without(func(sh sharedHold) bool { return slices.Contains(holders, sh.holder()) }, until))
		}
	}
	return next
}

// without removes shares, with a lock-delay that lasts at least until then.
func (s lockState) without(removed func(sharedHold) bool, until time.Duration) lockState {
	if !slices.ContainsFunc(s.shares, removed) {
		return s
	}
	s.shares = slices.DeleteFunc(slices.Clone(s.shares), removed)
	s.sharedDelay = max(s.sharedDelay, until)
	if len(s.shares) == 0 {
		s.shares, s.sharedFence = nil, 0
	}
	return s
}

func (s lockState) share(op *operation, handle uint64, number uint64) int {
	return slices.IndexFunc(s.shares, func(sh sharedHold) bool {
		return sh.owner == op.session && sh.process == op.incarnation && sh.handle == handle && (sh.number == 0 || sh.number == number)
	})
}

func (s lockState) shareOf(grant *operation) int {
	return slices.IndexFunc(s.shares, func(sh sharedHold) bool { return grant != nil && sh.grant == grant })
}

// set replaces a share; with no holds it ends.
func (s lockState) set(i int, sh sharedHold) lockState {
	if sh.holds == 0 {
		number := s.shares[i]
		return s.without(func(o sharedHold) bool { return o == number }, 0)
	}
	s.shares = slices.Clone(s.shares)
	s.shares[i] = sh
	return s
}

// begin adds a share.
func (s lockState) begin(sh sharedHold) lockState {
	if len(s.shares) == 0 {
		s.sharedFence = 0
	}
	s.shares = append(slices.Clone(s.shares), sh)
	s.owner, s.handle, s.process, s.grant, s.holds, s.fence, s.delayedUntil, s.tenant = nil, 0, wire.ID{}, nil, 0, 0, 0, 0
	return s
}

// learnShare takes what the reply says about the last share, which has just been granted.
func (s lockState) learnShare(r *wire.Reply) []lockState {
	last := s.shares[len(s.shares)-1]
	fresh := s.sharedFence == 0 && r.GetFence() <= s.maxFence
	if r.GetHolds() != last.holds || r.GetShare() <= s.maxFence || fresh || s.sharedFence != 0 && s.sharedFence != r.GetFence() || r.GetFence() > r.GetShare() && !last.grant.isOfSet() {
		return nil
	}
	last.number = r.GetShare()
	s.shares = append(slices.Clone(s.shares[:len(s.shares)-1]), last)
	s.sharedFence, s.maxFence = r.GetFence(), max(r.GetShare(), r.GetFence())
	return s.onlyIf(true)
}

// isOfSet reports whether the grant is that of a set, whose shares have numbers below the fence of the phase that they begin.
func (op *operation) isOfSet() bool { return op != nil && op.of != nil }

func (s lockState) lockShared(op *operation, c *wire.Lock) []lockState {
	if c.Share != 0 {
		return s.reenterShared(op, c)
	}
	granted := s.grantShared(op, c)
	if op.reply == nil {
		return append(granted, s)
	}
	switch r := op.reply; r.GetCode() {
	case wire.Code_OK:
		var learned []lockState
		for _, g := range granted {
			learned = append(learned, g.learnShare(r)...)
		}
		return learned
	case wire.Code_LOCKED:
		owned := s.owner != nil && !s.unclaimed(op)
		if r.GetHolder().GetWaiting() {
			owned = false
		}
		return s.onlyIf(owned || op.contended)
	case wire.Code_LOCK_DELAY:
		return s.onlyIf(s.owner == nil && len(s.shares) == 0 && s.delayedUntil > 0)
	}
	return nil
}

// grantShared grants a share, or claims a hold of the session's earlier process: a share, the oldest first, or an exclusive
// hold, which becomes one. What is of a set, only a request for the set claims.
func (s lockState) grantShared(op *operation, c *wire.Lock) []lockState {
	sh := sharedHold{owner: op.session, handle: c.Handle, process: op.incarnation, grant: op, bounded: op.bounded(), holds: 1}
	left := slices.IndexFunc(s.shares, func(o sharedHold) bool { return o.isClaimedBy(op) })
	switch {
	case left >= 0:
		s.shares = slices.Delete(slices.Clone(s.shares), left, left+1)
		fence := s.sharedFence
		s = s.begin(sh)
		s.sharedFence = fence
		return s.onlyIf(true)
	case s.unclaimed(op):
		return s.begin(sh).onlyIf(true)
	}
	return s.begin(sh).onlyIf(s.owner == nil && s.delayedUntil <= op.returnedTime)
}

func (s lockState) reenterShared(op *operation, c *wire.Lock) []lockState {
	i := s.share(op, c.Handle, c.Share)
	r := op.reply
	if i < 0 {
		return s.onlyIf(r == nil || r.GetCode() == wire.Code_OWNERSHIP_LOST)
	}
	sh := s.shares[i]
	full := c.Limit > 0 && sh.holds >= c.Limit
	sh.holds++
	again := s.set(i, sh)
	switch {
	case r == nil && full:
		return s.onlyIf(true)
	case r == nil:
		return []lockState{again, s}
	case r.GetCode() == wire.Code_LIMIT_REACHED:
		return s.onlyIf(full)
	}
	return again.onlyIf(r.GetCode() == wire.Code_OK && !full && r.GetHolds() == sh.holds && s.fits(r, i))
}

// fits reports whether a reply names the share and its phase.
func (s lockState) fits(r *wire.Reply, i int) bool {
	return (s.shares[i].number == 0 || s.shares[i].number == r.GetShare()) && (s.sharedFence == 0 || s.sharedFence == r.GetFence())
}

func (s lockState) unlockShared(op *operation, c *wire.Unlock) []lockState {
	i := s.share(op, c.Handle, c.Share)
	if i < 0 {
		return s.onlyIf(op.reply == nil || op.reply.GetCode() == wire.Code_NOT_HELD)
	}
	return s.less(op, i)
}

// less releases one hold of a share.
func (s lockState) less(op *operation, i int) []lockState {
	sh := s.shares[i]
	sh.holds--
	after := s.set(i, sh)
	if op.reply == nil {
		return []lockState{after, s}
	}
	return after.onlyIf(op.reply.GetCode() == wire.Code_OK && op.reply.GetHolds() == sh.holds && op.reply.GetShare() != 0 && s.fits(op.reply, i))
}

func (s lockState) downgrade(op *operation, c *wire.Downgrade) []lockState {
	match := s.ownedBy(op, c.Handle) && s.fenceMatches(c.Fence) && s.tenant == 0
	downgraded := s.begin(sharedHold{owner: op.session, handle: c.Handle, process: op.incarnation, bounded: s.grant.bounded(), holds: s.holds})
	switch r := op.reply; {
	case r == nil && match:
		return []lockState{downgraded, s}
	case r == nil:
		return s.onlyIf(true)
	case r.GetCode() == wire.Code_OK && match:
		return downgraded.learnShare(r)
	case r.GetCode() == wire.Code_NOT_HELD:
		return s.onlyIf(!s.ownedBy(op, c.Handle))
	case r.GetCode() == wire.Code_OWNERSHIP_LOST:
		return s.onlyIf(s.ownedBy(op, c.Handle) && s.fence != c.Fence)
	}
	return nil
}
