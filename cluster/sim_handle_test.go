package cluster

import (
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// handle is one owner of locks. It keeps its own account of what it holds, and
// every reply has to agree with it.
type handle struct {
	session   *simSession
	n         uint64
	reentrant bool

	state handleState
	lock  string
	seq   uint64 // of the Lock that is queued
	fence uint64
	holds uint32
	call  *simCall
	since time.Duration
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
		if !p.w.calm || p.cycles < 2 {
			h.acquire(fmt.Sprintf("lock-%d", rng.IntN(3)), p.w.calm || rng.IntN(4) > 0)
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
		} else if rng.IntN(2) == 0 {
			h.release()
		}
	}
}

func (h *handle) command(wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Reentrant: h.reentrant, Limit: limit, Wait: wait, Fence: h.fence,
	}}}
}

func (h *handle) acquire(lock string, wait bool) {
	h.state, h.lock, h.fence, h.holds = locking, lock, 0, 0
	h.since = h.session.program.w.now
	h.call = h.session.program.call(h.command(wait), false, h.acquired)
	h.call.recheck = func(m *observed, t wire.Ticket) *wire.Reply {
		switch found := m.Acquisition(wire.Space_LOCK, lock, t); {
		case found.Waiting:
			return nil
		case found.Held:
			return &wire.Reply{Code: wire.Code_OK, Fence: found.Fence, Holds: found.Holds}
		}
		return &wire.Reply{Code: wire.Code_SESSION_EXPIRED}
	}
	h.call.unsent = func() { h.state = idle }
}

func (h *handle) acquired(t wire.Ticket, r *wire.Reply, more bool) {
	w := h.session.program.w
	switch {
	case r == nil:
		h.state = idle
	case more:
		h.seq = t.Seq
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
		if r.GetHolds() != 1 {
			w.fail("member %d: a new hold counts %d", h.session.program.n, r.GetHolds())
		}
		w.believes(h)
	default:
		h.state = idle
		switch r.GetCode() {
		case wire.Code_LOCKED, wire.Code_LOCK_DELAY:
		default:
			h.refused(r)
		}
	}
}

// refused is for outcomes that only a session's end explains.
func (h *handle) refused(r *wire.Reply) {
	s, p := h.session, h.session.program
	switch r.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_OWNERSHIP_LOST, wire.Code_NOT_HELD, wire.Code_WITHDRAWN:
		if _, alive := p.w.history.oracle.Session(s.id); !alive {
			return
		}
	}
	p.w.fail("member %d: handle %d, lock %s, state %d: %v", p.n, h.n, h.lock, h.state, r)
}

// believes is called when a handle begins to hold: nobody else may believe
// that he does, by his own clock.
func (w *world) believes(h *handle) {
	if !h.holding() {
		return
	}
	w.say("%d.%d holds %s, fence %d", h.session.program.n, h.n, h.lock, h.fence)
	for _, m := range w.members {
		if m.life == nil || m.life.program.session == nil {
			continue
		}
		for _, other := range m.life.program.session.handles {
			if other != h && other.lock == h.lock && other.holding() {
				w.fail("%d.%d and %d.%d both hold %s, with fences %d and %d", h.session.program.n, h.n, m.n, other.n, h.lock, h.fence, other.fence)
			}
		}
	}
	if h.fence <= w.fences[h.lock] {
		w.fail("%d.%d holds %s with fence %d, after %d", h.session.program.n, h.n, h.lock, h.fence, w.fences[h.lock])
	}
	w.fences[h.lock] = h.fence
}

func (h *handle) holding() bool {
	s := h.session
	return (h.state == held || h.state == busy && h.holds > 1) && !s.lost && !s.program.over && s.program.clock() < s.deadline
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
	p.submit(&wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Fence: h.fence,
	}}}, true, func(r *wire.Reply) {
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
	h.state = idle
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
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Seq: h.seq,
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
	h.session.program.at(0, func() { h.session.program.event(func(c *core) { c.cancel(call) }) })
}
