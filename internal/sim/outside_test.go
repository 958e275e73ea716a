package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// outside is what programs asked for and what they were told, in the order in
// which it happened, and nothing of what the log says. porcupine searches for an
// order of the operations that explains it (lockmodel, permitmodel and
// keymodel). Operations whose outcome nobody knows, because the process died
// or the call failed, may have happened at any time since, or not at all.
//
// Sessions end by themselves, and no operation of a program is that end. From
// outside a span is known in which it may come: not before the deadline that the
// holder counts on, unless somebody asks for the end, and before somebody is told
// of it. Within the span a model's state may lose what the session holds before
// any step (see partings); so an end that comes too early, or not at all, shows.
type outside struct {
	w          *world
	moments    int64
	operations []*operation
	byTicket   map[wire.Ticket]*operation
	sessions   map[wire.ID]*span
	checked    int // operations
	open       int // of these: without outcome
	partitions int
	unknown    int // of these: too hard to search
}

// operation is one call of a program.
type operation struct {
	command     *wire.Command
	incarnation wire.ID
	session     *span
	read        string // the key that is read
	found       *wire.Entry
	called      int64 // moments, which order what happens at one time as well
	returned    int64
	calledAt    time.Duration
	returnedAt  time.Duration
	reply       *wire.Reply // nil: unknown
	crowded     bool        // somebody else may have waited for the same
	guessed     bool        // the reply is what the program made of a snapshot
	undone      bool        // it is certain that nothing came of it
	of          *operation  // that a Withdraw takes back
}

// span is what is known of a session, and when it may end.
type span struct {
	id       wire.ID
	delay    time.Duration
	behavior wire.Behavior
	lasting  bool          // it has no TTL
	frail    bool          // it depends on checks, and may end at any time
	adrift   bool          // clocks are coarse: so may any with a TTL, and its lock-delay
	holder   *simSession   // who counts on it; nil: nobody has asked for it
	asked    time.Duration // somebody asks for its end; forever: nobody did
	gently   time.Duration // and wants no lock-delay
	told     int64         // the first moment at which somebody was told of its end
}

const (
	forever = time.Duration(math.MaxInt64)
	never   = int64(math.MaxInt64)
)

func newOutside(w *world) *outside {
	return &outside{w: w, byTicket: make(map[wire.Ticket]*operation), sessions: make(map[wire.ID]*span)}
}

func (o *outside) moment() int64 {
	o.moments++
	return o.moments
}

// calls notes that a program calls.
func (o *outside) calls(p *program, c *wire.Command) *operation {
	op := &operation{
		command: c, incarnation: p.incarnation, called: o.moment(), calledAt: o.w.now,
		returned: never, returnedAt: forever, session: o.span(sessionOf(c)),
	}
	switch {
	case c.GetRemoveMember() != nil:
		o.leaves(p)
	case c.GetOpenSession() != nil:
		o.opens(c.GetOpenSession())
	case c.GetCloseSession() != nil:
		s := o.span(c.GetCloseSession().Id)
		s.asked = min(s.asked, o.w.now)
		if c.GetCloseSession().Graceful {
			s.gently = min(s.gently, o.w.now)
		}
	case c.GetWithdraw() != nil:
		op.of = o.byTicket[wire.Ticket{Incarnation: p.incarnation, Seq: c.GetWithdraw().Seq}]
	}
	o.operations = append(o.operations, op)
	return op
}

func (o *outside) opens(c *wire.OpenSession) {
	s := o.span(c.Id)
	s.delay, s.behavior, s.lasting, s.frail = time.Duration(c.LockDelay), c.Behavior, c.Ttl == 0, len(c.Checks) > 0
	s.adrift = o.w.faults.coarse
	s.holder = o.w.history.sessions[wire.ID(c.Id)]
}

// leaves notes that a member asks to leave, which ends all its sessions.
func (o *outside) leaves(p *program) {
	for id, s := range o.w.history.sessions { // order: each is looked at
		if s.program.n == p.n {
			known := o.span(id[:])
			known.asked = min(known.asked, o.w.now)
		}
	}
}

// replaces notes that another process of the member makes itself known, which
// ends the sessions of all before it.
func (o *outside) replaces(p *program) {
	for id, s := range o.w.history.sessions { // order: each is looked at
		if s.program.n == p.n && s.incarnation != p.incarnation && s.ttl != 0 {
			known := o.span(id[:])
			known.asked = min(known.asked, o.w.now)
		}
	}
}

// reads notes a linearizable read of a key.
func (o *outside) reads(key string) *operation {
	op := &operation{read: key, called: o.moment(), calledAt: o.w.now, returned: never, returnedAt: forever}
	o.operations = append(o.operations, op)
	return op
}

func (o *outside) returns(op *operation) {
	op.returned, op.returnedAt = o.moment(), o.w.now
}

// replied notes an outcome. What follows more is the last word.
func (o *outside) replied(op *operation, t wire.Ticket, r *wire.Reply, more, guessed bool) {
	if o.byTicket[t] = op; more {
		return
	}
	o.returns(op)
	op.reply, op.guessed = r, guessed
	ended := r.GetCode() == wire.Code_SESSION_EXPIRED
	switch s := op.session; {
	case r.GetCode() == wire.Code_UNKNOWN_INCARNATION: // it may have been done, and the outcome was lost
		op.reply = nil
	case guessed && r.GetCode() != wire.Code_OK:
		op.reply, op.returned, op.returnedAt = nil, never, forever
	case s != nil && ended:
		s.told = min(s.told, op.returned)
	case op.command.GetCloseSession() != nil && (ended || r.GetCode() == wire.Code_OK):
		s := o.span(op.command.GetCloseSession().Id)
		s.told = min(s.told, op.returned)
	}
}

func (o *outside) span(id []byte) *span {
	sid, ok := wire.IDFrom(id)
	if !ok {
		return nil
	}
	if o.sessions[sid] == nil {
		o.sessions[sid] = &span{id: sid, asked: forever, gently: forever, told: never}
	}
	return o.sessions[sid]
}

// sessionOf is the session under which a command asks.
func sessionOf(c *wire.Command) []byte {
	switch op := c.Op.(type) {
	case *wire.Command_Lock:
		return op.Lock.Session
	case *wire.Command_Unlock:
		return op.Unlock.Session
	case *wire.Command_Proclaim:
		return op.Proclaim.Session
	case *wire.Command_Acquire:
		return op.Acquire.Session
	case *wire.Command_Release:
		return op.Release.Session
	case *wire.Command_AttachSession:
		return op.AttachSession.Id
	case *wire.Command_Write:
		for _, k := range op.Write.Ops {
			if k.Kind == wire.KeyOp_ACQUIRE {
				return k.Session
			}
		}
	}
	return nil
}

// mayEnd says whether the session may be over by then.
func (s *span) mayEnd(by time.Duration) bool {
	switch {
	case s.asked <= by, s.frail, s.adrift && !s.lasting:
		return true
	case s.lasting || s.holder == nil:
		return false
	}
	p := s.holder.program
	return p.began+p.lasts(s.holder.deadline) <= by
}

// delays are the lock-delays that may follow when it ends by then: 0 is none, and
// others are until when at least it lasts.
func (s *span) delays(by time.Duration) (until []time.Duration) {
	if !s.mayEnd(by) {
		return nil
	}
	if s.delay == 0 || s.gently <= by {
		until = append(until, 0)
	}
	if s.delay > 0 {
		until = append(until, s.delayed())
	}
	return until
}

// endings are the states that may be when an operation comes, for the session by may
// have ended: without gives what is left then, and until when a lock-delay lasts.
func endings[S any](states []S, by *span, op *operation, without func(S, *span, time.Duration) S) []S {
	var next []S
	for _, s := range states {
		if !by.over(op.called) {
			next = append(next, s)
		}
		for _, until := range by.delays(op.returnedAt) {
			next = append(next, without(s, by, until))
		}
	}
	return next
}

// over says that it is by then.
func (s *span) over(moment int64) bool { return s.told < moment }

// verdict checks all partitions.
func (o *outside) verdict() {
	o.crowd()
	for _, name := range locks {
		o.check(name, lockModel(), o.about(wire.Space_LOCK, name))
	}
	o.check("kept", lockModel(), o.about(wire.Space_LOCK, "kept"))
	for _, name := range elections {
		o.check(name, lockModel(), o.about(wire.Space_ELECTION, name))
	}
	for _, name := range semaphores {
		o.check(name, permitModel(semaphoreLimits()[name]), o.about(wire.Space_SEMAPHORE, name))
	}
	o.check("keys", keyModel(), o.aboutKeys())
}

const searching = 10 * time.Second // of the real world, for one search

func (o *outside) check(name string, m porcupine.NondeterministicModel, ops []porcupine.Operation) {
	o.partitions++
	o.checked += len(ops)
	for _, op := range ops {
		if op.Return == never {
			o.open++
		}
	}
	model := m.ToModel()
	switch porcupine.CheckOperationsTimeout(model, ops, searching) {
	case porcupine.Unknown:
		o.unknown++
		o.w.t.Logf("seed %d: %s: %d operations are too hard to search", o.w.seed, name, len(ops))
	case porcupine.Illegal:
		o.explain(name, model, ops)
	}
}

// explain tells how far an order could be found.
func (o *outside) explain(name string, model porcupine.Model, ops []porcupine.Operation) {
	_, info := porcupine.CheckOperationsVerbose(model, ops, searching)
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	in := make(map[*operation]bool)
	state := model.Init()
	for i, p := range longest {
		op := p.Input.(*operation)
		in[op] = true
		if i >= len(longest)-8 {
			o.w.t.Logf("%v, then %v", state, op)
		}
		_, state = model.Step(state, op, nil)
	}
	o.w.t.Logf("%v, and none of these:", state)
	rest := slices.DeleteFunc(slices.Clone(ops), func(p porcupine.Operation) bool { return in[p.Input.(*operation)] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, p := range rest[:min(8, len(rest))] {
		o.w.t.Logf("    %v", p.Input)
	}
	o.w.fail("%s: no order explains what programs were told: after %d of %d operations there is no next one", name, len(longest), len(ops))
}

func (op *operation) String() string {
	return fmt.Sprintf("[%d at %v to %d at %v: %s%v read %q -> %v found %+v]",
		op.called, op.calledAt, op.returned, op.returnedAt, op.incarnation, op.command, op.read, op.reply, op.found)
}

func (s *span) String() string {
	return fmt.Sprintf("%s (delay %v, %v, lasting %t, frail %t, asked %v, told %d)", s.id, s.delay, s.behavior, s.lasting, s.frail, s.asked, s.told)
}
