package reference

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Share is a shared hold of a lock or, with until, its lock-delay.
type Share struct {
	Place
	Number    uint64
	Holds     uint32
	Unclaimed bool
	until     int64
}

// sharing is the rules of shared holds.
type sharing struct{ *Model }

// level reports whether the group is at the level of shared holds.
func (x sharing) level() bool { return x.Level >= wire.LevelShared }

// Live returns the shares that are held.
func (l *Lock) Live() (live []Share) {
	for _, sh := range l.Shares {
		if sh.until == 0 {
			live = append(live, sh)
		}
	}
	return live
}

// exclusive reports whether a request waits that wants the lock for itself.
func (l *Lock) exclusive() bool {
	return slices.ContainsFunc(l.Queue, func(p Place) bool { return !p.shared })
}

// due reports that the head of the queue waits only for the next entry.
func (x sharing) due(l *Lock) bool {
	return l.Owner == nil && l.until == 0 && len(l.Queue) > 0 && l.Queue[0].shared && sets(x).holdsBack(l, l.Queue[0]) == nil
}

// share finds a share that a handle of the session holds; -1: there is none.
func (l *Lock) share(session []byte, number uint64) int {
	if l == nil {
		return -1
	}
	return slices.IndexFunc(l.Shares, func(sh Share) bool {
		return sh.Number == number && sh.until == 0 && !sh.Unclaimed && sh.set == nil && bytes.Equal(sh.Session[:], session)
	})
}

// unclaimed finds the session's oldest unclaimed share; -1: there is none.
func (l *Lock) unclaimed(session wire.ID) int {
	if l == nil {
		return -1
	}
	return slices.IndexFunc(l.Shares, func(sh Share) bool { return sh.Unclaimed && sh.until == 0 && sh.Session == session })
}

func (x sharing) request(l *Lock, p Place, c *wire.Lock) *wire.Reply {
	p.shared = true
	switch {
	case c.Election:
		return answer(wire.Code_INVALID)
	case c.Share != 0:
		return x.again(l, c)
	case l != nil && l.Unclaimed && l.Owner.Session == p.Session:
		p.arrival = 0
		l.Owner, l.Unclaimed, l.holds, l.Lingering, l.Fence = nil, false, 0, false, 0
		reply := x.take(l, p)
		x.serve(l)
		x.recallClaimed(l, reply.Share)
		return reply
	case l.heldBy(c.Session, c.Handle) && c.Reentrant:
		return answer(wire.Code_INVALID)
	}
	if i := l.unclaimed(p.Session); i >= 0 {
		fence := l.SharedFence
		l.Shares = slices.Delete(l.Shares, i, i+1)
		reply := x.take(l, p)
		reply.Fence, l.SharedFence = fence, fence
		x.recallClaimed(l, reply.Share)
		return reply
	}
	free := l == nil || l.Owner == nil && l.until == 0 && !l.exclusive() && sets(x).holdsBack(l, p) == nil
	switch {
	case !free && !c.Wait:
		return x.refusal(l, p)
	case l != nil && len(l.Shares)+len(l.Queue) >= MaxShares:
		shared := len(l.Shares)
		for _, other := range l.Queue {
			if other.shared {
				shared++
			}
		}
		if shared >= MaxShares {
			return answer(wire.Code_BUSY)
		}
	}
	switch {
	case !free:
		return x.line(l, p, c)
	case l == nil:
		l = &Lock{Name: c.Name}
		x.Locks = append(x.Locks, l)
	}
	reply := x.take(l, p)
	sets(x).grantedOne(l, p)
	return reply
}

// line puts a request at the end of the queue.
func (x sharing) line(l *Lock, p Place, c *wire.Lock) *wire.Reply {
	if len(l.Queue) >= MaxWaiters || x.queued(p.Ticket.Incarnation) >= MaxQueued {
		return answer(wire.Code_BUSY)
	}
	if c.RefuseDeadlock && x.Level >= wire.LevelDeadlock {
		if cycle := deadlocks(x).closes(waiting{lock: l, Place: p}); cycle != nil {
			return &wire.Reply{Code: wire.Code_DEADLOCK, Cycle: cycle}
		}
	}
	x.recall(l, p)
	x.arrivals++
	p.arrival, p.Since = x.arrivals, x.stamp()
	l.Queue = append(l.Queue, p)
	reply := &wire.Reply{Code: wire.Code_QUEUED, Position: uint32(len(l.Queue) + len(sets(x).await(l))), Holder: x.holder(l)}
	s := sets(x).holdsBack(l, p)
	switch {
	case p.shared:
		reply.Holder = x.obstacle(l)
	case s != nil && l.Owner == nil && len(l.Live()) == 0:
		reply.Holder = sets(x).waits(s.Place)
	}
	return reply
}

// refusal is what a shared request gets that does not wait.
func (x sharing) refusal(l *Lock, p Place) *wire.Reply {
	if l.Owner == nil && !l.exclusive() && sets(x).holdsBack(l, p) == nil {
		return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: max(0, l.until-x.Now)}
	}
	if l.Owner != nil && (!p.linger || l.Owner.Session != p.Session) {
		x.recallOwner(l)
	}
	return &wire.Reply{Code: wire.Code_LOCKED, Holder: x.obstacle(l)}
}

// exclusion is what an exclusive request gets that does not wait, if there is no exclusive owner.
func (x sharing) exclusion(l *Lock, p Place) *wire.Reply {
	if len(l.Live()) > 0 || x.due(l) {
		x.recallShares(l)
		return &wire.Reply{Code: wire.Code_LOCKED, Holder: x.holder(l)}
	}
	if s := sets(x).holdsBack(l, p); s != nil {
		return &wire.Reply{Code: wire.Code_LOCKED, Holder: sets(x).waits(s.Place)}
	}
	until := l.until
	for _, sh := range l.Shares {
		until = max(until, sh.until)
	}
	return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: max(0, until-x.Now)}
}

// obstacle describes the exclusive owner, or the exclusive request at the head of the queue, or the set before that.
func (x sharing) obstacle(l *Lock) *wire.Holder {
	if l.Owner != nil {
		return x.holder(l)
	}
	s := sets(x).holdsBack(l, Place{shared: true})
	switch {
	case len(l.Queue) > 0 && !l.Queue[0].shared && (s == nil || l.Queue[0].arrival < s.arrival):
		return sets(x).waits(l.Queue[0])
	case s != nil:
		return sets(x).waits(s.Place)
	}
	return nil
}

// oldest describes the share with the smallest number.
func (x sharing) oldest(l *Lock) *wire.Holder {
	live := l.Live()
	if len(live) == 0 || x.lateSession(live[0].Session) != nil {
		return nil
	}
	sh := live[0]
	return &wire.Holder{Session: sh.Session[:], Member: x.session(sh.Session[:]).Member, Handle: sh.Handle, Fence: l.SharedFence, Shared: true}
}

// take makes a share of a request.
func (x sharing) take(l *Lock, p Place) *wire.Reply {
	x.Granted++
	if len(l.Live()) == 0 {
		l.SharedFence = x.Granted
	}
	p.End = bounding(x).begin(p)
	p.Ticket, p.Since = p.granted(), x.stamp()
	l.Shares = append(l.Shares, Share{Place: p, Number: x.Granted, Holds: 1})
	return p.state(l.stated(len(l.Shares)-1), p.requested)
}

// stated is the reply about a share.
func (l *Lock) stated(i int) *wire.Reply {
	return &wire.Reply{Code: wire.Code_OK, Fence: l.SharedFence, Holds: l.Shares[i].Holds, Share: l.Shares[i].Number}
}

func (x sharing) again(l *Lock, c *wire.Lock) *wire.Reply {
	i := l.share(c.Session, c.Share)
	switch {
	case i < 0:
		return answer(wire.Code_OWNERSHIP_LOST)
	case !c.Reentrant:
		return answer(wire.Code_INVALID)
	case c.Limit > 0 && l.Shares[i].Holds >= c.Limit:
		return answer(wire.Code_LIMIT_REACHED)
	}
	l.Shares[i].Holds++
	return l.Shares[i].state(l.stated(i), x.Now)
}

func (x sharing) unlock(c *wire.Unlock) *wire.Reply {
	l := x.find(false, c.Name)
	i := l.share(c.Session, c.Share)
	if i < 0 || c.Election {
		return answer(wire.Code_NOT_HELD)
	}
	defer x.traced(c.Trace)()
	return x.less(l, i)
}

// less releases one hold of a share.
func (x sharing) less(l *Lock, i int) *wire.Reply {
	l.Shares[i].Holds--
	reply := l.stated(i)
	if l.Shares[i].Holds == 0 {
		x.lose(l, l.Shares[i].Number, 0)
	}
	return reply
}

// lose ends a share, or starts or ends its lock-delay.
func (x sharing) lose(l *Lock, number uint64, until int64) {
	i := slices.IndexFunc(l.Shares, func(sh Share) bool { return sh.Number == number })
	if until > x.Now {
		l.Shares[i] = Share{Number: number, until: until}
	} else {
		l.Shares = slices.Delete(l.Shares, i, i+1)
	}
	x.serve(l)
}

func (x sharing) downgrade(c *wire.Downgrade) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if _, bad := x.live(c.Session); bad != nil {
		return bad
	}
	l := x.find(false, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	case l.Lingering:
		return answer(wire.Code_INVALID)
	}
	holds, end := l.holds, l.Owner.End
	p := Place{Session: l.Owner.Session, Handle: l.Owner.Handle, Label: l.Owner.Label, shared: true}
	l.Owner, l.holds, l.Fence = nil, 0, 0
	x.take(l, p)
	l.Shares[len(l.Shares)-1].Holds, l.Shares[len(l.Shares)-1].End = holds, end
	reply := end.state(l.stated(len(l.Shares)-1), x.Now)
	defer x.traced(c.Trace)()
	x.serve(l)
	return reply
}

// serve grants to the head of the queue, once the lock is free for it.
func (x sharing) serve(l *Lock) {
	if l.Job != "" {
		jobs(x).serve(l)
		return
	}
	for granted, looked := 0, 0; l.Owner == nil && l.until == 0; {
		if sets(x).serve(l, &looked); l.Owner != nil {
			return
		}
		if len(l.Queue) == 0 {
			if len(l.Shares) == 0 && len(sets(x).await(l)) == 0 {
				x.Locks = slices.DeleteFunc(x.Locks, func(o *Lock) bool { return o == l })
			}
			return
		}
		next := l.Queue[0]
		if !next.shared && len(l.Shares) > 0 && (x.quota <= 0 || x.lateSession(next.Session) == nil) {
			return
		}
		if x.dismissDead(&l.Queue) {
			continue
		}
		if sets(x).holdsBack(l, next) != nil || next.shared && granted > 0 && x.grants <= 0 {
			return
		}
		l.Queue = slices.Clone(l.Queue[1:])
		var reply *wire.Reply
		if next.shared {
			granted++
			x.grants--
			reply = x.take(l, next)
		} else {
			reply = x.grant(l, next)
		}
		sets(x).grantedOne(l, next)
		reply.Trace = x.trace
		x.final(next.Ticket, reply)
	}
}

// goOn grants what the entry before had no room for.
func (x sharing) goOn() {
	for x.grants > 0 {
		var first *Lock
		for _, l := range x.Locks {
			if (x.due(l) || jobs(x).due(l)) && (first == nil || l.Queue[0].arrival < first.Queue[0].arrival) {
				first = l
			}
		}
		if first == nil {
			return
		}
		x.serve(first)
	}
}

// considerDelays offers the lock-delays of shares, by their durable keys.
func (x sharing) considerDelays(consider func(at int64, key string, end func())) {
	for _, l := range x.Locks {
		for _, sh := range l.Shares {
			consider(sh.until, "h"+l.Name+"\x00"+string(binary.BigEndian.AppendUint64(nil, sh.Number)), func() { x.lose(l, sh.Number, 0) })
		}
	}
}

// ofSession returns the first share of a session, by number.
func (x sharing) ofSession(id wire.ID) (at *Lock, number uint64) {
	for _, l := range x.Locks {
		for _, sh := range l.Live() {
			if sh.Session == id && sh.set == nil && (at == nil || sh.Number < number) {
				at, number = l, sh.Number
			}
		}
	}
	return at, number
}

func (x sharing) releaseOf(d *dead) bool {
	l, number := x.ofSession(d.s.ID)
	if l != nil {
		x.lose(l, number, d.until)
	}
	return l != nil
}

// withdraw undoes the first hold of the share that a ticket has obtained.
func (x sharing) withdraw(t wire.Ticket) *wire.Reply {
	for _, l := range x.Locks {
		for i, sh := range l.Shares {
			if sh.until == 0 && !sh.Unclaimed && sh.Ticket == t && x.lateSession(sh.Session) == nil {
				l.Shares[i].Ticket = wire.Ticket{}
				return x.less(l, i)
			}
		}
	}
	return nil
}
