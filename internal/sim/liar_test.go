package sim

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// One member lies at the level of frames, beside its correct messages: false digests, raft
// messages that no correct member sends or in the name of another, and submissions of
// another member or of another's incarnation. Every other member refuses the message, or
// it has no effect that a checker sees.

// isLiar reports whether the member lies in this simulation. That of a group with one voter
// is a standby.
func (m *simMember) isLiar() bool {
	if !m.sim.faults.liar {
		return false
	}
	first := 0
	if m.sim.standbys == len(m.sim.members)-1 {
		first = 1
	}
	return m.n == first+int(m.sim.seed/8)%max(1, len(m.sim.members)-first)
}

// lie sends one lie.
func (proc *process) lie(to int) {
	rng := proc.sim.extraRNG
	from, other := proc.id(), uint64(rng.IntN(len(proc.sim.members)+1)+1) // possibly of no member
	term, applied := proc.core.Status().Term, proc.core.Status().Applied
	digest := &wire.Digest{Index: applied - min(applied, rng.Uint64N(100)), Digest: rng.Uint64()}
	message := proc.malformed(uint64(to+1), other, term)
	submission := &wire.Submission{Member: other, Calls: []*wire.Call{{Seq: 1 + rng.Uint64N(50), Command: []byte{0x1a, 0}}}}
	if target := proc.sim.members[rng.IntN(len(proc.sim.members))].process; target != nil {
		incarnation := target.core.Incarnation()
		submission.Incarnation = incarnation[:]
		submission.Floor = rng.Uint64N(1000)
		if target != proc && rng.IntN(2) == 0 {
			submission.Member = from
		}
	}
	kind := rng.IntN(3)
	proc.sim.lies++
	proc.sim.deliver(proc.n, to, func(to *process) {
		to.post(func(c *core.Core) {
			switch kind {
			case 0:
				if voters := c.Status().Membership.GetVoters(); len(voters) > 1 || voters[0] != from { // the only voter's is the majority's
					c.ReceiveDigest(from, digest)
				}
			case 1:
				if err := c.Receive(from, message); !errors.Is(err, core.ErrInadmissible) {
					to.sim.fail("member %d accepts %v from member %d: %v", to.n, message, from-1, err)
				}
			case 2:
				if submission.Member == from && submission.Incarnation == nil || other == from {
					return
				}
				if err := c.ReceiveSubmission(from, submission); (err != nil) != (submission.Member != from) {
					to.sim.fail("member %d: a submission of member %d from member %d: %v", to.n, submission.Member-1, from-1, err)
				}
			}
		})
	})
}

// malformed returns a raft message that no correct member sends.
func (proc *process) malformed(to, other, term uint64) *raftpb.Message {
	from := proc.id()
	message := func(kind raftpb.MessageType) *raftpb.Message {
		return &raftpb.Message{Type: kind.Enum(), To: &to, From: &from, Term: &term}
	}
	switch proc.sim.extraRNG.IntN(4) {
	case 0: // in another member's name
		m := message(raftpb.MsgHeartbeat)
		m.From = new(from%uint64(len(proc.sim.members)) + 1)
		if *m.From == from {
			*m.From = other + from // of no member
		}
		return m
	case 1:
		m := message(raftpb.MsgProp)
		m.Entries = []*raftpb.Entry{{Data: []byte("x")}}
		return m
	case 2: // entries with a gap
		m := message(raftpb.MsgApp)
		m.Index, m.LogTerm = new(uint64(1)), new(uint64(1))
		m.Entries = []*raftpb.Entry{{Index: new(uint64(2)), Term: &term}, {Index: new(uint64(4)), Term: &term}}
		return m
	}
	m := message(raftpb.MsgVote)
	m.Term = new(uint64(1) << 60)
	return m
}
