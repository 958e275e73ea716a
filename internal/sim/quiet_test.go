package sim

import (
	"slices"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// The quiet of further groups, as the members' messages and states show it.

// quietMessages is what the members of a group have sent about its quiet.
type quietMessages struct {
	last   []quietMessage
	agreed map[quietRound][]uint64 // who has
	counts quietCounts
}

// quietMessage is a message that may arrive again.
type quietMessage struct {
	from  *process
	to    uint64
	quiet *wire.Quiet
}

// quietRound is what a leader asks the others.
type quietRound struct{ term, index, round uint64 }

// agreed is the round for which a process has asked or agreed last.
type agreed struct {
	quietRound
	with uint64 // the leader; 0: it has asked
}

// quietCounts counts what happened to quiet groups, for the summary: how often they became quiet, faults that hit them, and what they served in time.
type quietCounts struct{ quiet, faults, replayed, served, leaders int }

func (c *quietCounts) add(other quietCounts) {
	c.quiet += other.quiet
	c.faults += other.faults
	c.replayed += other.replayed
	c.served += other.served
	c.leaders += other.leaders
}

func (c quietCounts) occurred() bool {
	return c.quiet > 0 && c.faults > 0 && c.replayed > 0 && c.served > 0 && c.leaders > 0
}

// sent notes a message.
func (m *quietMessages) sent(q quietMessage) {
	if m.last = append(m.last, q); len(m.last) > 30 {
		m.last = m.last[1:]
	}
	round := quietRound{q.quiet.GetTerm(), q.quiet.GetIndex(), q.quiet.GetRound()}
	switch q.quiet.GetStep() {
	case wire.Quiet_ASK:
		q.from.agreed = agreed{round, 0}
	case wire.Quiet_AGREE:
		q.from.agreed = agreed{round, q.to}
		if m.agreed == nil {
			m.agreed = make(map[quietRound][]uint64)
		}
		m.agreed[round] = append(m.agreed[round], q.from.id())
	}
}

// keepPace has the process tick as often as the loop would, and checks what a quiet one has agreed on.
func (proc *process) keepPace() {
	if proc.pace.Adapt(proc.core) {
		proc.ticking++
		proc.tickLater()
		if proc.core.Quiet() {
			proc.checkAgreed()
		}
	}
	if !proc.core.Quiet() {
		return
	}
	if deadline, waits := proc.core.Machine().NextDeadline(); waits {
		proc.sim.fail("member %d is quiet, and has a deadline at %d", proc.n, deadline)
	}
	if s := proc.core.Status(); s.Applied != s.Commit {
		proc.sim.fail("member %d is quiet, and has applied %d of %d entries", proc.n, s.Applied, s.Commit)
	}
}

// checkAgreed: a leader is quiet when all other members have agreed to be, and these when they have agreed with the leader that they follow.
func (proc *process) checkAgreed() {
	s := proc.core.Status()
	others := slices.DeleteFunc(core.MembersOf(s.Membership), func(id uint64) bool { return id == proc.id() })
	if s.Leads {
		proc.sim.quiet.counts.quiet++
	}
	if s.Leads && len(others) == 0 {
		return
	}
	a, with := proc.agreed, s.Leader
	if s.Leads {
		with = 0
	}
	if a.term != s.Term || a.index != s.Applied || a.with != with {
		proc.sim.fail("member %d is quiet in term %d at entry %d, and has agreed on %+v", proc.n, s.Term, s.Applied, a)
	}
	for _, id := range others {
		if s.Leads && !slices.Contains(proc.sim.quiet.agreed[a.quietRound], id) {
			proc.sim.fail("member %d leads, and is quiet without member %d, in round %+v", proc.n, id-1, a.quietRound)
		}
	}
}
