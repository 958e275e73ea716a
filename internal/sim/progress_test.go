package sim

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
)

// progress is a member's position; none of its parts may decrease in one process.
type progress struct{ term, applied, commit uint64 }

// checkProgress runs after each event.
func (m *simMember) checkProgress() {
	proc := m.process
	if proc == nil {
		return
	}
	status := proc.core.Status()
	now := progress{status.Term, status.Applied, status.Commit}
	if now.term < proc.progress.term || now.applied < proc.progress.applied || now.commit < proc.progress.commit || now.commit < now.applied {
		m.sim.fail("member %d: progress goes from %+v to %+v", m.n, proc.progress, now)
	}
	proc.progress = now
	m.checkChangesBehind()
	if m.tainted {
		proc.clearTaint()
	}
	if !m.tainted {
		m.sim.history.checkDigest(proc)
	}
	if status.Leads {
		m.sim.history.checkLeader(status.Term, m.n)
	}
}

// checkChangesBehind: what is on the disk of a member is at most one membership change
// ahead of what the member knows durably to be committed (Raft dissertation 4.1).
func (m *simMember) checkChangesBehind() {
	log := m.process.log
	last, _ := log.LastIndex() // in memory: never fails
	term, _ := log.Term(last)
	end := core.Position{Term: term, Index: last}
	if m.process.checked == end {
		return // the log is the same, and the commit index only grows
	}
	m.process.checked = end
	hard, _, _ := log.InitialState()
	if hard.GetCommit() >= last {
		return
	}
	entries, err := log.Entries(max(hard.GetCommit(), m.process.log.Applied().Index)+1, last+1, math.MaxUint64)
	if err != nil {
		return // truncated
	}
	changes := 0
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			changes++
		}
	}
	if changes > 1 {
		list := ""
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal {
				var c raftpb.ConfChangeV2
				_ = proto.Unmarshal(e.GetData(), &c)
				list += fmt.Sprintf("%d(t%d): %v; ", e.GetIndex(), e.GetTerm(), c.GetChanges())
			}
		}
		lead := "none"
		if l := m.sim.leader(); l != nil {
			lead = fmt.Sprintf("%d: %v", l.n, l.core.Status().Membership)
		}
		m.sim.fail("member %d: %d membership changes behind commit %d; conf %v; changes %s; leader %s", m.n, changes, hard.GetCommit(), m.process.conf, list, lead)
	}
}
