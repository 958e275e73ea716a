package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// keep is what the program does with a session that has no TTL and outlives
// processes: the next process of the member attaches it, and takes over what
// the one before has left.
func (p *program) keep() {
	s := p.keeper
	switch {
	case s == nil && p.kept.IsZero():
		p.openKeeper()
	case s == nil:
		p.attach()
	case s.lost: // closed by force
		p.kept, p.keeper = wire.ID{}, nil
	case s.open:
		s.handles[p.w.rng.IntN(len(s.handles))].act()
	}
}

func (p *program) newKeeper(recover bool) *simSession {
	s := &simSession{program: p, id: p.kept, incarnation: p.incarnation}
	if before := p.w.history.sessions[s.id]; before != nil {
		s.closing = before.closing // the command may still be under way
	}
	s.addHandle(wire.Space_LOCK, []string{"kept"})
	s.addHandle(wire.Space_ELECTION, elections[2:])
	s.addHandle(wire.Space_SEMAPHORE, semaphores[2:])
	for _, h := range s.handles {
		h.recover = recover
	}
	p.keeper, p.w.history.sessions[s.id] = s, s
	return s
}

func (p *program) openKeeper() {
	p.kept = p.w.id()
	s := p.newKeeper(false)
	s.delay = time.Duration(p.w.rng.IntN(2)) * time.Second
	p.open(s)
}

// attach may be told that the session is over, or never was: the process that
// asked for it may have died too early.
func (p *program) attach() {
	s := p.newKeeper(true)
	p.submit(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: s.id[:]}}}, true, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK:
			s.open = true
		case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_CODE_UNSPECIFIED:
			s.lost = true
		default:
			p.w.fail("member %d cannot attach its session: %v", p.n, r)
		}
	})
}

// closeByForce is an operator who closes a session of anybody, on any member.
func (w *world) closeByForce(p *program) {
	sessions := sessionsOf(w.history.oracle)
	if len(sessions) == 0 || !p.registered {
		return
	}
	p.force(sessions[w.rng.IntN(len(sessions))].ID, w.chance(0.2), func() {})
}

func (p *program) force(id wire.ID, graceful bool, done func()) {
	if s := p.w.history.sessions[id]; s != nil {
		s.closing = true
	}
	p.w.say("session %s is closed by force", id)
	command := &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: slices.Clone(id[:]), Graceful: graceful}}}
	p.submit(command, true, func(*wire.Reply) { done() })
}

// clearUp is an operator who closes what a dead member leaves: nobody else ends a
// session that has no TTL.
func (p *program) clearUp() {
	if !p.w.calm || p.closing || !p.w.buried() {
		return
	}
	for _, s := range sessionsOf(p.w.history.oracle) {
		if s.TTL == 0 && p.w.members[s.Member-1].dead {
			p.closing = true
			p.force(s.ID, false, func() { p.closing = false })
			return
		}
	}
}

func (w *world) resize(p *program) {
	if !p.registered {
		return
	}
	limit := 3 + w.rng.Uint32N(5)
	w.say("%s is to have the limit %d", resizable, limit)
	command := &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: resizable, Limit: limit}}}
	p.submit(command, false, func(*wire.Reply) {})
}
