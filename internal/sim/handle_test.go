package sim

import (
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// handle is one owner of locks, a candidate in elections, or a user of
// semaphores. It keeps its own account of what it holds, and every reply has to
// agree with it.
type handle struct {
	session   *simSession
	n         uint64
	space     wire.Space
	names     []string // to choose from
	reentrant bool
	recover   bool // an earlier process may have left something: take it over, and give it back

	state   handleState
	lock    string      // or election, or semaphore
	ticket  wire.Ticket // of the Lock that is queued
	limit   uint32
	permits uint32
	fence   uint64
	holds   uint32 // an acquisition of permits is one
	call    *simCall
	since   time.Duration
}

type handleState int

const (
	idle      handleState = iota
	locking               // sent
	queued                // the grant is to follow
	held                  //
	busy                  // an Unlock or another Lock of the same is under way
	leaving               // withdrawn, unless the grant is faster
	abandoned             // went before the first outcome: what comes will be undone
)

// The names that handles choose from; none of them is of two kinds.
var (
	locks      = []string{"lock-0", "lock-1", "lock-2"}
	elections  = []string{"election-0", "election-1", "election-kept"}
	semaphores = []string{"sem-0", "sem-1", "sem-kept"}
)

const limit = 3 // of a re-entrant handle's holds

// act does one of the things that can be done now.
func (h *handle) act() {
	p := h.session.program
	rng := p.w.rng
	switch h.state {
	case idle:
		if !p.w.calm || p.cycles < 2 || h.recover {
			h.acquire(h.names[rng.IntN(len(h.names))], p.w.calm || rng.IntN(4) > 0)
		}
	case locking:
		if rng.IntN(8) == 0 && !p.w.calm {
			h.cancel()
		}
	case queued:
		if rng.IntN(8) == 0 && !p.w.calm || p.w.now > h.since+5*time.Second {
			h.withdraw()
		}
	case held:
		if h.reentrant && rng.IntN(2) == 0 && !p.w.calm {
			h.reenter()
		} else if h.space == wire.Space_ELECTION && rng.IntN(2) == 0 && !p.w.calm {
			h.proclaim()
		} else if rng.IntN(2) == 0 {
			h.release()
		}
	}
}

func (h *handle) acquire(name string, wait bool) {
	w := h.session.program.w
	h.state, h.lock, h.fence, h.holds = locking, name, 0, 0
	h.since = w.now
	if h.space == wire.Space_SEMAPHORE {
		h.limit = w.limits[name]
		h.permits = 1
		if !h.recover && h.session.ttl != 0 { // what was left is taken over as it was
			h.permits = 1 + w.rng.Uint32N(min(3, h.limit))
		}
	}
	h.call = h.session.program.call(h.command(wait), false, h.acquired)
	h.call.recheck = h.recheck
	h.call.unsent = func() { h.state = idle }
}

// recheck is what the root finds in the state that a snapshot has brought.
func (h *handle) recheck(m *observed, t wire.Ticket) *wire.Reply {
	semaphore := ""
	if h.space == wire.Space_SEMAPHORE {
		semaphore = h.lock
	}
	return m.Recheck(t, h.session.id, semaphore)
}

func (h *handle) acquired(t wire.Ticket, r *wire.Reply, more bool) {
	w := h.session.program.w
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
	case h.state == leaving: // the grant may have been faster; the withdrawal takes it back
	case r.GetCode() == wire.Code_OK && h.state == abandoned:
		h.fence, h.holds, h.state = r.GetFence(), 1, held
		h.release()
	case r.GetCode() == wire.Code_OK:
		h.fence, h.holds, h.state = r.GetFence(), 1, held
		if want := h.weight(); r.GetHolds() != want {
			w.fail("member %d: a new hold counts %d, want %d", h.session.program.n, r.GetHolds(), want)
		}
		w.believes(h)
	default:
		h.state = idle
		switch r.GetCode() {
		case wire.Code_LOCKED, wire.Code_LOCK_DELAY:
		case wire.Code_LIMIT_MISMATCH:
			h.disagrees(r)
		default:
			h.refused(r)
		}
	}
}

// refused is for outcomes that only a session's end explains, or that the group
// has forgotten this process.
func (h *handle) refused(r *wire.Reply) {
	s, p := h.session, h.session.program
	switch r.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_OWNERSHIP_LOST, wire.Code_NOT_HELD, wire.Code_WITHDRAWN:
		if _, alive := liveSession(p.w.history.oracle, s.id); !alive || !p.w.history.oracle.Incarnation(s.incarnation) {
			return
		}
	}
	p.w.fail("member %d: handle %d, lock %s, state %d: %v", p.n, h.n, h.lock, h.state, r)
}

// believes is called when a handle begins to hold: nobody else may believe
// that he does, by his own clock, unless that is a coarse one.
func (w *world) believes(h *handle) {
	if !h.holding() {
		return
	}
	w.say("%d.%d holds %s, fence %d", h.session.program.n, h.n, h.lock, h.fence)
	permits := uint32(0)
	for _, m := range w.members {
		for _, other := range m.handles() {
			if other.lock != h.lock || !other.holding() {
				continue
			}
			permits += other.permits
			if other != h && h.space != wire.Space_SEMAPHORE {
				w.fail("%d.%d and %d.%d both hold %s, with fences %d and %d", h.session.program.n, h.n, m.n, other.n, h.lock, h.fence, other.fence)
			}
		}
	}
	if h.space == wire.Space_SEMAPHORE {
		if h.lock != resizable && permits > w.limits[h.lock] {
			w.fail("%d.%d gets %d permits of %s, which makes %d", h.session.program.n, h.n, h.permits, h.lock, permits)
		}
		return // they are granted to several, who hear of it in any order
	}
	if h.fence <= w.fences[h.lock] {
		w.fail("%d.%d holds %s with fence %d, after %d", h.session.program.n, h.n, h.lock, h.fence, w.fences[h.lock])
	}
	w.fences[h.lock] = h.fence
}

func (m *simMember) handles() []*handle {
	if m.life == nil {
		return nil
	}
	return m.life.program.handles()
}

func (h *handle) holding() bool {
	s := h.session
	if s.program.w.faults.coarse || s.closing || s.program.quitting || len(s.checks) > 0 || s.lost || s.program.over || s.ttl != 0 && s.program.clock() >= s.deadline {
		return false // by force, or by a check, it ends before the holder knows
	}
	return h.state == held || h.state == busy && h.holds > 1
}

func (h *handle) reenter() {
	h.state = busy
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
			h.refused(r)
			h.state = idle
		}
	})
}

func (h *handle) release() {
	h.state = busy
	p := h.session.program
	p.submit(h.unlock(), true, func(r *wire.Reply) {
		h.holds--
		switch {
		case r == nil:
			h.state = idle
		case r.GetCode() != wire.Code_OK:
			h.refused(r)
			h.state = idle
		case r.GetHolds() != h.holds:
			p.w.fail("member %d: %d holds are left of %s, and the log says %d", p.n, h.holds, h.lock, r.GetHolds())
		case h.holds == 0:
			h.finished()
		default:
			h.state = held
		}
	})
}

func (h *handle) finished() {
	h.state, h.recover = idle, false
	if p := h.session.program; p.w.calm {
		p.cycles++
	}
}

// withdraw takes a queued Lock back, or the grant that was faster.
func (h *handle) withdraw() {
	h.state = leaving
	call := h.call
	p := h.session.program
	p.submit(&wire.Command{Op: &wire.Command_Withdraw{Withdraw: &wire.Withdraw{
		Incarnation: h.ticket.Incarnation[:], Seq: h.ticket.Seq,
	}}}, true, func(r *wire.Reply) {
		h.state = idle
		switch {
		case r == nil:
		case !call.over:
			p.w.fail("member %d: withdrawn, and the lock's last outcome has not come", p.n)
		case r.GetCode() != wire.Code_OK:
			h.refused(r)
		}
	})
}

// cancel goes before there is any outcome.
func (h *handle) cancel() {
	call := h.call
	h.state = abandoned
	h.session.program.at(0, func() { h.session.program.event(func(c *core.Core) { c.Cancel(call) }) })
}
