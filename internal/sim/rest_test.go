package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Further groups that are not used at times, so that they are quiet. In these worlds a process notices when a connection to another one ends or begins,
// see host_connection_test.go.

// restingTTL is the TTL of registrations in such a group: shorter than elsewhere, so that the group is quiet several times. Those of sessions are shorter yet:
// the audit of an entry relies on that, as an incarnation expires with its last session if its own TTL has passed.
const restingTTL = 2100 * time.Millisecond

// sessionTTL draws the TTL of a session.
func (sim *simulation) sessionTTL() time.Duration {
	ttl := sim.between(1500*time.Millisecond, longestTTL)
	if sim.rest.rng != nil {
		ttl = restingTTL - 100*time.Millisecond - ttl/8
	}
	return ttl
}

// rest is when the programs of a further group do nothing.
type rest struct {
	rng  *rand.Rand
	all  bool
	only *simMember // the only one whose program does not rest; nil: all act
}

// restRNG returns a random stream for the rest of a group, and what happens while it is quiet.
func (sim *simulation) restRNG() *rand.Rand {
	return rand.New(rand.NewPCG(sim.seed, groupStreams*uint64(sim.record.Number)+7))
}

// beginRests has the programs of a new group rest at times. Mostly each entry is followed by a checkpoint: else it takes a hundred ticks more
// until the group is quiet.
func (sim *simulation) beginRests() {
	if sim.rest.rng = sim.restRNG(); sim.rest.rng.IntN(4) > 0 {
		sim.faults.checkpointEntries = 1
	}
	sim.schedule(time.Second, sim.alternate)
	sim.scheduleQuietFaults()
}

// alternate has the programs of the group act and rest alternately, until the faults end.
func (sim *simulation) alternate() {
	if sim.draining || sim.deleted {
		return
	}
	r := &sim.rest
	span := 300 + r.rng.IntN(1_500)
	if r.all = !r.all; r.all {
		span = 5_000 + r.rng.IntN(7_000)
	}
	if r.only = nil; r.rng.IntN(2) == 0 {
		r.only = sim.members[r.rng.IntN(len(sim.members))]
	}
	sim.schedule(time.Duration(span)*time.Millisecond, sim.alternate)
}

// rests reports whether the program does nothing now.
func (p *program) rests() bool {
	r := &p.sim.rest
	return !p.sim.draining && (r.all || r.only != nil && r.only != p.simMember)
}

// beginRest ends the session with a TTL, or leaves that to the group. What is held in the other one stays.
func (p *program) beginRest() {
	if s := p.session; s != nil && s.open && !s.lost && p.sim.rest.rng.IntN(2) == 0 {
		p.closeExpired(s)
	}
}

// registrationTTL returns the TTL of the registrations of processes.
func (sim *simulation) registrationTTL() time.Duration {
	if sim.rest.rng != nil {
		return restingTTL
	}
	return incarnationTTL
}

// isQuiet reports whether all members are quiet whose processes run.
func (sim *simulation) isQuiet() bool {
	return !slices.ContainsFunc(sim.remaining(), func(m *simMember) bool { return m.process != nil && !m.process.core.Quiet() })
}

// scheduleQuietFaults injects faults into the group when it is quiet.
func (sim *simulation) scheduleQuietFaults() {
	sim.schedule(time.Duration(100+sim.rest.rng.IntN(400))*time.Millisecond, func() {
		if sim.now >= sim.faultPeriod() || sim.deleted {
			return
		}
		sim.injectQuietFault()
		sim.scheduleQuietFaults()
	})
}

// faultPeriod is how long faults are injected: longer where groups are quiet at times.
func (w *world) faultPeriod() time.Duration {
	if w.rests {
		return 2 * faultPeriod
	}
	return faultPeriod
}

// faultPause is the longest time between two of them. What hits a group that is quiet comes in addition.
func (w *world) faultPause() time.Duration {
	if w.rests {
		return 2500 * time.Millisecond
	}
	return time.Second
}

// injectQuietFault injects a fault that matters to a quiet group: mostly in what its leader needs.
func (sim *simulation) injectQuietFault() {
	leader, rng, f := sim.leader(), sim.rest.rng, &sim.faults
	if leader == nil || !sim.isQuiet() {
		return
	}
	m := leader.simMember
	if rng.IntN(3) == 0 {
		m = sim.members[rng.IntN(len(sim.members))]
	}
	if m.process == nil {
		return
	}
	sim.quiet.counts.faults++
	switch rng.IntN(8) {
	case 0:
		if f.crashes {
			m.crash("while the group is quiet")
			f.restartLater(m)
		}
	case 1:
		if f.crashes {
			m.restartAtOnce()
		}
	case 2:
		if f.partitions {
			sim.isolate(m.n)
			sim.trace("member %d is isolated", m.n)
		}
	case 3:
		if f.partitions {
			sim.cutOneWay(m.n, rng.IntN(2) == 0)
		}
	case 4:
		if f.pauses {
			m.process.pause(time.Duration(50+rng.IntN(12_000)) * time.Millisecond)
		}
	case 5:
		m.process.post(func(c *core.Core) { c.Transfer(uint64(rng.IntN(len(sim.members)+1)), make(chan error, 1)) })
	case 6:
		sim.replayQuiet()
	case 7:
		sim.useOnce(sim.members[rng.IntN(len(sim.members))])
	}
}

// restartAtOnce ends the process of a member, and starts the next one sooner than others notice that.
func (m *simMember) restartAtOnce() {
	of := m.of
	of.crash("to be restarted at once")
	of.sim.schedule(time.Duration(1+m.sim.rest.rng.IntN(30))*time.Millisecond, func() {
		if of.process == nil && !of.removed && !of.destroyed && !of.absent {
			of.start()
		}
	})
}

// cutOneWay cuts what a member sends to all others, or what they send to it.
func (sim *simulation) cutOneWay(n int, out bool) {
	for other := range sim.members {
		if from, to := n, other; from != to {
			if !out {
				from, to = to, from
			}
			sim.network.cut[from][to] = true
		}
	}
	sim.trace("one way of member %d is cut, from it: %t", n, out)
}

// replayQuiet has an earlier message about the quiet of the group arrive again, of this term or an earlier one.
func (sim *simulation) replayQuiet() {
	last := sim.quiet.last
	if len(last) == 0 { // the member is alone
		return
	}
	if m := last[sim.rest.rng.IntN(len(last))]; m.from.process == m.from {
		sim.quiet.counts.replayed++
		sim.trace("member %d sends member %d again: %v", m.from.n, m.to-1, m.quiet)
		m.from.deliverQuiet(m)
	}
}

// answerByEarlier has a member answer at times with what it agreed on in an earlier round, with the same entries: the leader's message is lost, and
// the earlier answer arrives again.
func (sim *simulation) answerByEarlier(m quietMessage) bool {
	if m.quiet.GetStep() != wire.Quiet_ASK || sim.draining || sim.rest.rng == nil || sim.rest.rng.IntN(2) == 0 {
		return false
	}
	i := slices.IndexFunc(sim.quiet.last, func(e quietMessage) bool {
		return e.quiet.GetStep() == wire.Quiet_AGREE && e.from.id() == m.to && e.to == m.from.id() && e.from.process == e.from &&
			e.quiet.GetTerm() == m.quiet.GetTerm() && e.quiet.GetIndex() == m.quiet.GetIndex() && e.quiet.GetRound() < m.quiet.GetRound()
	})
	if i < 0 {
		return false
	}
	earlier := sim.quiet.last[i]
	sim.quiet.counts.replayed++
	sim.trace("member %d answers as in an earlier round: %v", m.to-1, earlier.quiet)
	earlier.from.deliverQuiet(earlier)
	return true
}

// useOnce has the program of a member submit one command, or read.
func (sim *simulation) useOnce(m *simMember) {
	if m.process == nil || m.process.program.terminated {
		return
	}
	p := m.process.program
	if sim.rest.rng.IntN(2) == 0 {
		p.query(machine.IndexQuery{}, func(any) {})
		return
	}
	p.submit(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}, true, func(*wire.Reply) {})
}
