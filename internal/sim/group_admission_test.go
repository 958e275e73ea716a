package sim

import "github.com/conclave-go/conclave/cluster/core"

// The admission of a process for what its member has acknowledged in the further groups. It is refused, or admitted, in all groups at once.

// groupPositions is what a hello says of the logs of further groups.
type groupPositions struct {
	at     map[uint32]core.Position // by number, of those that there are
	erased uint32                   // see hostedGroups
}

// positions is Groups.durable.
func (proc *process) positions() groupPositions {
	p := groupPositions{at: make(map[uint32]core.Position), erased: proc.hosted.erased}
	for number, log := range proc.hosted.logs { // order: each on its own
		term, index := log.Durable()
		p.at[number] = core.Position{Term: term, Index: index}
	}
	return p
}

// admits is Groups.admit: it returns an error if another process has forgotten entries of a further group.
func (proc *process) admits(other core.Process, p groupPositions) error {
	for _, number := range proc.hosted.numbers() {
		further := proc.part(number).process
		position, found := p.at[number]
		if further == nil || !found && number <= p.erased {
			continue
		}
		if err := further.acknowledged.Check(other, position); err != nil {
			return err
		}
	}
	return nil
}

// checkGroupsAdmitted: no member refuses a process of one that lost nothing.
func (proc *process) checkGroupsAdmitted() {
	if len(proc.sim.further) == 0 || proc.process != proc {
		return
	}
	for _, peer := range proc.sim.members {
		if peer.process == nil || peer.process == proc {
			continue
		}
		if err := peer.process.admits(proc.identity(), proc.positions()); err != nil {
			proc.sim.fail("member %d refuses member %d, which lost nothing of a further group: %v", peer.n, proc.n, err)
		}
	}
}

// checkForgottenRefused: when all members are at rest, the leader of each further group refuses a process whose directory lacks the last
// entry of that group's log, or all of it, and has all of the others.
func (sim *simulation) checkForgottenRefused() {
	for _, g := range sim.groups()[1:] {
		leader := g.leader()
		for _, m := range g.remaining() {
			if leader == nil || m == leader.simMember {
				continue
			}
			number, host := g.record.Number, m.of.process
			next := core.Process{Member: m.id(), Boot: host.number + 1}
			p := host.positions()
			if err := leader.of.process.admits(next, p); err != nil {
				g.fail("member %d would refuse the next process of member %d: %v", leader.n, m.n, err)
			}
			last := p.at[number]
			p.at[number] = core.Position{Term: last.Term, Index: last.Index - 1}
			if leader.of.process.admits(next, p) == nil {
				g.fail("member %d would admit a process of member %d that has forgotten the last entry of the group", leader.n, m.n)
			}
			if delete(p.at, number); number > p.erased && leader.of.process.admits(next, p) == nil {
				g.fail("member %d would admit a process of member %d that has forgotten the log of the group", leader.n, m.n)
			}
			sim.forgotten++
		}
	}
}
