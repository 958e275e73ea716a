package sim

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/raftlog"
)

// durable is what a member's disk must not lose, according to the writes that were
// reported as complete: the end of the log, the term, and the vote in it.
type durable struct {
	last, term, vote uint64
	before           uint64 // the term at the beginning of the batch that was written last
}

// readDurable reads what the disk holds when a process starts.
func (proc *process) readDurable() (d durable) {
	last, err := proc.log.LastIndex()
	if err != nil {
		proc.sim.fail("member %d: last index of the log: %v", proc.n, err)
	}
	hard, _, err := proc.log.InitialState()
	if err != nil {
		proc.sim.fail("member %d: state of the log: %v", proc.n, err)
	}
	return durable{last: last, term: hard.GetTerm(), vote: hard.GetVote(), before: hard.GetTerm()}
}

// wrote records a completed batch.
func (d *durable) wrote(b core.Batch) {
	d.before = d.term
	for _, op := range b.Ops() {
		switch op := op.(type) {
		case raftlog.Append:
			d.setHardState(op.HardState)
			if n := len(op.Entries); n > 0 {
				d.last = op.Entries[n-1].GetIndex()
			}
		case raftlog.Install:
			d.setHardState(op.HardState)
			d.last = op.Index
		}
	}
}

func (d *durable) setHardState(hard *raftpb.HardState) {
	if hard != nil {
		d.term, d.vote = hard.GetTerm(), hard.GetVote()
	}
}

// checkDurable checks that a message promises nothing that the sender's disk may
// still lose. One batch may hold several terms. An entry that it acknowledges in an earlier one
// may be truncated in a later one by the same write (seed 41224): the disk has both changes
// or neither, and no member acknowledges in the earlier term after it has voted in the later one.
func (proc *process) checkDurable(m *raftpb.Message) {
	if m.GetReject() {
		return
	}
	switch m.GetType() {
	case raftpb.MsgAppResp:
		if d := proc.durable; m.GetTerm() > d.term || m.GetTerm() < d.before || m.GetTerm() == d.term && m.GetIndex() > d.last {
			proc.sim.fail("member %d acknowledges index %d in term %d, and its disk has %+v", proc.n, m.GetIndex(), m.GetTerm(), proc.durable)
		}
	case raftpb.MsgVoteResp:
		if d := proc.durable; m.GetTerm() > d.term || m.GetTerm() == d.term && m.GetTo() != d.vote {
			proc.sim.fail("member %d votes for %d in term %d, and its disk has %+v", proc.n, m.GetTo()-1, m.GetTerm(), proc.durable)
		}
	}
}
