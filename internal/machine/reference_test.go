package machine

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// The machine's dumb twin: the rules of DESIGN section 4 written down once more
// with slices, copies and linear searches, and nothing shared with the machine
// but the messages and the limits. It is slow on purpose: whatever is clever in
// the machine is absent here.
type reference struct {
	index    uint64
	now      int64
	granted  uint64
	arrivals int
	members  []refMember
	checks   []*refCheck
	incs     []refIncarnation
	sessions []*refSession
	locks    []*refLock // and elections
	sems     []*refSemaphore
	keys     refKeys
	delays   []refKeyDelay

	outcomes []wire.Outcome
	ended    []wire.Ended
	leaders  []wire.LeaderChange
}

type refMember struct {
	id, boot uint64
	attempt  uint32
	last     wire.ID
	silent   bool
	left     bool
}

type refIncarnation struct {
	id           wire.ID
	member       uint64
	ttl, renewed int64
	floor        uint64
	answered     []wire.Outcome
}

type refSession struct {
	id, inc    wire.ID // inc is zero when its process is gone
	member     uint64
	ttl, delay int64
	created    uint64
	behavior   wire.Behavior
	checks     []string
}

// refPlace is who asks: for a lock, an election or permits.
type refPlace struct {
	session wire.ID
	handle  uint64
	ticket  wire.Ticket
	permits uint32
	value   []byte
	arrival int
}

type refLock struct {
	name     string
	election bool
	owner    *refPlace
	left     bool
	holds    uint32
	fence    uint64
	until    int64
	queue    []refPlace
}

// apply takes a decoded batch; nil is the first entry of a term.
func (r *reference) apply(index uint64, b *wire.Batch) wire.Result {
	r.index, r.outcomes, r.ended, r.leaders, r.keys.changed = index, nil, nil, nil, nil
	if b == nil {
		r.startTerm()
		return wire.Result{}
	}
	r.now = max(r.now, b.Time)
	r.fire()
	for _, s := range b.Submissions {
		if len(s.Incarnation) == 16 {
			r.submission(wire.ID(s.Incarnation), s)
		}
	}
	return wire.Result{Outcomes: r.outcomes, Ended: r.ended, Keys: r.keys.changed, Leaders: r.leaders}
}

func (r *reference) startTerm() {
	for i := range r.incs {
		r.incs[i].renewed = r.now
	}
	for _, c := range r.checks {
		if c.ttl > 0 && c.state != wire.CheckState_CRITICAL {
			c.refreshed = r.now
		}
	}
}

// fire does what is due: sessions first, then lock-delays, then incarnations.
func (r *reference) fire() {
	stale := r.staleChecks()
	due := r.late()
	r.end(append(due, r.depending(due, stale)...), true)
	for r.endDelay() {
	}
	var silent []wire.ID
	for _, inc := range r.incs {
		timed := slices.ContainsFunc(r.bound(inc.id), func(s *refSession) bool { return s.ttl > 0 })
		if !timed && refAdd(inc.renewed, inc.ttl) <= r.now {
			silent = append(silent, inc.id)
		}
	}
	slices.SortFunc(silent, func(a, b wire.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range silent {
		r.forget(id, true)
	}
}

// late returns the sessions whose own time is over.
func (r *reference) late() []*refSession {
	deadline := func(s *refSession) int64 { return refAdd(r.inc(s.inc).renewed, s.ttl) }
	var due []*refSession
	for _, s := range r.sessions {
		if s.ttl > 0 && deadline(s) <= r.now {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *refSession) int {
		return cmp.Or(cmp.Compare(deadline(a), deadline(b)), byAge(a, b))
	})
	return due
}

// endDelay ends the first of the lock-delays that are over, of any kind.
func (r *reference) endDelay() bool {
	until, key := int64(math.MaxInt64), ""
	var end func()
	consider := func(at int64, k string, f func()) {
		if at != 0 && at <= r.now && (end == nil || at < until || at == until && k < key) {
			until, key, end = at, k, f
		}
	}
	for _, l := range r.locks {
		consider(l.until, l.key(), func() { l.until = 0; r.handOn(l) })
	}
	for _, s := range r.sems {
		for _, p := range s.permits {
			consider(p.until, "p"+s.name+"\x00"+be(p.fence), func() { r.putBack(s, p.fence, 0) })
		}
	}
	for _, d := range r.delays {
		consider(d.until, "d"+d.key, func() {
			r.delays = slices.DeleteFunc(r.delays, func(o refKeyDelay) bool { return o.key == d.key })
		})
	}
	if end != nil {
		end()
	}
	return end != nil
}

func (r *reference) submission(id wire.ID, s *wire.Submission) {
	if inc := r.inc(id); inc != nil && s.Floor > inc.floor {
		inc.floor = s.Floor
		inc.answered = slices.DeleteFunc(inc.answered, func(o wire.Outcome) bool { return o.Ticket.Seq <= s.Floor })
	}
	for _, c := range s.Calls {
		t := wire.Ticket{Incarnation: id, Seq: c.Seq}
		floor := s.Floor
		if inc := r.inc(id); inc != nil {
			floor = inc.floor
		}
		if c.Seq <= floor {
			continue
		}
		if c.Seq-floor > MaxInFlight {
			r.say(t, wire.Code_TOO_LARGE)
			continue
		}
		if old := r.answered(t); old != nil {
			r.outcomes = append(r.outcomes, *old)
			continue
		}
		reply := r.command(t, floor, c.Command)
		if reply.Index == 0 {
			reply.Index = r.index
		}
		o := wire.Outcome{Ticket: t, Reply: reply, More: reply.Code == wire.Code_QUEUED}
		r.outcomes = append(r.outcomes, o)
		if inc := r.inc(id); inc != nil {
			inc.answered = append(inc.answered, o)
		}
	}
}

func (r *reference) command(t wire.Ticket, floor uint64, data []byte) *wire.Reply {
	c := new(wire.Command)
	err := proto.Unmarshal(data, c)
	if op, ok := c.Op.(*wire.Command_Register); err == nil && ok {
		return r.register(t.Incarnation, floor, op.Register)
	}
	inc := r.inc(t.Incarnation)
	if inc == nil {
		return refCode(wire.Code_UNKNOWN_INCARNATION)
	}
	if err != nil {
		return refCode(wire.Code_INVALID)
	}
	return r.known(t, inc, c)
}

// known carries out a command of an incarnation that is known.
func (r *reference) known(t wire.Ticket, inc *refIncarnation, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_Renew:
		inc.renewed = r.now
		return refCode(wire.Code_OK)
	case *wire.Command_Deregister:
		r.forget(t.Incarnation, false)
		return refCode(wire.Code_OK)
	case *wire.Command_Leave:
		return r.depart(inc)
	case *wire.Command_OpenSession:
		return r.open(inc, op.OpenSession)
	case *wire.Command_CloseSession:
		return r.close(op.CloseSession)
	case *wire.Command_AttachSession:
		return r.attach(inc, op.AttachSession)
	case *wire.Command_SetCheck:
		return r.setCheck(inc.member, op.SetCheck)
	case *wire.Command_DropCheck:
		return r.dropCheck(inc.member, op.DropCheck)
	case *wire.Command_ReportGossip:
		return r.gossip(op.ReportGossip)
	case *wire.Command_Lock:
		return r.lock(t, op.Lock)
	case *wire.Command_Unlock:
		return r.unlock(op.Unlock)
	case *wire.Command_Proclaim:
		return r.proclaim(op.Proclaim)
	case *wire.Command_Acquire:
		return r.acquire(t, op.Acquire)
	case *wire.Command_Release:
		return r.release(op.Release)
	case *wire.Command_Resize:
		return r.resize(op.Resize)
	case *wire.Command_Withdraw:
		return r.withdraw(t.Incarnation, op.Withdraw)
	case *wire.Command_Write:
		return r.write(op.Write)
	}
	return refCode(wire.Code_INVALID)
}

// final is the last outcome of a ticket; it replaces the stored one, if any.
func (r *reference) final(t wire.Ticket, reply *wire.Reply) {
	if reply.Index == 0 {
		reply.Index = r.index
	}
	o := wire.Outcome{Ticket: t, Reply: reply}
	r.outcomes = append(r.outcomes, o)
	if old := r.answered(t); old != nil {
		*old = o
	}
}

func (r *reference) say(t wire.Ticket, code wire.Code) { r.final(t, refCode(code)) }

func (r *reference) answered(t wire.Ticket) *wire.Outcome {
	if inc := r.inc(t.Incarnation); inc != nil {
		for i := range inc.answered {
			if inc.answered[i].Ticket == t {
				return &inc.answered[i]
			}
		}
	}
	return nil
}

func (r *reference) inc(id wire.ID) *refIncarnation {
	for i := range r.incs {
		if r.incs[i].id == id {
			return &r.incs[i]
		}
	}
	return nil
}

func refCode(code wire.Code) *wire.Reply { return &wire.Reply{Code: code} }

func refAdd(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}
