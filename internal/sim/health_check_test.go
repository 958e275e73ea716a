package sim

import (
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// checkSets are the sets of checks that sessions depend on, in simulations with
// checks. A session that depends on one may end at any moment, whatever its holder
// knows; the audit checks whether it had to.
func checkSets() [][]string {
	return [][]string{nil, {"gossip", "process"}, {"app", "process"}, {"app", "gossip"}}
}

const checkTTL = 3 * time.Second

// updateCheck reports the state of the program's own check about once a second.
func (p *program) updateCheck() {
	if !p.sim.faults.checks || p.remote != nil || p.checkInFlight || p.sim.now < p.mutedUntil {
		return
	}
	state := wire.CheckState_PASSING
	if !p.sim.draining && p.sim.chance(0.2) {
		state = wire.CheckState(1 + p.sim.rng.IntN(2))
	}
	p.checkInFlight = true
	command := &wire.Command{Op: &wire.Command_SetCheck{SetCheck: &wire.SetCheck{
		Name: "app", Register: true, Ttl: int64(checkTTL), State: state,
	}}}
	if !p.sim.draining && p.sim.chance(0.05) {
		command = &wire.Command{Op: &wire.Command_DropCheck{DropCheck: &wire.DropCheck{Name: "app"}}}
	}
	p.submit(command, true, func(r *wire.Reply) {
		p.after(p.simulatedTime(checkTTL/3), func() { p.checkInFlight = false })
		p.expectCode(command, r, wire.Code_OK, wire.Code_CHECK_UNKNOWN)
	})
}

// expectCode checks the code of a reply, unless the registration has expired.
func (p *program) expectCode(c *wire.Command, r *wire.Reply, allowed ...wire.Code) {
	if r == nil || r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		return
	}
	for _, code := range allowed {
		if r.GetCode() == code {
			return
		}
	}
	p.sim.fail("member %d: %v: %v", p.n, c, r)
}

// reportRandomLiveness has a member report another one alive or dead, truly or
// falsely.
func (sim *simulation) reportRandomLiveness(p *program) {
	if sim.faults.checks && p.registered {
		of := sim.members[sim.rng.IntN(len(sim.members))]
		p.reportLiveness(of, sim.chance(0.4))
	}
}

// reportDeath has a member report that another one is dead.
func (sim *simulation) reportDeath(of *simMember) {
	by := sim.members[sim.extraRNG.IntN(len(sim.members))]
	if sim.faults.checks && by != of && by.process != nil && by.process.program.registered {
		by.process.program.reportLiveness(of, false)
	}
}

// reportCrash has another member report that a process has crashed, which its connections have shown. The report may come
// when the next process of the member runs. A false one is no fault here: it may have another owner granted what a living
// process holds.
func (sim *simulation) reportCrash(of *simMember) {
	command := &wire.Command{Op: &wire.Command_ReportProcess{ReportProcess: &wire.ReportProcess{Member: of.id(), Boot: of.boot, Crashed: true}}}
	for _, other := range sim.members {
		if other == of || other.process == nil || !other.process.program.registered {
			continue
		}
		by := other.process.program
		by.after(2*time.Millisecond, func() {
			if by.registered && !by.terminated {
				command.GetReportProcess().Term = by.core.Status().Term
				by.submit(command, true, func(r *wire.Reply) { by.expectCode(command, r, wire.Code_OK, wire.Code_INVALID) })
			}
		})
		return
	}
}

func (p *program) reportLiveness(of *simMember, alive bool) {
	p.sim.trace("member %d reports member %d: alive %t", p.n, of.n, alive)
	command := &wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: &wire.ReportGossip{
		Member: of.id(), Boot: of.boot, Alive: alive, Term: p.core.Status().Term,
	}}}
	p.submit(command, true, func(r *wire.Reply) {
		p.expectCode(command, r, wire.Code_OK)
		if r.GetDelay() > 0 && p.sim.extraRNG.IntN(4) > 0 { // too soon after a renewal: the failure detector repeats it
			p.after(p.simulatedTime(time.Duration(r.GetDelay())), func() {
				if p.registered && !p.terminated && !p.sim.draining {
					p.reportLiveness(of, alive)
				}
			})
		}
	})
}

// openRefused handles a session that cannot be opened because of a check of its
// member.
func (p *program) openRefused(s *simSession, r *wire.Reply) {
	switch r.GetCode() {
	case wire.Code_CHECK_CRITICAL, wire.Code_CHECK_UNKNOWN:
		if len(s.checks) == 0 || r.GetDetail() == "process" && r.GetCode() == wire.Code_CHECK_CRITICAL {
			p.sim.fail("member %d: open a session with checks %v: %v", p.n, s.checks, r)
		}
		p.reportLiveness(p.simMember, true)
	}
}

// checkHealth: no session outlives a critical check that it depends on.
func (a *audit) checkHealth(p part, r fact.Result) {
	if c := p.command.GetRegister(); c != nil {
		a.memberOf[p.ticket.Incarnation] = c.GetMember()
	}
	silent, crashed := make(map[uint64]bool), make(map[uint64]bool)
	for _, g := range a.m.Liveness() {
		if crashed[g.Member] = g.Crashed; g.Crashed && p.command.GetReportProcess().GetMember() == g.Member {
			a.sim.crashReports++
		}
		silent[g.Member] = g.Silent
		if g.Silent && !a.silent[g.Member] && a.registered(g.Member) {
			a.sim.deaths++
		}
	}
	a.silent = silent
	for _, o := range r.Outcomes {
		if o.Reply.GetDelay() > 0 {
			a.sim.earlyDeaths++
		}
	}
	failed := uint64(0)
	if c := p.command.GetSetCheck(); c.GetState() == wire.CheckState_CRITICAL || p.command.GetDropCheck() != nil {
		failed = a.carriedOutBy(p.ticket, r)
	}
	for _, s := range sessionsOf(a.m) {
		for _, check := range s.Checks {
			if check == "gossip" && silent[s.Member] || check == "process" && crashed[s.Member] || check == "app" && s.Member == failed {
				a.sim.fail("session %s of member %d outlives the failure of its check %s", s.ID, s.Member, check)
			}
		}
	}
}

// registered reports whether a process of the member is registered.
func (a *audit) registered(member uint64) bool {
	for id, m := range a.memberOf { // order: any
		if m == member && registered(a.m, id) {
			return true
		}
	}
	return false
}

// carriedOutBy returns the member whose command was just carried out, or 0 if it
// was refused or is a retry.
func (a *audit) carriedOutBy(t wire.Ticket, r fact.Result) uint64 {
	for _, o := range r.Outcomes {
		if o.Ticket == t && o.Reply.GetCode() == wire.Code_OK && !a.answered[t] {
			return a.memberOf[t.Incarnation]
		}
	}
	return 0
}
