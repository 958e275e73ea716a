package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// clientHistory records the calls of programs and their replies in the order in
// which they happened, and nothing from the log. orderSearch and porcupine search for
// a linearization (lockState, permitState and keyState are the models). Operations
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
	sets       *projections
	removals   map[int]bool // members whose removal was requested
	checked    int          // operations
	pending    int          // of these: without an outcome
	partitions int
	unknown    int // of these: search given up
}

// operation is one call of a program.
type operation struct {
	command      *wire.Command
	incarnation  wire.ID
	session      *sessionSpan
	readKey      string // the key that is read
	entry        *fact.Entry
	invokedAt    int64 // moments, which also order what happens at one time
	returnedAt   int64
	invokedTime  time.Duration
	returnedTime time.Duration
	reply        *wire.Reply   // nil: unknown
	contended    bool          // another caller may have waited for the same
	rechecked    bool          // the reply was found in the state of a snapshot
	noEffect     bool          // certainly without effect
	withdraws    *operation    // the call that a Withdraw names
	end          *holdEnd      // of what it was granted; nil: it does not end in time, or no process knows of the grant
	of           *wire.LockSet // of an operation on a set, as one on one of its names; else nil
	local        *localGrant   // in a tenure of the process; nil: a call to the group
}

const (
	forever = time.Duration(math.MaxInt64)
	never   = int64(math.MaxInt64)
)

func newClientHistory(sim *simulation) *clientHistory {
	return &clientHistory{sim: sim, byTicket: make(map[wire.Ticket]*operation), sessions: make(map[wire.ID]*sessionSpan), removals: make(map[int]bool)}
}

func (h *clientHistory) nextMoment() int64 {
	h.moments++
	return h.moments
}

// invoked records a call.
func (h *clientHistory) invoked(p *program, c *wire.Command) *operation {
	op := &operation{
		command: c, incarnation: p.incarnation, invokedAt: h.nextMoment(), invokedTime: h.sim.now,
		returnedAt: never, returnedTime: forever, session: h.spanOf(sessionOf(c)),
	}
	switch {
	case c.GetRemoveMember() != nil:
		member := int(c.GetRemoveMember().GetMember()) - 1
		if member < 0 {
			member = p.n
		}
		h.removalRequested(member)
	case c.GetOpenSession() != nil:
		h.sessionOpened(p, c.GetOpenSession())
	case c.GetCloseSession() != nil:
		s := h.spanOf(c.GetCloseSession().Id)
		s.endRequested = min(s.endRequested, h.sim.now)
		if c.GetCloseSession().Graceful {
			s.gracefulEndRequested = min(s.gracefulEndRequested, h.sim.now)
		}
	case c.GetWithdraw() != nil:
		op.withdraws = h.byTicket[wire.Ticket{Incarnation: p.incarnation, Seq: c.GetWithdraw().Seq}]
	}
	h.operations = append(h.operations, op)
	return op
}

func (h *clientHistory) sessionOpened(p *program, c *wire.OpenSession) {
	s := h.spanOf(c.Id)
	if h.removals[p.n] {
		s.endRequested = min(s.endRequested, h.sim.now)
	}
	s.lockDelay, s.behavior, s.noTTL, s.hasChecks = time.Duration(c.LockDelay), c.Behavior, c.Ttl == 0, len(c.Checks) > 0
	s.coarseClocks = h.sim.faults.coarseClocks
	s.holder = h.sim.history.sessions[wire.ID(c.Id)]
}

// removalRequested records the request for a removal, which ends all sessions of the
// member.
func (h *clientHistory) removalRequested(member int) {
	h.removals[member] = true
	if !h.sim.isFurther() {
		for _, g := range h.sim.further {
			g.clients.removalRequested(member)
		}
	}
	for id, s := range h.sim.history.sessions { // order: each is recorded
		if s.program.n == member {
			session := h.spanOf(id[:])
			session.endRequested = min(session.endRequested, h.sim.now)
		}
	}
}

// processReplaced records the registration of another process of the member, which
// ends the sessions of all earlier ones.
func (h *clientHistory) processReplaced(p *program) {
	for id, s := range h.sim.history.sessions { // order: each is recorded
		if s.program.n == p.n && s.incarnation != p.incarnation && s.ttl != 0 {
			session := h.spanOf(id[:])
			session.endRequested = min(session.endRequested, h.sim.now)
		}
	}
}

// readInvoked records the call of a linearizable read of a key.
func (h *clientHistory) readInvoked(key string) *operation {
	op := &operation{readKey: key, invokedAt: h.nextMoment(), invokedTime: h.sim.now, returnedAt: never, returnedTime: forever}
	h.operations = append(h.operations, op)
	return op
}

func (h *clientHistory) returned(op *operation) {
	op.returnedAt, op.returnedTime = h.nextMoment(), h.sim.now
}

// replied records an outcome; unless more is set it is the last one.
func (h *clientHistory) replied(op *operation, t wire.Ticket, r *wire.Reply, more, rechecked bool) {
	if h.byTicket[t] = op; more {
		return
	}
	h.returned(op)
	op.reply, op.rechecked = r, rechecked
	ended := r.GetCode() == wire.Code_SESSION_EXPIRED
	switch s := op.session; {
	case r.GetCode() == wire.Code_UNKNOWN_INCARNATION: // it may have been carried out, and the outcome is lost
		op.reply = nil
	case rechecked && r.GetCode() != wire.Code_OK:
		op.reply, op.returnedAt, op.returnedTime = nil, never, forever
	case op.command.GetAttachSession() != nil && r.GetCode() == wire.Code_OK:
		h.sessionAttached(op)
	case s != nil && ended:
		s.endReported = min(s.endReported, op.returnedAt)
	case op.command.GetCloseSession() != nil && (ended || r.GetCode() == wire.Code_OK):
		s := h.spanOf(op.command.GetCloseSession().Id)
		s.endReported = min(s.endReported, op.returnedAt)
	}
}

func (h *clientHistory) spanOf(id []byte) *sessionSpan {
	sid, ok := wire.IDFrom(id)
	if !ok {
		return nil
	}
	if h.sessions[sid] == nil {
		h.sessions[sid] = &sessionSpan{id: sid, endRequested: forever, gracefulEndRequested: forever, endReported: never}
	}
	return h.sessions[sid]
}

// sessionOf returns the session that a command uses.
func sessionOf(c *wire.Command) []byte {
	switch op := c.Op.(type) {
	case *wire.Command_Lock:
		return op.Lock.Session
	case *wire.Command_Unlock:
		return op.Unlock.Session
	case *wire.Command_Downgrade:
		return op.Downgrade.Session
	case *wire.Command_LockSet:
		return op.LockSet.Session
	case *wire.Command_UnlockSet:
		return op.UnlockSet.Session
	case *wire.Command_Extend:
		return op.Extend.Session
	case *wire.Command_RunJob:
		return op.RunJob.Session
	case *wire.Command_EndRun:
		return op.EndRun.Session
	case *wire.Command_JoinShards:
		return op.JoinShards.Session
	case *wire.Command_LeaveShards:
		return op.LeaveShards.Session
	case *wire.Command_ReleaseShards:
		return op.ReleaseShards.Session
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

func (op *operation) String() string {
	return fmt.Sprintf("[%d at %v to %d at %v: %s%v read %q -> %v found %+v]",
		op.invokedAt, op.invokedTime, op.returnedAt, op.returnedTime, op.incarnation, op.command, op.readKey, op.reply, op.entry)
}
