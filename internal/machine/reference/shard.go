package reference

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Sets of shards: their workers, and the commands about them. What is assigned to whom is planned at the end of an entry.

// ShardSet is a set of shards that has workers, or a shard under a lock-delay.
type ShardSet struct {
	Name       string
	Count      uint32
	Next       uint32 // the count that it changes to; 0: none
	Generation uint64 // index at which it got its count
	Workers    []*ShardWorker
	Shards     []Shard // Count of them
	joins      uint64
	due        bool // to be planned
}

// ShardWorker is a handle of a session that has joined a set, or what is left of one whose session has ended.
type ShardWorker struct {
	Number   uint64
	Name     string
	Session  wire.ID // zero: it has ended and was released
	Handle   uint64
	Member   uint64
	Client   bool
	Capacity uint32
	Left     bool // by its process: its session was attached since it joined
	Leaving  bool
	Expired  bool
	settle   int64
	joined   uint64 // a fence of its own: shards under smaller ones are not claimed
	delay    int64  // what it has is not granted before; 0: none
	until    int64  // what it has goes to others then; 0: its session was not released, or it has expired
}

// Shard is a shard of a set.
type Shard struct {
	Owner  *ShardWorker // nil: none
	Fence  uint64       // of its last grant
	Moving bool         // its owner is to release it
	delay  int64        // it is not granted before; 0: none
}

// shards is the rules of shards.
type shards struct{ *Model }

// command executes a command about shards, or an earlier one.
func (x shards) command(t wire.Ticket, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_JoinShards:
		return x.join(op.JoinShards)
	case *wire.Command_LeaveShards:
		return x.leave(op.LeaveShards)
	case *wire.Command_ReleaseShards:
		return x.release(op.ReleaseShards)
	case *wire.Command_ResizeShards:
		return x.resize(op.ResizeShards)
	}
	return jobs(x).command(t, c)
}

// FindShards returns the set of shards of that name, or nil.
func FindShards(r *Model, name string) *ShardSet {
	for _, s := range r.ShardSets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// live reports whether a worker's session lives.
func (x shards) live(w *ShardWorker) bool {
	return w.Session != (wire.ID{}) && x.session(w.Session[:]) != nil
}

// deserted reports that the process of a worker has ended, and its session lives on: it keeps what it has, and gets no more.
func (x shards) deserted(w *ShardWorker) bool {
	s := x.session(w.Session[:])
	return s != nil && !s.Standalone && (s.Incarnation == wire.ID{} || w.Left)
}

// reserved reports that what a worker has waits for another one of its name.
func (x shards) reserved(w *ShardWorker) bool { return !x.live(w) && !w.Expired }

// claimed reports that a shard has an owner whose work on it may be under way.
func (x shards) claimed(sh Shard) bool {
	return sh.Owner != nil && x.live(sh.Owner) && sh.Fence > sh.Owner.joined
}

// free reports that a shard is reserved for no worker.
func (sh Shard) free() bool { return sh.Owner == nil || sh.Owner.Expired }

func (x shards) join(c *wire.JoinShards) *wire.Reply {
	if bad := checkJoin(c); bad != nil {
		return bad
	}
	session, bad := x.Model.live(c.Session)
	if bad != nil {
		return bad
	}
	s := FindShards(x.Model, c.Set)
	if s != nil {
		x.vanishDead(s)
		if bad := x.agree(s, c); bad != nil {
			return bad
		}
	}
	reply := &wire.Reply{Code: wire.Code_OK, Limit: c.Count}
	if s.worker(c.Session, c.Handle) != nil {
		x.reached("a join again")
		return reply
	}
	if w := x.former(s, session); w != nil {
		x.takeOver(s, w)
		x.enter(w, session, c)
		return reply
	}
	if x.full(s, c) {
		return answer(wire.Code_BUSY)
	}
	if s == nil {
		s = &ShardSet{Name: c.Set, Count: c.Count, Generation: x.index, Shards: make([]Shard, c.Count)}
		x.ShardSets = append(x.ShardSets, s)
	}
	x.reached("a new worker")
	s.joins++
	w := &ShardWorker{Number: s.joins}
	x.enter(w, session, c)
	s.Workers = append(s.Workers, w)
	if s.joins == 1 {
		x.announce(s)
	}
	s.due = true
	return reply
}

func checkJoin(c *wire.JoinShards) *wire.Reply {
	if bad := checkName(c.Set); bad != nil {
		return bad
	}
	if c.Count < 1 || c.Count > MaxShards || c.Capacity < 1 || c.Capacity > MaxCapacity || c.Settle < 0 || c.Settle > MaxSettle {
		return answer(wire.Code_INVALID)
	}
	return nil
}

// enter makes a worker that of the handle.
func (x shards) enter(w *ShardWorker, s *Session, c *wire.JoinShards) {
	x.Granted++
	w.joined = x.Granted
	w.Name, w.Session, w.Handle, w.Member, w.Client = s.name, s.ID, c.Handle, s.Member, s.Client
	w.Capacity, w.settle = c.Capacity, c.Settle
}

// agree begins a change of the count that a join wants, if no worker lives, or refuses another one than that of the set.
func (x shards) agree(s *ShardSet, c *wire.JoinShards) *wire.Reply {
	wanted := cmp.Or(s.Next, s.Count)
	switch {
	case wanted == c.Count:
		return nil
	case s.Next != 0 || slices.ContainsFunc(s.Workers, x.live):
		x.reached("refused for the count")
		return &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: wanted}
	case x.full(s, c):
		return answer(wire.Code_BUSY)
	}
	x.reached("a change of count by a join")
	x.change(s, c.Count)
	return nil
}

// crowded reports that there are too many shards for a set, nil: a new one, to have that count as well.
func (x shards) crowded(s *ShardSet, count uint32) bool {
	if s != nil && count <= max(s.Count, s.Next) {
		return false
	}
	n := count
	for _, o := range x.ShardSets {
		if o != s {
			n += max(o.Count, o.Next)
		}
	}
	return int(n) > x.reserving(MaxAllShards, ReservedShards)
}

// full reports that there is no room for another worker.
func (x shards) full(s *ShardSet, c *wire.JoinShards) bool {
	workers := 0
	for _, o := range x.ShardSets {
		workers += len(o.Workers)
	}
	switch {
	case s != nil && len(s.Workers) >= MaxShardWorkers:
		x.reached("too many workers")
	case workers >= x.reserving(MaxAllShardWorkers, ReservedShardWorkers):
		x.reached("too many workers of all sets")
	case s == nil && len(x.ShardSets) >= x.reserving(MaxShardSets, ReservedShardSets):
		x.reached("too many sets")
	case x.crowded(s, c.Count):
		x.reached("too many shards")
	default:
		return false
	}
	return true
}

// worker returns the worker of a handle; nil: there is none, or no set. That of an earlier process is no handle of this one.
func (s *ShardSet) worker(session []byte, handle uint64) *ShardWorker {
	if s == nil {
		return nil
	}
	for _, w := range s.Workers {
		if bytes.Equal(w.Session[:], session) && w.Handle == handle && !w.Left {
			return w
		}
	}
	return nil
}

// former returns the worker of which another one of the session takes over what it had: the first that an earlier process of
// the session has left, or one of the same name that has ended; nil: there is none.
func (x shards) former(s *ShardSet, session *Session) (first *ShardWorker) {
	if s == nil {
		return nil
	}
	for _, w := range s.Workers {
		if w.Session == session.ID && w.Left && !w.Leaving && (first == nil || w.joined < first.joined) {
			first = w
		}
	}
	for _, w := range s.Workers { // by number
		if first == nil && !w.Leaving && !x.live(w) && w.Name == session.name && (w.Name != "" || w.Member == session.Member) {
			first = w
		}
	}
	return first
}

// takeOver prepares a worker for another handle, which gets its number and its shards.
func (x shards) takeOver(s *ShardSet, w *ShardWorker) {
	switch {
	case w.Left:
		x.reached("taken over in an attached session")
	case w.Expired:
		x.reached("taken over after it has expired")
	default:
		x.reached("taken over")
	}
	w.Left, w.Expired, w.until = false, false, 0
	if w.delay <= x.Now {
		w.delay = 0
	} else {
		x.reached("taken over in its lock-delay")
	}
	s.keep(w)
	x.announce(s)
}

func (x shards) leave(c *wire.LeaveShards) *wire.Reply {
	if bad := checkName(c.Set); bad != nil {
		return bad
	}
	if _, bad := x.Model.live(c.Session); bad != nil {
		return bad
	}
	s := FindShards(x.Model, c.Set)
	w := s.worker(c.Session, c.Handle)
	switch {
	case w == nil:
		return answer(wire.Code_NOT_HELD)
	case !w.Leaving:
		x.reached("a leave")
		x.dismissed(s, w)
		x.announce(s)
	}
	return answer(wire.Code_OK)
}

func (x shards) release(c *wire.ReleaseShards) *wire.Reply {
	if bad := checkName(c.Set); bad != nil {
		return bad
	}
	switch {
	case len(c.Shards) != len(c.Fences):
		return answer(wire.Code_INVALID)
	case len(c.Shards) > MaxReleasedShards:
		return answer(wire.Code_TOO_LARGE)
	}
	session, bad := x.Model.live(c.Session)
	if bad != nil {
		return bad
	}
	s := FindShards(x.Model, c.Set)
	w := s.worker(c.Session, c.Handle)
	if w == nil {
		return answer(wire.Code_NOT_HELD)
	}
	for i, n := range c.Shards {
		if n >= s.Count || s.Shards[n].Owner != w || !x.claimed(s.Shards[n]) || s.Shards[n].Fence != c.Fences[i] {
			x.reached("a release ignored")
			continue
		}
		until := int64(0)
		if c.Lost && session.delay > 0 {
			x.reached("a release with a lock-delay")
			until = later(x.Now, session.delay)
		}
		x.reached("a release")
		x.disown(s, int(n), until)
	}
	return answer(wire.Code_OK)
}

// disown takes a shard from its owner.
func (x shards) disown(s *ShardSet, n int, delay int64) {
	s.Shards[n] = Shard{delay: delay}
	x.changes(fact.ShardChange{Set: s.Name, Shard: uint32(n)})
	s.due = true
}

func (x shards) resize(c *wire.ResizeShards) *wire.Reply {
	if bad := checkName(c.Set); bad != nil {
		return bad
	}
	if c.Count < 1 || c.Count > MaxShards {
		return answer(wire.Code_INVALID)
	}
	s := FindShards(x.Model, c.Set)
	switch {
	case s == nil, s.Next == c.Count, s.Next == 0 && s.Count == c.Count:
		return answer(wire.Code_OK)
	case s.Next != 0:
		x.reached("refused for another change")
		return answer(wire.Code_BUSY)
	case x.crowded(s, c.Count):
		return answer(wire.Code_BUSY)
	}
	x.reached("a change of count")
	x.change(s, c.Count)
	return answer(wire.Code_OK)
}

// change begins a change of the count.
func (x shards) change(s *ShardSet, count uint32) {
	s.Next = count
	for _, w := range s.Workers {
		if !w.Leaving {
			x.dismissed(s, w)
		}
	}
	x.announce(s)
}

// dismissed has a worker leave. What it has not claimed it cannot release, as one of an earlier process, and what waits for
// another one of its name need not do so any more; a lock-delay runs on.
func (x shards) dismissed(s *ShardSet, w *ShardWorker) {
	w.Leaving = true
	switch {
	case x.live(w):
		until := w.delay
		if session := x.session(w.Session[:]); w.Left && session.delay > 0 {
			until = max(until, later(x.Now, session.delay))
		}
		for i, sh := range s.Shards {
			if sh.Owner == w && (w.Left || !x.claimed(sh)) {
				x.reached("unclaimed, and its worker leaves")
				s.Shards[i] = Shard{}
				if until > x.Now {
					s.Shards[i].delay = until
				}
			}
		}
	case w.Session == (wire.ID{}) && !w.Expired:
		if w.until = w.delay; w.until <= x.Now {
			w.expire()
		}
	}
}

// changes emits what has changed.
func (x shards) changes(c fact.ShardChange) { x.shardChanges = append(x.shardChanges, c) }

// announce emits, once in an entry, that more of a set has changed than its shards, and has it planned.
func (x shards) announce(s *ShardSet) {
	s.due = true
	if all := (fact.ShardChange{Set: s.Name, All: true}); !slices.Contains(x.shardChanges, all) {
		x.changes(all)
	}
}
