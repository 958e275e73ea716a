package core

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/raftlog"
)

// cores is a group of cores whose messages and disks the test controls.
type cores struct {
	t    *testing.T
	all  map[uint64]*rig
	held map[uint64][]write // a batch that the disk has not completed
	slow func(member uint64, w []write) bool
	lost func(m *raftpb.Message) bool
}

func newCores(t *testing.T, conf *raftpb.ConfState) *cores {
	v := &cores{t: t, all: make(map[uint64]*rig), held: make(map[uint64][]write)}
	for _, id := range slices.Concat(conf.GetVoters(), conf.GetLearners()) {
		v.all[id] = newRigIn(t, conf, func(c *Config) { c.ID, c.Rand = id, rand.New(rand.NewPCG(id, 1)) })
	}
	return v
}

// run delivers messages and completes writes until nothing happens.
func (v *cores) run() {
	v.t.Helper()
	for busy := true; busy; {
		busy = false
		for _, id := range slices.Sorted(maps.Keys(v.all)) {
			r := v.all[id]
			out, err := r.Take(r.at)
			if err != nil {
				v.t.Fatal(err)
			}
			for _, m := range out.Messages {
				busy = true
				to := v.all[m.GetTo()]
				if to == nil || v.lost != nil && v.lost(m) {
					continue
				}
				if err := to.Receive(id, proto.CloneOf(m)); err != nil {
					v.t.Logf("%v: %v", m, err)
				}
			}
			for _, d := range out.Digests {
				m := &raftpb.Message{From: new(id), To: new(d.To)}
				if to := v.all[d.To]; to != nil && (v.lost == nil || !v.lost(m)) {
					to.ReceiveDigest(id, d.Digest)
				}
			}
			switch w := out.Batch.writes; {
			case len(w) == 0:
			case v.slow != nil && v.slow(id, w):
				v.held[id] = w
			default:
				busy = true
				r.persist(w)
			}
		}
	}
}

// release has the disks complete what they held.
func (v *cores) release() {
	v.slow = nil
	for id, w := range v.held {
		delete(v.held, id)
		v.all[id].persist(w)
	}
	v.run()
}

func (v *cores) tick(n int, ids ...uint64) {
	for range n {
		for _, id := range ids {
			v.all[id].Tick()
		}
		v.run()
	}
}

func (v *cores) leads(id uint64) bool { return v.all[id].isLeader() }

// Of voters 1, 2 and 3, member 4 replaces 3: a joint change and the one that leaves it. Member
// 4 has both in its log and is elected while its disk applies the first. Member 2 has both
// of it, is then separated with member 3, and must not be elected by these two: 1 and 4
// commit by themselves.
func TestTwoChanges_NoSecondLeader(t *testing.T) {
	v := newCores(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
	one := v.all[1]
	one.ignore(one.node.Campaign())
	v.run()
	v.tick(3, 1)
	if !v.leads(1) || v.all[4].applied != one.applied {
		t.Fatal("no leader")
	}
	joint := one.last + 1
	// Member 4 is partitioned for now; 2 and 3 do not learn that the change is committed.
	v.lost = func(m *raftpb.Message) bool {
		return m.GetTo() == 4 || m.GetFrom() == 1 && (m.GetCommit() >= joint || slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool { return e.GetIndex() > joint }))
	}
	one.reconciler.proposeChange(&raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum(),
		Changes: []*raftpb.ConfChangeSingle{
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(4))},
			{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(3))},
		},
	})
	v.run()
	if len(one.conf.GetVotersOutgoing()) != 3 {
		t.Fatalf("not joint: %v", one.conf)
	}
	if !one.reconciler.changing { // the reconciler leaves it once it is settled; here at once
		one.reconciler.proposeChange(&raftpb.ConfChangeV2{})
	}
	v.run()
	leave := one.changesOf().last()
	if leave <= joint {
		t.Fatalf("changes at %d and %d", joint, leave)
	}
	v.electFour(one)
	// Members 2 and 3 are separated from 1 and 4.
	apart := func(a, b uint64) bool { return (a == 2 || a == 3) != (b == 2 || b == 3) }
	v.lost = func(m *raftpb.Message) bool { return apart(m.GetFrom(), m.GetTo()) }
	v.release()
	v.tick(5, 1, 4)
	four := v.all[4]
	t.Logf("members 1 and 4: voters %v, committed %d of %d", four.conf, four.node.BasicStatus().GetCommit(), four.last)
	v.tick(4*electionTicks, 2, 3)
	two := v.all[2]
	for index := joint; index <= min(two.applied, four.applied); index++ {
		a, _ := two.log.Term(index)
		b, _ := four.log.Term(index)
		if a != b {
			t.Errorf("entry %d is committed in terms %d (by 2 and 3) and %d (by 1 and 4)", index, a, b)
		}
	}
}

func (r *rig) changesOf() *changes { return &r.notices.changes }

// electFour has member 4, which was away, get all in one message, and leadership with its
// acknowledgement. Its disk is slow when it applies.
func (v *cores) electFour(one *rig) {
	v.t.Helper()
	v.lost = func(m *raftpb.Message) bool {
		return m.GetFrom() == 1 && m.GetTo() != 4 && m.GetType() != raftpb.MsgVoteResp ||
			m.GetFrom() == 4 && m.GetTo() == 3 && m.GetType() != raftpb.MsgVote && m.GetType() != raftpb.MsgPreVote
	}
	v.slow = func(id uint64, w []write) bool {
		return id == 4 && slices.ContainsFunc(w, func(w write) bool { op, ok := w.op.(raftlog.Checkpoint); return ok && op.ConfState != nil })
	}
	one.node.TransferLeader(4)
	one.node.ReportUnreachable(4)
	for i := 0; i < 5 && !v.leads(4); i++ {
		v.tick(1, 1)
		one.node.TransferLeader(4)
		v.run()
	}
	if !v.leads(4) {
		v.t.Fatalf("member 4 does not lead: last %d of %d, term %d", v.all[4].last, one.last, v.all[4].term)
	}
	v.run()
}
