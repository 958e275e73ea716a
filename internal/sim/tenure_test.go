package sim

import (
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/linger"
	"github.com/conclave-go/conclave/internal/wire"
)

// keeper keeps locks for some handles of a session, as the client engine does for those
// that linger: the tenures are those of package linger, which is under test here.
type keeper struct {
	session *simSession
	open    *tenure   // admits newcomers; nil: none
	tenures []*tenure // all that have not ended
	number  uint64    // of the last one
}

// tenure is a tenure and its request. In the group it has a handle of its own.
type tenure struct {
	linger.Tenure[*handle]
	keeper  *keeper
	name    string
	number  uint64
	first   uint64 // fence, by which the group knows the hold
	ticket  wire.Ticket
	queued  bool
	left    bool // all left before the grant: the request is withdrawn
	resting int  // counts the idle times
}

const (
	tenants     = 3   // handles of a keeper
	firstTenure = 100 // number of its handle
	longestStay = 2 * time.Second
)

// addKeeper gives the session a keeper and its handles.
func (s *simSession) addKeeper() {
	s.keeper = &keeper{session: s, number: firstTenure}
	for range tenants {
		s.addHandle(wire.Space_LOCK, locks)
		s.handles[len(s.handles)-1].keeper = s.keeper
	}
}

// act has each handle of the keeper act: they are cheap.
func (k *keeper) act() {
	for _, h := range k.session.handles {
		if h.keeper != nil {
			h.actInTenure()
		}
	}
}

// raiseLevel raises the group to a level with lingering locks and clients, if all members
// have registered.
func (p *program) raiseLevel() {
	needed := p.sim.faults.lingers || p.sim.faults.shards || p.sim.faults.tasks || len(p.sim.remotes) > 0
	if !needed || p.remote != nil || p.of != nil || p.gateway.level() >= wire.FeatureLevel || !p.sim.chance(0.1) {
		return
	}
	p.raise()
}

// raise submits that the group is to be raised to the newest level.
func (p *program) raise() {
	members := make([]uint64, 0, len(p.sim.members))
	for _, m := range p.sim.remaining() {
		members = append(members, uint64(m.n)+1)
	}
	p.submit(&wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: wire.FeatureLevel, Members: members}}}, false, func(*wire.Reply) {})
}

// actInTenure is act for a handle of a keeper.
func (h *handle) actInTenure() {
	p := h.session.program
	rng := p.sim.rng
	switch h.state {
	case idle:
		if p.gateway.level() >= wire.LevelLinger && (!p.sim.draining || p.cycles < 2) {
			h.keeper.join(h)
		}
	case acquiring:
		if rng.IntN(8) == 0 && !p.sim.draining || p.sim.now > h.calledAt+5*time.Second {
			h.leaveTenure()
		}
	case held:
		if rng.IntN(2) == 0 {
			h.freeInTenure()
		}
	}
}

func (k *keeper) join(h *handle) {
	p := k.session.program
	t := k.open
	if t == nil || !t.Open() {
		k.number++
		t = &tenure{keeper: k, name: locks[p.sim.rng.IntN(len(locks))], number: k.number}
		k.open, k.tenures = t, append(k.tenures, t)
		t.request()
	}
	h.state, h.lock, h.calledAt, h.tenure = acquiring, t.name, p.sim.now, t
	h.local = p.sim.clients.invokedInTenure(h)
	h.place = linger.Place[*handle]{Owner: h}
	t.Join(&h.place)
	t.run()
}

func (t *tenure) request() {
	s := t.keeper.session
	call := s.program.call(&wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: t.name, Session: s.id[:], Handle: t.number, Wait: true, Lingering: true,
	}}}, false, t.outcome)
	call.recheck = func(m wire.Rechecker, ticket wire.Ticket) *wire.Reply { return m.Recheck(ticket, s.id, "", "") }
	call.onUnsent = t.abort
}

func (t *tenure) outcome(ticket wire.Ticket, r *wire.Reply, more bool) {
	switch {
	case r == nil:
		t.abort()
	case more:
		if t.ticket, t.queued = ticket, true; t.left {
			t.withdraw()
		}
	case r.GetCode() == wire.Code_OK && t.left:
		if t.first = r.GetFence(); !t.queued { // else the withdrawal releases it
			t.release()
		}
	case r.GetCode() == wire.Code_OK:
		t.first = r.GetFence()
		s := t.keeper.session
		s.program.sim.tenures++
		t.Begin(r.GetFence(), s.someOf(r.GetBlock()))
		t.run()
	case t.left: // withdrawn
		t.abort()
	default:
		t.refused(r)
		t.abort()
	}
}

// refused accepts a refusal if the session has ended.
func (t *tenure) refused(r *wire.Reply) {
	(&handle{session: t.keeper.session, n: t.number, lock: t.name}).checkRefusal(r)
}

func (t *tenure) abort() {
	for _, h := range t.Abort() {
		h.turnAway()
	}
	t.forget()
}

// someOf uses a part of a block only, so that more are needed.
func (s *simSession) someOf(block uint32) uint32 {
	return 1 + s.program.sim.rng.Uint32N(min(4, max(1, block)))
}

func (t *tenure) forget() {
	k := t.keeper
	if k.open == t {
		k.open = nil
	}
	for i, o := range k.tenures {
		if o == t {
			k.tenures = append(k.tenures[:i:i], k.tenures[i+1:]...)
			return
		}
	}
}

// turnAway ends a wait without a grant.
func (h *handle) turnAway() {
	h.state, h.local.noEffect = idle, true
}

// run does what follows, as the client engine does.
func (t *tenure) run() {
	for {
		switch step := t.Next(); step.Action {
		case linger.Serve:
			t.serve(step.Owner, step.Fence)
		case linger.Refuse:
			step.Owner.turnAway()
		case linger.Refill:
			t.refill(step.Fences)
		case linger.Release:
			t.forget()
			t.release()
		case linger.Wait:
			if t.Idle() {
				t.rest()
			}
			return
		}
	}
}

// serve grants the lock, unless the session's deadline has passed here.
func (t *tenure) serve(h *handle, fence uint64) {
	s := t.keeper.session
	if p := s.program; s.lost || p.terminated || s.ttl != 0 && p.clock() >= s.deadline {
		t.Freed()
		h.turnAway()
		return
	}
	h.state, h.fence, h.holds = held, fence, 1
	s.program.sim.local++
	s.program.sim.clients.granted(h)
	s.program.sim.checkExclusive(h)
}

func (t *tenure) refill(fences uint32) {
	s := t.keeper.session
	s.program.submit(&wire.Command{Op: &wire.Command_Refill{Refill: &wire.Refill{
		Name: t.name, Session: s.id[:], Handle: t.number, Fence: t.first, Fences: fences,
	}}}, true, func(r *wire.Reply) {
		switch {
		case r == nil:
			t.Refilled(0, 0)
		case r.GetCode() != wire.Code_OK:
			if t.Kept() {
				t.refused(r)
			}
			t.Refilled(0, 0)
		default:
			s.program.sim.refills++
			t.Refilled(r.GetFence(), s.someOf(r.GetBlock()))
		}
		t.run()
	})
}

func (t *tenure) release() {
	s := t.keeper.session
	s.insist(&wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: t.name, Session: s.id[:], Handle: t.number, Fence: t.first,
	}}}, t.refused)
}

// withdraw withdraws the request, or releases its grant if that came first.
func (t *tenure) withdraw() { t.keeper.session.insist(withdrawal(t.ticket), t.refused) }

// insist submits a command that is urgent, and handles a refusal.
func (s *simSession) insist(command *wire.Command, refused func(*wire.Reply)) {
	s.program.submit(command, true, func(r *wire.Reply) {
		if r != nil && r.GetCode() != wire.Code_OK {
			refused(r)
		}
	})
}

func withdrawal(t wire.Ticket) *wire.Command {
	return &wire.Command{Op: &wire.Command_Withdraw{Withdraw: &wire.Withdraw{Incarnation: t.Incarnation[:], Seq: t.Seq}}}
}

// rest ends the tenure when it has been idle for some time.
func (t *tenure) rest() {
	t.resting++
	resting, p := t.resting, t.keeper.session.program
	p.after(p.simulatedTime(p.sim.between(0, longestStay)), func() {
		if t.resting == resting && t.Idle() {
			t.Close()
			t.run()
		}
	})
}

func (h *handle) leaveTenure() {
	t := h.tenure
	if !t.Leave(&h.place) {
		return
	}
	h.turnAway()
	if t.Kept() || t.Waiting() > 0 {
		return
	}
	t.left = true
	t.Close()
	t.forget()
	if t.queued {
		t.withdraw()
	}
}

func (h *handle) freeInTenure() {
	h.session.program.sim.clients.freed(h)
	h.state, h.holds = idle, 0
	h.cycleDone()
	h.tenure.Freed()
	h.tenure.run()
}

// recalled closes the tenures that others wait for.
func (p *program) recalled(recalls []fact.Recall) {
	for _, r := range recalls {
		if s := p.session; s != nil && s.keeper != nil && s.id == r.Session {
			s.keeper.recall(func(t *tenure) bool { return t.name == r.Lock && t.number == r.Handle })
			s.sharers.recall(func(t *sharedTenure) bool {
				return r.Shared && t.name == r.Lock && t.number == r.Handle && (r.Share == 0 || r.Share == t.share)
			})
		}
	}
}

func (k *keeper) recall(meant func(*tenure) bool) {
	for _, t := range append([]*tenure(nil), k.tenures...) {
		if meant(t) {
			k.session.program.sim.recalls++
			t.Close()
			t.run()
		}
	}
}

// localGrant marks an operation in a tenure of a process: a grant, or its release.
type localGrant struct {
	handle uint64
	fence  uint64
	knows  bool // the holder can tell that the session lives
}

// invokedInTenure records that a handle asks for a grant in a tenure.
func (h *clientHistory) invokedInTenure(of *handle) *operation {
	t := of.tenure
	op := h.invoked(of.session.program, &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: t.name, Session: of.session.id[:], Handle: t.number,
	}}})
	op.local = &localGrant{handle: of.n}
	return op
}

// granted records a grant in a tenure. Where the session may have ended without the
// process knowing, by force or by a check, the grant may have no effect.
func (h *clientHistory) granted(of *handle) {
	op := of.local
	op.local.fence, op.local.knows = of.fence, of.trustsHold()
	if op.local.knows {
		h.returned(op)
		op.reply = &wire.Reply{Code: wire.Code_OK, Fence: of.fence}
	}
}

// freed records the release of a grant in a tenure.
func (h *clientHistory) freed(of *handle) {
	t, was := of.tenure, of.local
	op := h.invoked(of.session.program, &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: t.name, Session: of.session.id[:], Handle: t.number,
	}}})
	op.local = &localGrant{handle: of.n, fence: of.fence, knows: was.local.knows && of.trustsHold()}
	if op.local.knows {
		h.returned(op)
		op.reply = &wire.Reply{Code: wire.Code_OK, Fence: of.fence}
	}
}
