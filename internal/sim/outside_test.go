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

// clientHistory records the calls of programs and their replies in the order in
// which they happened, and nothing from the log. Porcupine searches for a
// linearization (lockState, permitState and keyState are the models). Operations
// without an outcome, because the process crashed or the call failed, may have
// taken effect at any later time, or not at all.
//
// The end of a session is no operation of a program. The history bounds it by a
// sessionSpan: not before the deadline that the holder relies on unless a program
// requests the end, and before the end is reported to a caller. Within these bounds
// a model's state may lose what the session holds before any step (see
// possibleStates); so it shows when a session ends too early or not at all.
type clientHistory struct {
	sim        *simulation
	moments    int64
	operations []*operation
	byTicket   map[wire.Ticket]*operation
	sessions   map[wire.ID]*sessionSpan
	checked    int // operations
	pending    int // of these: without an outcome
	partitions int
	unknown    int // of these: search given up
}

// operation is one call of a program.
type operation struct {
	command     *wire.Command
	incarnation wire.ID
	session     *sessionSpan
	readKey     string // the key that is read
	entry       *wire.Entry
	called      int64 // moments, which also order what happens at one time
	returned    int64
	calledAt    time.Duration
	returnedAt  time.Duration
	reply       *wire.Reply // nil: unknown
	contended   bool        // another caller may have waited for the same
	rechecked   bool        // the reply was found in the state of a snapshot
	noEffect    bool        // certainly without effect
	withdraws   *operation  // the call that a Withdraw names
}

// sessionSpan is what clients know of a session, and when it may end.
type sessionSpan struct {
	id                   wire.ID
	delay                time.Duration
	behavior             wire.Behavior
	noTTL                bool
	hasChecks            bool          // it depends on checks, and may end at any time
	coarseClocks         bool          // any session with a TTL may end at any time, and any lock-delay
	holder               *simSession   // the session's holder; nil: its opening was not called
	endRequested         time.Duration // a program requests its end; forever: none did
	gracefulEndRequested time.Duration // and requests it without a lock-delay
	endReported          int64         // the first moment at which a caller was informed of its end
}

const (
	forever = time.Duration(math.MaxInt64)
	never   = int64(math.MaxInt64)
)

func newClientHistory(sim *simulation) *clientHistory {
	return &clientHistory{sim: sim, byTicket: make(map[wire.Ticket]*operation), sessions: make(map[wire.ID]*sessionSpan)}
}

func (o *clientHistory) nextMoment() int64 {
	o.moments++
	return o.moments
}

// invoked records a call.
func (o *clientHistory) invoked(p *program, c *wire.Command) *operation {
	op := &operation{
		command: c, incarnation: p.incarnation, called: o.nextMoment(), calledAt: o.sim.now,
		returned: never, returnedAt: forever, session: o.spanOf(sessionOf(c)),
	}
	switch {
	case c.GetRemoveMember() != nil:
		o.leaveRequested(p)
	case c.GetOpenSession() != nil:
		o.sessionOpened(c.GetOpenSession())
	case c.GetCloseSession() != nil:
		s := o.spanOf(c.GetCloseSession().Id)
		s.endRequested = min(s.endRequested, o.sim.now)
		if c.GetCloseSession().Graceful {
			s.gracefulEndRequested = min(s.gracefulEndRequested, o.sim.now)
		}
	case c.GetWithdraw() != nil:
		op.withdraws = o.byTicket[wire.Ticket{Incarnation: p.incarnation, Seq: c.GetWithdraw().Seq}]
	}
	o.operations = append(o.operations, op)
	return op
}

func (o *clientHistory) sessionOpened(c *wire.OpenSession) {
	s := o.spanOf(c.Id)
	s.delay, s.behavior, s.noTTL, s.hasChecks = time.Duration(c.LockDelay), c.Behavior, c.Ttl == 0, len(c.Checks) > 0
	s.coarseClocks = o.sim.faults.coarseClocks
	s.holder = o.sim.history.sessions[wire.ID(c.Id)]
}

// leaveRequested records the request for a removal, which ends all sessions of the
// member.
func (o *clientHistory) leaveRequested(p *program) {
	for id, s := range o.sim.history.sessions { // order: each is recorded
		if s.program.n == p.n {
			known := o.spanOf(id[:])
			known.endRequested = min(known.endRequested, o.sim.now)
		}
	}
}

// processReplaced records the registration of another process of the member, which
// ends the sessions of all earlier ones.
func (o *clientHistory) processReplaced(p *program) {
	for id, s := range o.sim.history.sessions { // order: each is recorded
		if s.program.n == p.n && s.incarnation != p.incarnation && s.ttl != 0 {
			known := o.spanOf(id[:])
			known.endRequested = min(known.endRequested, o.sim.now)
		}
	}
}

// readInvoked records the call of a linearizable read of a key.
func (o *clientHistory) readInvoked(key string) *operation {
	op := &operation{readKey: key, called: o.nextMoment(), calledAt: o.sim.now, returned: never, returnedAt: forever}
	o.operations = append(o.operations, op)
	return op
}

func (o *clientHistory) returned(op *operation) {
	op.returned, op.returnedAt = o.nextMoment(), o.sim.now
}

// replied records an outcome; unless more is set it is the last one.
func (o *clientHistory) replied(op *operation, t wire.Ticket, r *wire.Reply, more, guessed bool) {
	if o.byTicket[t] = op; more {
		return
	}
	o.returned(op)
	op.reply, op.rechecked = r, guessed
	ended := r.GetCode() == wire.Code_SESSION_EXPIRED
	switch s := op.session; {
	case r.GetCode() == wire.Code_UNKNOWN_INCARNATION: // it may have been carried out, and the outcome is lost
		op.reply = nil
	case guessed && r.GetCode() != wire.Code_OK:
		op.reply, op.returned, op.returnedAt = nil, never, forever
	case s != nil && ended:
		s.endReported = min(s.endReported, op.returned)
	case op.command.GetCloseSession() != nil && (ended || r.GetCode() == wire.Code_OK):
		s := o.spanOf(op.command.GetCloseSession().Id)
		s.endReported = min(s.endReported, op.returned)
	}
}

func (o *clientHistory) spanOf(id []byte) *sessionSpan {
	sid, ok := wire.IDFrom(id)
	if !ok {
		return nil
	}
	if o.sessions[sid] == nil {
		o.sessions[sid] = &sessionSpan{id: sid, endRequested: forever, gracefulEndRequested: forever, endReported: never}
	}
	return o.sessions[sid]
}

// sessionOf returns the session that a command uses.
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

// mayEnd reports whether the session may have ended by then.
func (s *sessionSpan) mayEnd(by time.Duration) bool {
	switch {
	case s.endRequested <= by, s.hasChecks, s.coarseClocks && !s.noTTL:
		return true
	case s.noTTL || s.holder == nil:
		return false
	}
	p := s.holder.program
	return p.startedAt+p.simulatedTime(s.holder.deadline) <= by
}

// possibleDelays returns the lock-delays that may follow an end by then: 0 for
// none, else the time until which it lasts at least.
func (s *sessionSpan) possibleDelays(by time.Duration) (until []time.Duration) {
	if !s.mayEnd(by) {
		return nil
	}
	if s.delay == 0 || s.gracefulEndRequested <= by {
		until = append(until, 0)
	}
	if s.delay > 0 {
		until = append(until, s.earliestDelayEnd())
	}
	return until
}

// withPossibleEnds returns the states in which an operation may find the model,
// since the session by may have ended: without returns the state after that, with a
// lock-delay until the given time.
func withPossibleEnds[S any](states []S, by *sessionSpan, op *operation, without func(S, *sessionSpan, time.Duration) S) []S {
	var next []S
	for _, s := range states {
		if !by.endedBefore(op.called) {
			next = append(next, s)
		}
		for _, until := range by.possibleDelays(op.returnedAt) {
			next = append(next, without(s, by, until))
		}
	}
	return next
}

// endedBefore reports whether the end was reported to a caller before the moment.
func (s *sessionSpan) endedBefore(moment int64) bool { return s.endReported < moment }

// checkAll checks all partitions of the history.
func (o *clientHistory) checkAll() {
	o.markContention()
	for _, name := range locks {
		o.check(name, lockModel(), o.operationsOn(wire.Space_LOCK, name))
	}
	o.check("kept", lockModel(), o.operationsOn(wire.Space_LOCK, "kept"))
	for _, name := range elections {
		o.check(name, lockModel(), o.operationsOn(wire.Space_ELECTION, name))
	}
	for _, name := range semaphores {
		o.check(name, permitModel(semaphoreLimits()[name]), o.operationsOn(wire.Space_SEMAPHORE, name))
	}
	o.check("keys", keyModel(), o.keyOperations())
}

const searchLimit = 10 * time.Second // of real time, for one search

func (o *clientHistory) check(name string, m porcupine.NondeterministicModel, ops []porcupine.Operation) {
	o.partitions++
	o.checked += len(ops)
	for _, op := range ops {
		if op.Return == never {
			o.pending++
		}
	}
	model := m.ToModel()
	switch porcupine.CheckOperationsTimeout(model, ops, searchLimit) {
	case porcupine.Unknown:
		o.unknown++
		o.sim.t.Logf("seed %d: %s: search over %d operations given up", o.sim.seed, name, len(ops))
	case porcupine.Illegal:
		o.explain(name, model, ops)
	}
}

// explain logs the longest partial linearization and what does not fit.
func (o *clientHistory) explain(name string, model porcupine.Model, ops []porcupine.Operation) {
	_, info := porcupine.CheckOperationsVerbose(model, ops, searchLimit)
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
			o.sim.t.Logf("%v, then %v", state, op)
		}
		_, state = model.Step(state, op, nil)
	}
	o.sim.t.Logf("%v, and none of these:", state)
	rest := slices.DeleteFunc(slices.Clone(ops), func(p porcupine.Operation) bool { return in[p.Input.(*operation)] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, p := range rest[:min(8, len(rest))] {
		o.sim.t.Logf("    %v", p.Input)
	}
	o.sim.fail("%s: not linearizable: after %d of %d operations none can follow", name, len(longest), len(ops))
}

func (op *operation) String() string {
	return fmt.Sprintf("[%d at %v to %d at %v: %s%v read %q -> %v found %+v]",
		op.called, op.calledAt, op.returned, op.returnedAt, op.incarnation, op.command, op.readKey, op.reply, op.entry)
}

func (s *sessionSpan) String() string {
	return fmt.Sprintf("%s (delay %v, %v, no TTL %t, has checks %t, end requested %v, end reported %d)", s.id, s.delay, s.behavior, s.noTTL, s.hasChecks, s.endRequested, s.endReported)
}
