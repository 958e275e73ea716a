package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/linger"
	"github.com/conclave-go/conclave/internal/wire"
)

// handle is one owner of locks, candidate in elections, or user of semaphores. It
// tracks what it holds, and every reply must agree with that.
type handle struct {
	session   *simSession
	n         uint64
	space     wire.Space
	names     []string // to choose from
	reentrant bool
	reclaim   bool // an earlier process may have left holds: claim and release them
	refuses   bool // it refuses deadlocks

	state    handleState
	lock     string      // or election, or semaphore
	ticket   wire.Ticket // of the queued Lock
	limit    uint32
	permits  uint32
	fence    uint64
	numbers  []uint32 // of the permits
	shared   bool     // it asks for a share of the lock, or has one
	share    uint64   // its number; 0: it has none
	holds    uint32   // an acquisition of permits counts as one
	call     *simCall
	calledAt time.Duration
	maxHold  time.Duration // of the last request
	sent     time.Duration // when, on the process's clock
	end      *holdEnd      // of what it holds; nil: it does not end in time

	waitsForEnd bool // it does nothing before

	set *setRequest // of a handle of sets, and of each part of what it holds; else nil

	keeper *keeper // acquires locks in its tenures; nil: by itself
	tenure *tenure
	place  linger.Place[*handle]
	local  *operation // the grant in the tenure

	sharing *sharedTenure // in which it waits or holds; of sharers
}

type handleState int

const (
	idle      handleState = iota
	acquiring             // sent
	queued                // the grant is to follow
	held
	inFlight    // an Unlock or another Lock is in flight
	withdrawing // withdrawn, unless the grant came first
	abandoned   // abandoned before the first outcome: a grant is released
	downgrading // a Downgrade is in flight
	extending   // an Extend is in flight
)

// The names that handles choose from. No two kinds share a name.
var (
	locks      = []string{"lock-0", "lock-1", "lock-2"}
	elections  = []string{"election-0", "election-1", "election-kept"}
	semaphores = []string{"sem-0", "sem-1", "sem-kept"}
)

const limit = 3 // holds of a re-entrant handle

// act does one of the things that the current state permits.
func (h *handle) act() {
	p := h.session.program
	rng := p.sim.rng
	if h.isSet() {
		rng = p.sim.setsRNG
	}
	if h.keeper != nil {
		h.actInTenure()
		return
	}
	switch h.state {
	case idle:
		switch wait := p.sim.draining; {
		case p.sim.draining && p.cycles >= 2 && !h.reclaim:
		case h.session.leftFence != 0 && h.isSet():
			h.releaseLeft()
		case h.isSet():
			h.acquireSet(wait || rng.IntN(8) > 0)
		default:
			h.acquire(h.names[rng.IntN(len(h.names))], wait || rng.IntN(4) > 0)
		}
	case acquiring:
		if rng.IntN(8) == 0 && !p.sim.draining {
			h.cancel()
		}
	case queued:
		if rng.IntN(8) == 0 && !p.sim.draining || p.sim.now > h.calledAt+5*time.Second {
			h.withdraw()
		}
	case held:
		if h.end.passed() {
			h.loseOverdue()
		} else if h.waitsForEnd {
			break
		} else if h.end != nil && p.sim.endsRNG.IntN(3) == 0 && !p.sim.draining {
			h.extend()
		} else if h.reentrant && rng.IntN(2) == 0 && !p.sim.draining {
			h.reenter()
		} else if h.space == wire.Space_ELECTION && rng.IntN(2) == 0 && !p.sim.draining {
			h.proclaim()
		} else if h.mayDowngrade() {
			h.downgrade()
		} else if rng.IntN(2) == 0 {
			h.release()
		}
	}
}

func (h *handle) acquire(name string, wait bool) {
	sim := h.session.program.sim
	h.lock, h.shared = name, h.mayShare() && sim.extraRNG.IntN(2) == 0
	if h.space == wire.Space_SEMAPHORE {
		h.limit = sim.limits[name]
		h.permits = 1
		if !h.reclaim && h.session.ttl != 0 { // an unclaimed acquisition is claimed with its own size
			h.permits = 1 + sim.rng.Uint32N(min(3, h.limit))
		}
	}
	h.request(wait, h.chooseMaxHold())
}

func (h *handle) request(wait bool, maxHold time.Duration) {
	p := h.session.program
	h.state, h.fence, h.share, h.holds = acquiring, 0, 0, 0
	h.calledAt, h.sent = p.sim.now, p.clock()
	h.maxHold, h.end = maxHold, nil
	h.call = p.call(h.command(wait), false, h.acquired)
	h.call.recheck = h.recheck
	h.call.onUnsent = func() { h.state = idle }
}

// recheck looks the call up in the state of a snapshot, as the client engine does.
func (h *handle) recheck(m wire.Rechecker, t wire.Ticket) *wire.Reply {
	semaphore := ""
	if h.space == wire.Space_SEMAPHORE && h.maxHold == 0 {
		semaphore = h.lock
	}
	return m.Recheck(t, h.session.id, semaphore, "")
}

func (h *handle) acquired(t wire.Ticket, r *wire.Reply, more bool) {
	sim := h.session.program.sim
	if h.session.replaced() && (h.state == acquiring || h.state == queued) {
		h.state = abandoned
	}
	switch {
	case r == nil:
		h.state = idle
	case more:
		h.ticket = t
		if h.state == abandoned {
			h.withdraw()
		} else {
			h.state = queued
		}
	case h.state == withdrawing: // the grant may have come first; the withdrawal releases it
		if r.GetCode() == wire.Code_OK {
			h.granted(r)
		}
	case r.GetCode() == wire.Code_OK && h.state == abandoned:
		h.granted(r)
		h.state = held
		h.release()
	case r.GetCode() == wire.Code_OK:
		h.granted(r)
		h.state = held
		if want := h.wantHolds(); r.GetHolds() != want {
			sim.fail("member %d: a new hold counts %d, want %d", h.session.program.n, r.GetHolds(), want)
		}
		if h.shared != (h.share != 0) {
			sim.fail("member %d: shared %t, and the grant is %v", h.session.program.n, h.shared, r)
		}
		sim.checkExclusive(h)
		h.session.task.granted(sim)
	default:
		h.state = idle
		switch r.GetCode() {
		case wire.Code_LOCKED, wire.Code_LOCK_DELAY:
		case wire.Code_DEADLOCK:
			h.refused(r)
		case wire.Code_LIMIT_MISMATCH:
			h.learnLimit(r)
		case wire.Code_SESSION_EXPIRED:
			if h.call.rechecked != r || !h.missed(t) {
				h.checkRefusal(r)
			}
		default:
			h.checkRefusal(r)
		}
	}
}

// checkRefusal accepts an outcome only if the session has ended or the registration
// has expired, or its hold has ended by its MaxHold.
func (h *handle) checkRefusal(r *wire.Reply) {
	s, p := h.session, h.session.program
	switch r.GetCode() {
	case wire.Code_OWNERSHIP_LOST, wire.Code_NOT_HELD:
		if h.end != nil && h.endedInLog() {
			return
		}
	}
	switch r.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_OWNERSHIP_LOST, wire.Code_NOT_HELD, wire.Code_WITHDRAWN:
		if _, alive := liveSession(p.sim.history.oracle, s.id); !alive || !registered(p.sim.history.oracle, s.incarnation) {
			return
		}
	}
	p.sim.fail("member %d: handle %d, lock %s, state %d: %v", p.n, h.n, h.lock, h.state, r)
}

// checkExclusive runs when a handle begins to hold: no other handle may trust a
// hold of the same lock, by its own clock, unless clocks are coarse.
func (sim *simulation) checkExclusive(h *handle) {
	if !h.trustsHold() {
		return
	}
	if h.isSet() {
		for _, part := range h.set.parts {
			sim.checkExclusive(part)
		}
		return
	}
	if h.shared {
		sim.checkShared(h)
		return
	}
	if sim.fences[h.grant()] {
		sim.fail("%d.%d holds %s with fence %d, which was granted before", h.session.program.n, h.n, h.lock, h.fence)
	}
	sim.fences[h.grant()] = true
	sim.modes.exclusive += btoi(h.space == wire.Space_LOCK)
	sim.trace("%d.%d holds %s, fence %d", h.session.program.n, h.n, h.lock, h.fence)
	permits := uint32(0)
	for _, m := range sim.allHosts() {
		for _, other := range m.handles() {
			if other.lock != h.lock || !other.trustsHold() {
				continue
			}
			permits += other.permits
			if other != h && slices.ContainsFunc(other.numbers, func(n uint32) bool { return slices.Contains(h.numbers, n) }) {
				sim.fail("%d.%d and %d.%d both have a number of %v and %v of %s", h.session.program.n, h.n, m.n, other.n, h.numbers, other.numbers, h.lock)
			}
			if other != h && h.space != wire.Space_SEMAPHORE {
				sim.fail("%d.%d and %d.%d both hold %s, with fences %d and %d", h.session.program.n, h.n, m.n, other.n, h.lock, h.fence, other.fence)
			}
		}
	}
	if h.space == wire.Space_SEMAPHORE {
		if h.lock != resizable && permits > sim.limits[h.lock] {
			sim.fail("%d.%d gets %d permits of %s, for a total of %d", h.session.program.n, h.n, h.permits, h.lock, permits)
		}
		return // permits have several holders, which may learn of their grants in any order
	}
	if h.fence <= sim.lastFence[h.lock] {
		sim.fail("%d.%d holds %s with fence %d, not above %d", h.session.program.n, h.n, h.lock, h.fence, sim.lastFence[h.lock])
	}
	sim.modes.after += btoi(sim.phases[grantOf{sim.lastFence[h.lock], h.lock}])
	sim.lastFence[h.lock] = h.fence
}

// allHosts returns the hosts of all programs.
func (sim *simulation) allHosts() []*simMember { return slices.Concat(sim.members, sim.remotes) }

func (m *simMember) handles() []*handle {
	if m.process == nil {
		return nil
	}
	return m.process.program.handles()
}

// grantOf is a fence that handles have trusted. Several locks have that of a set.
type grantOf struct {
	fence uint64
	lock  string // of locks
}

func (h *handle) grant() grantOf {
	if h.space != wire.Space_LOCK {
		return grantOf{h.fence, ""}
	}
	return grantOf{h.fence, h.lock}
}

func (h *handle) trustsHold() bool {
	if h.isPart() {
		return slices.Contains(h.set.of.set.parts, h) && h.set.of.trustsHold()
	}
	if !h.session.trusted() || h.end.passed() {
		return false
	}
	return h.state == held || h.state == extending || h.state == inFlight && h.holds > 1
}

// trusted reports whether the holder relies on the session: a forced close or a check ends it before the holder learns of it.
func (s *simSession) trusted() bool {
	p := s.program
	return !p.sim.faults.coarseClocks && !s.closing && !p.isLeaving() && len(s.checks) == 0 && !s.lost && !p.terminated && (s.ttl == 0 || p.clock() < s.deadline)
}

func (h *handle) reenter() {
	h.state = inFlight
	h.session.program.submit(h.command(true), false, func(r *wire.Reply) {
		h.state = held
		want, code := h.holds+1, wire.Code_OK
		if want > limit {
			want, code = 0, wire.Code_LIMIT_REACHED
		}
		switch {
		case r == nil:
		case r.GetCode() == code && r.GetHolds() == want:
			h.holds = max(want, h.holds)
		default:
			h.checkRefusal(r)
			h.state = idle
		}
	})
}

func (h *handle) release() {
	h.state = inFlight
	p := h.session.program
	p.submit(h.unlock(), true, func(r *wire.Reply) {
		h.holds--
		switch {
		case r == nil:
			h.state = idle
		case r.GetCode() != wire.Code_OK:
			h.checkRefusal(r)
			h.state = idle
		case r.GetHolds() != h.holds:
			p.sim.fail("member %d: %d holds of %s remain, but the reply says %d", p.n, h.holds, h.lock, r.GetHolds())
		case h.holds == 0:
			h.cycleDone()
		default:
			h.state = held
		}
	})
}

func (h *handle) cycleDone() {
	h.state = idle
	h.reclaimed()
	if p := h.session.program; p.sim.draining {
		p.cycles++
	}
}

// withdraw withdraws a queued Lock, or releases its grant if that came first.
func (h *handle) withdraw() {
	h.state = withdrawing
	call := h.call
	p := h.session.program
	p.submit(withdrawal(h.ticket), true, func(r *wire.Reply) {
		h.state = idle
		switch {
		case r == nil:
		case !call.finished:
			p.sim.fail("member %d: withdrawn before the last outcome of the Lock", p.n)
		case r.GetCode() == wire.Code_NOT_HELD && h.missed(h.ticket):
		case r.GetCode() != wire.Code_OK:
			h.checkRefusal(r)
		}
	})
}

// cancel abandons the call before its first outcome.
func (h *handle) cancel() {
	call := h.call
	h.state = abandoned
	h.session.program.after(0, func() { h.session.program.gateway.cancel(call) })
}
