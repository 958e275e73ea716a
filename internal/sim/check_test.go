package sim

import (
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Some worlds have checks, and sessions that depend on them. Such a session may
// end at any moment, whatever its holder knows; the audit says whether it had to.

// checkSets are what sessions depend on.
func checkSets() [][]string { return [][]string{nil, {"gossip"}, {"app"}, {"app", "gossip"}} }

const checkTTL = 3 * time.Second

// check says how the program's own check is, about once a second.
func (p *program) check() {
	if !p.w.faults.checks || p.checking || p.w.now < p.muted {
		return
	}
	state := wire.CheckState_PASSING
	if !p.w.calm && p.w.chance(0.2) {
		state = wire.CheckState(1 + p.w.rng.IntN(2))
	}
	p.checking = true
	command := &wire.Command{Op: &wire.Command_SetCheck{SetCheck: &wire.SetCheck{
		Name: "app", Register: true, Ttl: int64(checkTTL), State: state,
	}}}
	if !p.w.calm && p.w.chance(0.05) {
		command = &wire.Command{Op: &wire.Command_DropCheck{DropCheck: &wire.DropCheck{Name: "app"}}}
	}
	p.submit(command, true, func(r *wire.Reply) {
		p.at(p.lasts(checkTTL/3), func() { p.checking = false })
		p.expectCode(command, r, wire.Code_OK, wire.Code_CHECK_UNKNOWN)
	})
}

func (p *program) expectCode(c *wire.Command, r *wire.Reply, allowed ...wire.Code) {
	if r == nil || r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		return
	}
	for _, code := range allowed {
		if r.GetCode() == code {
			return
		}
	}
	p.w.fail("member %d: %v: %v", p.n, c, r)
}

// gossip has a member report of another one what may be true or not.
func (w *world) gossip(p *program) {
	if w.faults.checks && p.registered {
		of := w.members[w.rng.IntN(len(w.members))]
		p.report(of, w.chance(0.4))
	}
}

func (p *program) report(of *simMember, alive bool) {
	p.w.say("%d reports %d: alive %t", p.n, of.n, alive)
	command := &wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: &wire.ReportGossip{
		Member: of.id(), Boot: of.boot, Alive: alive, Term: p.core.Status().Term,
	}}}
	p.submit(command, true, func(r *wire.Reply) { p.expectCode(command, r, wire.Code_OK) })
}

// unhealthy is told that a session cannot be opened on a check of its member.
func (p *program) unhealthy(s *simSession, r *wire.Reply) {
	switch r.GetCode() {
	case wire.Code_CHECK_CRITICAL, wire.Code_CHECK_UNKNOWN:
		if len(s.checks) == 0 {
			p.w.fail("member %d: a session without checks: %v", p.n, r)
		}
		p.report(p.simMember, true)
	}
}

// health: no session lives on a check that is critical.
func (a *audit) health(p part, r wire.Result) {
	if c := p.command.GetRegister(); c != nil {
		a.members[p.ticket.Incarnation] = c.GetMember()
	}
	silent := make(map[uint64]bool)
	for _, g := range a.m.Liveness() {
		silent[g.Member] = g.Silent
	}
	failed := uint64(0)
	if c := p.command.GetSetCheck(); c.GetState() == wire.CheckState_CRITICAL || p.command.GetDropCheck() != nil {
		failed = a.doneBy(p.ticket, r)
	}
	for _, s := range sessionsOf(a.m) {
		for _, check := range s.Checks {
			if check == "gossip" && silent[s.Member] || check == "app" && s.Member == failed {
				a.w.fail("session %s of member %d lives on, and its check %s has failed", s.ID, s.Member, check)
			}
		}
	}
}

// doneBy is the member whose command has just been carried out; 0: it was
// refused, or is an old one that was sent again.
func (a *audit) doneBy(t wire.Ticket, r wire.Result) uint64 {
	for _, o := range r.Outcomes {
		if o.Ticket == t && o.Reply.GetCode() == wire.Code_OK && !a.answered[t] {
			return a.members[t.Incarnation]
		}
	}
	return 0
}
