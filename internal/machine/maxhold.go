package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// A hold may have an end in time: so long after its grant, by group time, whatever becomes of its
// session. It is lost then, as with its session, so the session's lock-delay follows. The
// session and what else it holds live on.

// bound is the end in time of a hold.
type bound struct {
	of        endable
	ends      int64 // group time
	requested int64 // group time at which the request for the hold was applied
	at        int   // position in Machine.bounds
}

// endable is a hold: of a lock, a share, a set or permits.
type endable interface {
	place() place
	bound() *bound // nil: it does not end in time
	setBound(*bound)
	touch(*dirty) // it has changed
	// lose takes the hold from its owner, at once or when its lock-delay ends.
	lose(m *Machine, until int64)
}

func (sh *share) bound() *bound { return sh.end }
func (p *permit) bound() *bound { return p.end }

func (sh *share) setBound(b *bound) { sh.end = b }
func (p *permit) setBound(b *bound) { p.end = b }

func (sh *share) touch(d *dirty) { d.put(sh.key(), sh) }
func (p *permit) touch(d *dirty) { d.put(p.key(), p) }

func (sh *share) lose(m *Machine, until int64) { sharing{m}.endShare(sh, until) }
func (p *permit) lose(m *Machine, until int64) { m.endPermit(p, until) }

// owner returns the session that has the hold.
func (b *bound) owner() *session {
	switch of := b.of.(type) {
	case *lock:
		return of.owner
	case *share:
		return of.owner
	case *permit:
		return of.owner
	case *set:
		return of.session
	}
	return nil
}

// names is how many names the hold is of.
func (b *bound) names() int {
	if s, ok := b.of.(*set); ok {
		return len(s.parts)
	}
	return 1
}

func (b *bound) state() (ends, requested int64) {
	if b == nil {
		return 0, 0
	}
	return b.ends, b.requested
}

// fields appends what LockState, ShareState and PermitState have of the end.
func (b *bound) fields(w *wire.Writer) {
	if b != nil {
		w.Number(20, uint64(b.ends))
		w.Number(21, uint64(b.requested))
	}
}

// byMaxHold orders the holds that end in time by that.
func byMaxHold(a, b *bound) int {
	return cmp.Or(cmp.Compare(a.ends, b.ends), a.of.place().compare(b.of.place()))
}

func newBounds(v *ordered.Visits) ordered.Heap[*bound] {
	return ordered.NewHeap(v, byMaxHold, func(b *bound) *int { return &b.at })
}

// bounding is a machine as far as holds end in time.
type bounding struct{ *Machine }

// hasMaxHold reports whether the group is at the level of holds that end in time.
func (x bounding) hasMaxHold() bool { return x.levels.agreed >= wire.LevelMaxHold }

// check returns nil or the refusal of the time after which a hold is to end. possible says
// whether a hold of that kind can end in time.
func (x bounding) check(maxHold int64, possible bool) *wire.Reply {
	switch {
	case maxHold == 0 || !x.hasMaxHold():
		return nil
	case !possible:
		return x.refuse(wire.Code_INVALID, "leadership and a lock that lingers do not end by MaxHold")
	case maxHold < MinMaxHold || maxHold > MaxMaxHold:
		return x.refuse(wire.Code_INVALID, "the time of MaxHold is out of range: want 1 ms to 24 h")
	}
	return nil
}

// maxHold returns the time after which a hold ends; 0: it does not end in time.
func (x bounding) maxHold(requested int64) int64 {
	if !x.hasMaxHold() {
		return 0
	}
	return requested
}

// begin gives the hold that was granted to w the end that w wants, and adds that to the reply.
func (x bounding) begin(of endable, w *waiter, r *wire.Reply) {
	if w.maxHold == 0 {
		return
	}
	b := &bound{of: of, ends: after(x.now, w.maxHold), requested: x.now}
	if w.position != 0 {
		b.requested = w.since
	}
	x.add(b)
	b.reply(r, b.requested)
}

func (x bounding) add(b *bound) {
	b.of.setBound(b)
	x.bounds.Push(b)
}

// drop makes the hold end by its session alone.
func (x bounding) drop(b *bound) {
	if b != nil {
		x.bounds.Remove(b)
		b.of.setBound(nil)
	}
}

// reply adds the end to the reply to a request that was applied at that time.
func (b *bound) reply(r *wire.Reply, requested int64) {
	if b != nil {
		r.Allowed, r.Now = max(0, b.ends-requested), requested
	}
}

// left returns the time left until the hold ends, 1 ns at least; 0: it does not end in time.
func (b *bound) left(now int64) int64 {
	if b == nil {
		return 0
	}
	return max(1, b.ends-now)
}

// end ends the holds whose time has passed, by end, then by place, as far as the entry may. The deadline of
// the rest has passed.
func (x bounding) end() {
	for b := x.bounds.First(); b != nil && b.ends <= x.now && x.left > 0; b = x.bounds.First() {
		x.left -= b.names()
		until := after(x.now, b.owner().lockDelay)
		if b.owner().dead() {
			until = b.owner().delayUntil()
		}
		b.of.lose(x.Machine, until)
	}
}

// renewal is the reply to Renew. What its process holds ends in time that it knows since then.
func (x bounding) renewal() *wire.Reply {
	r := x.reply(wire.Code_OK)
	if x.hasMaxHold() {
		r.Now = x.now
	}
	return r
}

// extend moves the end of a hold.
func (x bounding) extend(c *wire.Extend) *wire.Reply {
	possible := c.Space == wire.Space_LOCK || c.Space == wire.Space_SEMAPHORE
	name := x.checkName(c.Name)
	if c.Set {
		name, possible = nil, true
	}
	if r := cmp.Or(name, x.check(c.MaxHold, possible)); r != nil {
		return r
	}
	s, refusal := x.live(c.Session)
	if s == nil {
		return refusal
	}
	of, r := x.holdOf(s, c)
	switch {
	case of == nil:
		return r
	case c.MaxHold == 0 || of.bound() == nil:
		return x.refuse(wire.Code_INVALID, "only a hold with MaxHold can be extended")
	}
	b := of.bound()
	b.ends = after(x.now, c.MaxHold)
	x.bounds.Fix(b)
	of.touch(&x.dirty)
	b.reply(r, x.now)
	return r
}

// holdOf returns what an Extend names, with the reply that states it; or nil, with the refusal.
func (x bounding) holdOf(s *session, c *wire.Extend) (endable, *wire.Reply) {
	if c.Set {
		set := x.sets.of(s, c.Fence)
		if set == nil {
			return nil, x.reply(wire.Code_NOT_HELD)
		}
		r := x.reply(wire.Code_OK)
		r.Fence, r.Holds = set.fence, 1
		return set, r
	}
	if c.Space == wire.Space_SEMAPHORE {
		p := x.semaphores.permitOf(s, c.Name, c.Fence)
		if p == nil {
			return nil, x.reply(wire.Code_NOT_HELD)
		}
		r := x.reply(wire.Code_OK)
		r.Fence, r.Holds = p.fence, p.n
		return p, r
	}
	if c.Share != 0 {
		var sh *share
		if l := x.locks.byName[c.Name]; l != nil {
			sh = l.phase().find(s, c.Share)
		}
		if sh == nil {
			return nil, x.reply(wire.Code_NOT_HELD)
		}
		return sh, sharing(x).sharedHold(sh)
	}
	l, refusal := x.Machine.holdOf(s, &x.locks, c.Name, c.Handle, c.Fence)
	if l == nil {
		return nil, refusal
	}
	return l, x.holding(l)
}
