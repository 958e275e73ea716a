package sim

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/raftlog"
)

// durable is what a member's disk will not lose, as the writes said that came to
// their end: where the log ends, the term, and the vote in it.
type durable struct{ last, term, vote uint64 }

// found is what a process finds on its disk.
func (l *life) found() (d durable) {
	last, err := l.log.LastIndex()
	if err != nil {
		l.w.fail("member %d: the log's end: %v", l.n, err)
	}
	hard, _, err := l.log.InitialState()
	if err != nil {
		l.w.fail("member %d: the log's state: %v", l.n, err)
	}
	return durable{last, hard.GetTerm(), hard.GetVote()}
}

// wrote takes note of a batch that has come to its end.
func (d *durable) wrote(b core.Batch) {
	for _, op := range b.Ops() {
		switch op := op.(type) {
		case raftlog.Append:
			d.promised(op.HardState)
			if n := len(op.Entries); n > 0 {
				d.last = op.Entries[n-1].GetIndex()
			}
		case raftlog.Install:
			d.promised(op.HardState)
			d.last = op.Index
		}
	}
}

func (d *durable) promised(hard *raftpb.HardState) {
	if hard != nil {
		d.term, d.vote = hard.GetTerm(), hard.GetVote()
	}
}

// covers checks that a message promises nothing to others that the disk may still
// lose.
func (l *life) covers(m *raftpb.Message) {
	if m.GetReject() {
		return
	}
	switch m.GetType() {
	case raftpb.MsgAppResp:
		if m.GetIndex() > l.durable.last || m.GetTerm() > l.durable.term {
			l.w.fail("member %d acknowledges index %d in term %d, and its disk has %+v", l.n, m.GetIndex(), m.GetTerm(), l.durable)
		}
	case raftpb.MsgVoteResp:
		if d := l.durable; m.GetTerm() > d.term || m.GetTerm() == d.term && m.GetTo() != d.vote { // one batch may hold several terms
			l.w.fail("member %d votes for %d in term %d, and its disk has %+v", l.n, m.GetTo()-1, m.GetTerm(), l.durable)
		}
	}
}
