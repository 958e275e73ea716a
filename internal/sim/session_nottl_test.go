package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// useNoTTLSession uses a session without a TTL, which outlives processes: the
// member's next process attaches it and claims its holds.
func (p *program) useNoTTLSession() {
	s := p.noTTL
	switch {
	case s == nil && p.noTTLID.IsZero():
		p.openNoTTLSession()
	case s == nil:
		p.attach()
	case s.lost: // closed by force
		p.noTTLID, p.noTTL = wire.ID{}, nil
	case s.open:
		s.handles[p.sim.rng.IntN(len(s.handles))].act()
		s.actClaimants()
		s.actRunners()
		s.actWorkers()
	}
}

// newNoTTLSession prepares the handles of the session. reclaim: an earlier process
// may have left holds.
func (p *program) newNoTTLSession(reclaim bool) *simSession {
	s := &simSession{program: p, id: p.noTTLID, incarnation: p.incarnation, attaches: reclaim}
	if before := p.sim.history.sessions[s.id]; before != nil {
		s.closing = before.closing // the command may still be in flight
	}
	s.addHandle(wire.Space_LOCK, []string{"kept"})
	s.addHandle(wire.Space_ELECTION, elections[2:])
	s.addHandle(wire.Space_SEMAPHORE, semaphores[2:])
	for _, h := range s.handles {
		h.reclaim = reclaim
	}
	s.addClaimants()
	s.addRunners(1, true)
	s.addWorkers(1, true)
	p.noTTL, p.sim.history.sessions[s.id] = s, s
	return s
}

func (p *program) openNoTTLSession() {
	p.noTTLID = p.sim.newID()
	s := p.newNoTTLSession(false)
	s.lockDelay = time.Duration(p.sim.rng.IntN(2)) * time.Second
	p.open(s)
}

// attach may find that the session has ended, or never existed: the process that
// opened it may have crashed too early.
func (p *program) attach() {
	s, replacements := p.newNoTTLSession(true), p.replacements
	p.submit(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: s.id[:]}}}, true, func(r *wire.Reply) {
		if r.GetCode() == wire.Code_OK && p.replacements != replacements && p.noTTL == s {
			p.noTTL = nil // as in the client: it may have ended since, so attach it again
			return
		}
		switch r.GetCode() {
		case wire.Code_OK:
			s.attached()
		case wire.Code_SESSION_BOUND: // to the registration of an earlier process, which has to expire
			if p.remote == nil {
				p.sim.fail("member %d: its session is bound to another process", p.n)
			}
			p.after(p.simulatedTime(500*time.Millisecond), func() {
				if p.noTTL == s {
					p.noTTL = nil
				}
			})
		case wire.Code_UNKNOWN_INCARNATION: // the registration has expired, and the session goes on without it
			if p.noTTL == s {
				p.noTTL = nil
			}
		case wire.Code_SESSION_EXPIRED, wire.Code_CODE_UNSPECIFIED:
			s.lost = true
		default:
			p.sim.fail("member %d: attach its session: %v", p.n, r)
		}
	})
}

// replaced reports whether its program does not use the session any more. As the client does, it abandons then what was asked for in it: a
// request that waits for the next registration may be granted to a session without a TTL, which the program has attached again meanwhile.
// (Seed 40262 found such a hold, which no handle released.)
func (s *simSession) replaced() bool { return s != s.program.session && s != s.program.noTTL }

// forceCloseAny acts as an operator who closes any session, on any member.
func (sim *simulation) forceCloseAny(p *program) {
	sessions := sessionsOf(sim.history.oracle)
	if len(sessions) == 0 || !p.registered {
		return
	}
	p.forceClose(sessions[sim.rng.IntN(len(sessions))].ID, sim.chance(0.2), func() {})
}

func (p *program) forceClose(id wire.ID, graceful bool, done func()) {
	if s := p.sim.history.sessions[id]; s != nil {
		s.closing = true
	}
	p.sim.trace("session %s is closed by force", id)
	command := &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: slices.Clone(id[:]), Graceful: graceful}}}
	p.submit(command, true, func(*wire.Reply) { done() })
}

// closeOrphans acts as an operator who closes the sessions of a lost member that
// have no TTL: nothing else ends them.
func (p *program) closeOrphans() {
	if !p.sim.draining || p.closingOrphan || !p.sim.anyDestroyed() {
		return
	}
	for _, s := range sessionsOf(p.sim.history.oracle) {
		if s.TTL == 0 && p.sim.ofDestroyed(s) {
			p.closingOrphan = true
			p.forceClose(s.ID, false, func() { p.closingOrphan = false })
			return
		}
	}
}

// ofDestroyed reports whether the session is one of a lost member.
func (sim *simulation) ofDestroyed(s machine.SessionView) bool {
	i := s.Member - 1
	return i < uint64(len(sim.members)) && sim.members[i].destroyed
}

func (sim *simulation) resize(p *program) {
	if !p.registered {
		return
	}
	limit := 3 + sim.rng.Uint32N(5)
	sim.trace("%s is to have the limit %d", resizable, limit)
	command := &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: resizable, Limit: limit}}}
	p.submit(command, false, func(*wire.Reply) {})
}
