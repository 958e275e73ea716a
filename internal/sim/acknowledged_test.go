package sim

import "github.com/conclave-go/conclave/cluster/core"

// What members know of the entries that the others acknowledged. No process of a correct
// member may ever be refused for it, whatever crashed, was overwritten or was installed.

// identity returns the process as its connections name it.
func (proc *process) identity() core.Process {
	return core.Process{Member: proc.id(), Boot: proc.number, Incarnation: proc.incarnation}
}

// learn records what a message from a process acknowledges.
func (proc *process) learn(from core.Process, p core.Position) {
	proc.acknowledged.Add(from, p)
}

// learnCommit records the commit index of a leader.
func (proc *process) learnCommit() {
	if s := proc.core.Status(); s.Leads {
		proc.acknowledged.Commit(core.Position{Term: s.Term, Index: s.Commit})
	}
	proc.acknowledged.Unsaved(func(member uint64, p core.Position) { proc.recorded[member] = p })
}

// checkAdmitted compares the process with what the others know of its member.
func (proc *process) checkAdmitted() {
	for _, peer := range proc.sim.members {
		if peer.process == nil || peer.process == proc {
			continue
		}
		if err := peer.process.acknowledged.Check(proc.identity(), proc.core.Durable()); err != nil {
			proc.sim.fail("member %d refuses member %d, which lost nothing: %v", peer.n, proc.n, err)
		}
	}
}
