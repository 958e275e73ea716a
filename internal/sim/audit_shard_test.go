package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// shardAudit checks the shards of sets with a model of its own, see auditedSet. Commands are checked one by one, what the plan does at the
// end of each entry.
type shardAudit struct {
	*audit
	sets  map[string]*auditedSet
	order []*auditedSet
}

func newShardAudit(a *audit) *shardAudit {
	return &shardAudit{audit: a, sets: make(map[string]*auditedSet)}
}

// command handles what a command, or group time alone, changes of the workers.
func (a *shardAudit) command(p part, outcomes []fact.Outcome) {
	if p.command == nil {
		a.advance()
		return
	}
	i := slices.IndexFunc(outcomes, func(o fact.Outcome) bool { return o.Ticket == p.ticket })
	if i < 0 || a.answered[p.ticket] {
		return
	}
	reply := outcomes[i].Reply
	if reply.GetCode() == wire.Code_GROUP_DELETED {
		return
	}
	switch c := p.command; {
	case c.GetJoinShards() != nil:
		a.join(c.GetJoinShards(), reply)
	case c.GetLeaveShards() != nil:
		if w := a.worker(c.GetLeaveShards().Set, c.GetLeaveShards().Session, c.GetLeaveShards().Handle, reply); w != nil && !w.leaving {
			a.sim.shards.left++
			a.leave(a.sets[c.GetLeaveShards().Set], w)
		}
	case c.GetReleaseShards() != nil:
		a.release(c.GetReleaseShards(), reply)
	case c.GetResizeShards() != nil:
		a.resize(c.GetResizeShards(), reply)
	case c.GetAttachSession() != nil && reply.GetCode() == wire.Code_OK:
		a.sessionAttached(wire.ID(c.GetAttachSession().Id))
	}
}

// join: a worker is refused only for its count.
func (a *shardAudit) join(c *wire.JoinShards, reply *wire.Reply) {
	set, id := a.sets[c.Set], wire.ID(c.Session)
	s, alive := a.sessions[id]
	wanted := set == nil || set.wanted() == c.Count
	idle := set != nil && set.next == 0 && !slices.ContainsFunc(set.workers, func(w *auditedWorker) bool { return !w.ended })
	switch {
	case reply.GetCode() == wire.Code_LIMIT_MISMATCH && !wanted && !idle && reply.Limit == set.wanted():
		a.sim.shards.mismatched++
		return
	case reply.GetCode() == wire.Code_SESSION_EXPIRED || reply.GetCode() == wire.Code_UNKNOWN_INCARNATION:
		return
	case reply.GetCode() != wire.Code_OK || !alive || reply.Limit != c.Count || !wanted && !idle:
		a.sim.fail("%v: %v, of %+v", c, reply, set)
	}
	if set == nil {
		set = &auditedSet{name: c.Set, count: c.Count, shards: make([]auditedShard, c.Count), all: true}
		a.sets[c.Set], a.order = set, append(a.order, set)
	}
	if set.find(id, c.Handle) != nil {
		return
	}
	former := set.former(s)
	if !wanted {
		a.change(set, c.Count)
		former = nil
	}
	a.employ(set, former, s, c)
}

// employ makes the handle a worker, in the place of a former one if there is one.
func (a *shardAudit) employ(set *auditedSet, w *auditedWorker, s machine.SessionView, c *wire.JoinShards) {
	a.sim.shards.joined++
	if w == nil {
		set.joins++
		w = &auditedWorker{number: set.joins}
		set.workers = append(set.workers, w)
		set.calm.joined(w, c.Capacity)
	} else {
		a.sim.shards.returned += btoi(w.ended)
		a.sim.shards.claimed += btoi(!w.ended)
		set.all = true
		set.calm.disturb()
		set.stay(w)
	}
	delay := w.delay
	*w = auditedWorker{
		number: w.number, session: s.ID, handle: c.Handle, name: s.Name, member: s.Member, capacity: c.Capacity, settle: c.Settle,
		base: a.fence, delay: delay,
	}
	a.sim.trace("%s: %s/%d is worker %d", set.name, s.ID, c.Handle, w.number)
}

// worker returns the worker that a command is about, or nil if the command was refused. It is refused only if there is none.
func (a *shardAudit) worker(name string, session []byte, handle uint64, reply *wire.Reply) (w *auditedWorker) {
	if set := a.sets[name]; set != nil {
		w = set.find(wire.ID(session), handle)
	}
	switch reply.GetCode() {
	case wire.Code_OK:
		if w != nil {
			return w
		}
	case wire.Code_NOT_HELD:
		if w == nil {
			return nil
		}
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION:
		return nil
	}
	a.sim.fail("%s: %x/%d: %v, of %+v", name, session, handle, reply, w)
	return nil
}

// release: those shards are released that the worker has under these fences.
func (a *shardAudit) release(c *wire.ReleaseShards, reply *wire.Reply) {
	w := a.worker(c.Set, c.Session, c.Handle, reply)
	if w == nil {
		return
	}
	set := a.sets[c.Set]
	for i, number := range c.Shards {
		if int(number) >= len(set.shards) {
			continue
		}
		sh := &set.shards[number]
		if sh.owner != w || !sh.claimed() || sh.fence != c.Fences[i] {
			continue
		}
		if !sh.moving || c.Lost {
			set.calm.disturb()
		}
		a.sim.shards.released++
		set.released = append(set.released, number)
		*sh = auditedShard{fence: sh.fence}
		if delay := a.sessions[w.session].LockDelay; c.Lost && delay > 0 {
			a.sim.shards.abandoned++
			sh.delay = a.m.Now() + delay
		}
	}
}

// resize: a change of the count is refused only if another one is under way.
func (a *shardAudit) resize(c *wire.ResizeShards, reply *wire.Reply) {
	set := a.sets[c.Set]
	busy := set != nil && set.next != 0 && set.next != c.Count
	switch {
	case reply.GetCode() == wire.Code_UNKNOWN_INCARNATION:
	case reply.GetCode() != wire.Code_OK && !(reply.GetCode() == wire.Code_BUSY && busy), reply.GetCode() == wire.Code_OK && busy:
		a.sim.fail("%v: %v, of %+v", c, reply, set)
	case busy || set == nil || set.wanted() == c.Count:
	default:
		a.change(set, c.Count)
	}
}

// entry handles what the plan at the end of an entry has done, and checks the sets.
func (a *shardAudit) entry(facts []fact.ShardChange) {
	for _, set := range a.order {
		set.settle()
	}
	for _, f := range facts {
		set := a.sets[f.Set]
		switch {
		case set == nil:
			a.sim.fail("a fact of a set that nothing has joined: %+v", f)
		case f.All:
			set.emitted = true
		case f.Fence == 0:
			if len(set.released) == 0 || set.released[0] != f.Shard {
				a.sim.fail("%+v is emitted, and released were %v", f, set.released)
			}
			set.released = set.released[1:]
		case f.Moving:
			a.recalled(set, f)
		default:
			a.granted(set, f)
		}
	}
	a.order = slices.DeleteFunc(a.order, func(set *auditedSet) bool {
		set.removeIdle()
		removed := len(set.workers) == 0 && !slices.ContainsFunc(set.shards, func(sh auditedShard) bool { return sh.delay != 0 })
		if removed {
			set.all = true
			delete(a.sets, set.name)
		}
		a.check(set, removed)
		set.all, set.emitted = false, false
		return removed
	})
}

// granted: a shard is granted to a worker only if no other may work on it, and none of another name waits for it.
func (a *shardAudit) granted(set *auditedSet, f fact.ShardChange) {
	w := set.find(f.Session, f.Handle)
	if _, alive := liveSession(a.m, f.Session); !alive || w == nil || !w.takes() || int(f.Shard) >= len(set.shards) || set.next != 0 {
		a.sim.fail("%+v is granted, to %+v, session alive %t, set %+v", f, w, alive, set)
	}
	sh, now := &set.shards[f.Shard], a.m.Now()
	own := sh.owner == w && !sh.claimed()
	switch {
	case !own && !sh.free():
		a.sim.fail("%+v is granted at %d, and %+v has it under fence %d until %d", f, now, sh.owner, sh.fence, sh.owner.until())
	case sh.delay > now || own && w.delay > now:
		a.sim.fail("%+v is granted at %d, under a lock-delay until %d", f, now, max(sh.delay, w.delay))
	case f.Fence <= a.fence:
		a.sim.fail("%+v is granted, and the largest fence before is %d", f, a.fence)
	}
	a.sim.shards.granted++
	a.sim.shards.kept += btoi(own)
	a.fence = f.Fence
	*sh = auditedShard{owner: w, fence: f.Fence}
	a.sim.trace("%s: shard %d is granted to worker %d, fence %d", set.name, f.Shard, w.number, f.Fence)
}

// mostMoving is how many shards of a set are to move at a time.
const mostMoving = 16

// recalled: a shard is to move only from a worker that has more than its part, and only if no shards wait for a worker of a name.
func (a *shardAudit) recalled(set *auditedSet, f fact.ShardChange) {
	w := set.find(f.Session, f.Handle)
	if w == nil || int(f.Shard) >= len(set.shards) || set.next != 0 || !w.takes() {
		a.sim.fail("%+v is to move, from %+v, set %+v", f, w, set)
	}
	sh := &set.shards[f.Shard]
	if sh.owner != w || !sh.claimed() || sh.fence != f.Fence || sh.moving || set.waits() {
		a.sim.fail("%+v is to move, from %+v, which has %+v; shards wait %t", f, w, *sh, set.waits())
	}
	if few, _ := set.part(w); set.load(w) <= few {
		a.sim.fail("%+v is to move from worker %d, which has %d, and is to have %d at least", f, w.number, set.load(w), few)
	}
	sh.moving = true
	if n := set.moving(); n > mostMoving {
		a.sim.fail("%d shards of %s are to move", n, set.name)
	}
	a.sim.shards.recalled++
	a.sim.trace("%s: shard %d is to move from worker %d, fence %d", set.name, f.Shard, w.number, f.Fence)
}
