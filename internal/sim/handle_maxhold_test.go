package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/maxhold"
	"github.com/conclave-go/conclave/internal/wire"
)

// holdEnd is when a hold with MaxHold ends for its holder, by package maxhold, which is under test here.
type holdEnd struct {
	program *program
	end     maxhold.End
	until   time.Duration // on the holder's clock: it relies on the hold until then
}

// ends counts what became of holds with MaxHold.
type ends struct {
	locks, shares, permits int // holds that the group ended by it
	lost                   int // holds that their holder found lost by it
	later, earlier         int // Extends that moved the end in the group
	unknown                int // Extends that were under way when the holder used its hold again
}

func (e *ends) add(o ends) {
	e.locks += o.locks
	e.shares += o.shares
	e.permits += o.permits
	e.lost += o.lost
	e.later += o.later
	e.earlier += o.earlier
	e.unknown += o.unknown
}

// occurred reports whether there was some of each.
func (e ends) occurred() bool {
	return e.locks > 0 && e.shares > 0 && e.permits > 0 && e.lost > 0 && e.later > 0 && e.earlier > 0 && e.unknown > 0
}

// chooseMaxHold returns the MaxHold of the next request, which may be 0: none.
func (h *handle) chooseMaxHold() time.Duration {
	p := h.session.program
	if h.keeper != nil || h.space == wire.Space_ELECTION || p.gateway.level() < wire.LevelMaxHold || p.sim.endsRNG.IntN(2) == 0 {
		return 0
	}
	return p.someMaxHold()
}

// someMaxHold is often so short that the hold ends by it.
func (p *program) someMaxHold() time.Duration {
	if p.sim.endsRNG.IntN(3) == 0 {
		return 2*time.Second + time.Duration(p.sim.endsRNG.Int64N(int64(2*time.Second)))
	}
	return 50*time.Millisecond + time.Duration(p.sim.endsRNG.Int64N(int64(time.Second)))
}

// granted takes what the outcome of a request says about the hold that it was granted.
func (h *handle) granted(r *wire.Reply) {
	h.fence, h.share, h.numbers, h.holds = r.GetFence(), r.GetShare(), r.GetSlots(), 1
	if h.isSet() {
		h.grantedSet(r)
		h.session.program.noteLeft(h)
	}
	p := h.session.program
	if h.waitsForEnd = h.maxHold != 0 && p.sim.endsRNG.IntN(4) == 0 && !p.sim.draining; h.maxHold == 0 {
		return
	}
	h.end = &holdEnd{program: p, end: maxhold.Granted(maxhold.Outcome{
		Sent: leaseclock.Instant(h.sent), Allowed: time.Duration(r.GetAllowed()), Now: r.GetNow(), Index: r.GetIndex(),
	}, p.heard)}
	h.end.until = time.Duration(h.end.end.At())
	h.call.op.end = h.end
}

// passed reports whether the holder has lost the hold by its own clock. A hold without an end has not.
func (e *holdEnd) passed() bool { return e != nil && e.program.clock() >= e.until }

// move takes over a change of the end. A hold that is past its end stays lost.
func (e *holdEnd) move() {
	if !e.passed() {
		e.until = time.Duration(e.end.At())
	}
}

// number is by which the group knows the hold.
func (h *handle) number() uint64 {
	switch {
	case h.isSet():
		return setNumber(h.fence, len(h.set.names))
	case h.shared:
		return h.share
	}
	return h.fence
}

// loseOverdue gives up a hold that is past its end. Most handles release it, and learn whether the group has ended it; the
// others go on as another handle, since the group may still have the hold of this one.
func (h *handle) loseOverdue() {
	p := h.session.program
	h.waitsForEnd = false
	p.sim.ends.lost++
	p.sim.trace("%d.%d finds %s lost by its MaxHold, fence %d", p.n, h.n, h.lock, h.fence)
	if h.space == wire.Space_SEMAPHORE || p.sim.endsRNG.IntN(4) > 0 {
		h.release()
		return
	}
	h.state, h.end = idle, nil
	h.n += nextHandle
}

// nextHandle is a multiple of what the properties of handles depend on.
const nextHandle = 1200

// extend moves the end of the hold. Like a caller whose context ends, the handle may use the hold again before the outcome.
func (h *handle) extend() {
	p := h.session.program
	h.extendBy(p.someMaxHold())
	if p.sim.endsRNG.IntN(4) == 0 {
		h.state = held
		p.sim.ends.unknown++
	}
}

func (h *handle) extendBy(d time.Duration) {
	s, end, number := h.session, h.end, h.number()
	cmd := &wire.Extend{Space: h.space, Name: h.lock, Session: s.id[:], Share: h.share, MaxHold: int64(d)}
	switch {
	case h.isSet():
		cmd = &wire.Extend{Session: s.id[:], Fence: h.fence, Set: true, MaxHold: int64(d)}
	case h.share == 0:
		cmd.Handle, cmd.Fence = h.n, h.fence
	}
	x := end.end.Extend(leaseclock.Instant(s.program.clock()), d)
	end.move()
	h.state = extending
	var call *simCall
	call = s.program.submit(extendCommand(cmd), false, func(r *wire.Reply) {
		current := h.end == end && (h.state == extending || h.state == held)
		if current {
			h.state = held
		}
		switch {
		case r == nil && call.op.noEffect:
			end.end.Settle(x)
			end.move()
		case r == nil:
		case r.GetCode() != wire.Code_OK:
			end.end.Settle(x)
			end.move()
			if current && h.number() == number { // else it was downgraded meanwhile
				h.checkRefusal(r)
				h.state = idle
			}
		default:
			end.end.Extended(x, time.Duration(r.GetAllowed()), r.GetIndex())
			end.move()
			h.extendAgain(end, cmd)
		}
	})
}

// extendAgain has the group end soon what it keeps for the extended time, though the holder found it lost meanwhile.
func (h *handle) extendAgain(end *holdEnd, cmd *wire.Extend) {
	if s := h.session; end.passed() && !s.lost && cmd.MaxHold != machine.MinMaxHold {
		again := &wire.Extend{
			Space: cmd.Space, Name: cmd.Name, Session: cmd.Session, Handle: cmd.Handle, Fence: cmd.Fence, Share: cmd.Share, Set: cmd.Set,
			MaxHold: machine.MinMaxHold,
		}
		s.program.submit(extendCommand(again), true, func(*wire.Reply) {})
	}
}

func extendCommand(c *wire.Extend) *wire.Command {
	return &wire.Command{Op: &wire.Command_Extend{Extend: c}}
}

// missed reports whether a snapshot may have both the outcome of a request with MaxHold and what ended it, so that the state
// has neither.
func (h *handle) missed(t wire.Ticket) bool {
	history := h.session.program.sim.history
	dismissed := slices.ContainsFunc(history.outcomes[t], func(r *wire.Reply) bool { return r.GetCode() == wire.Code_LIMIT_MISMATCH })
	return h.maxHold != 0 && (dismissed || history.audit.grantEnded(t))
}

// endedInLog reports whether the group has ended the hold by its MaxHold.
func (h *handle) endedInLog() bool { return h.session.program.sim.history.audit.endedHolds[h.number()] }

// checkEnded runs when the group ends a hold by its MaxHold: its holder does not rely on it any more, by its own clock,
// unless clocks are coarse.
func (sim *simulation) checkEnded(g grant, number uint64) {
	sim.trace("the hold of %s with number %d ends by its MaxHold", g.name, number)
	switch {
	case g.kind == "semaphore":
		sim.ends.permits++
	case g.shared:
		sim.ends.shares++
	default:
		sim.ends.locks++
	}
	if sim.faults.coarseClocks {
		return
	}
	for _, m := range sim.allHosts() {
		for _, h := range m.handles() {
			if h.end != nil && h.state != idle && h.number() == number && !h.end.passed() {
				sim.fail("the hold of %s by %d.%d with number %d ends at %v of its clock, before the holder's deadline %v",
					h.lock, m.n, h.n, number, h.end.program.clock(), h.end.until)
			}
		}
	}
}
