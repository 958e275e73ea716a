package core

import (
	"cmp"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/raftlog"
)

// ready turns a Ready of raft into effects. Storage writes are asynchronous
// (AsyncStorageWrites in go.etcd.io/raft): a message that depends on a write is one of
// its responses, and no response is sent before its write is durable.
func (c *Core) ready(rd raft.Ready) error {
	if rd.SoftState != nil || rd.HardState != nil {
		c.roleChanged(rd)
	}
	for _, s := range rd.ReadStates {
		c.reads.confirmed(s.RequestCtx, s.Index)
	}
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			c.append(m)
		case raft.LocalApplyThread:
			if c.arbitration.diverged != nil {
				continue
			}
			if err := c.applyAll(m); err != nil {
				return err
			}
		default:
			c.send(m)
		}
	}
	return nil
}

// roleChanged reacts to a change of term, leader or role.
func (c *Core) roleChanged(rd raft.Ready) {
	before, term := c.role, c.term
	if rd.SoftState != nil {
		c.role = *rd.SoftState
	}
	if rd.HardState != nil {
		c.term = rd.HardState.GetTerm()
	}
	if c.role == before && c.term == term {
		return
	}
	c.out.LeaderChanged = true
	c.proposals.inFlight = nil
	c.reconciler.roleChanged()
	c.reads.early, c.reads.asked = nil, 0
	c.clock.stop()
	c.inbox.Dropped()
	if c.role.RaftState == raft.StateLeader {
		c.notices.beginSettling()
		for _, p := range c.peers.all {
			p.leadershipBegan()
		}
	} else {
		c.inbox.Clear()
		for _, p := range c.peers.all {
			p.leadershipEnded()
		}
	}
	if c.role.Lead != raft.None {
		c.leadershipTransfers.leaderKnown()
		c.elections.leaderKnown()
		c.reads.retry()
		c.retryCalls()
	}
}

func (c *Core) send(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap && (c.arbitration.contested() || !c.notices.mayTell(m.GetTo(), m.GetSnapshot().GetMetadata().GetIndex())) {
		c.snapshotSending.probe(m)
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		c.out.Snapshots = append(c.out.Snapshots, m)
		if p := c.peers.byID[m.GetTo()]; p != nil {
			p.snapshotBegan(m.GetSnapshot().GetMetadata().GetIndex(), c.ticks)
		}
		return
	}
	if m.GetType() == raftpb.MsgHeartbeat {
		c.reads.noteAsked(m)
	}
	c.notices.limitNotice(m)
	c.out.Messages = append(c.out.Messages, m)
}

// append queues raft's write to the log.
func (c *Core) append(m *raftpb.Message) {
	var hard *raftpb.HardState
	if m.Term != nil {
		hard = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if snapshot := m.GetSnapshot(); !raft.IsEmptySnap(snapshot) {
		with := hard
		if index := snapshot.GetMetadata().GetIndex(); hard.GetCommit() > index { // of the entries that follow it
			with = &raftpb.HardState{Term: hard.Term, Vote: hard.Vote, Commit: &index}
		}
		c.install(snapshot, with)
		c.disk.noteHardState(with)
	}
	entries := m.GetEntries()
	w := write{responses: m.GetResponses()}
	switch {
	case len(entries) > 0:
		hard = cmp.Or(hard, c.disk.commit)
		w.op = raftlog.Append{HardState: hard, Entries: entries}
		c.disk.noteHardState(hard)
		c.last = entries[len(entries)-1].GetIndex()
		c.notices.appended(entries)
	case hard == nil:
	case hard.GetTerm() == c.disk.hard.GetTerm() && hard.GetVote() == c.disk.hard.GetVote():
		c.disk.commit = hard
	default:
		w.op = raftlog.Append{HardState: hard}
		c.disk.noteHardState(hard)
	}
	if w.op != nil || len(w.responses) > 0 {
		c.disk.add(w)
	}
}

// applyAll applies committed entries to the machine.
func (c *Core) applyAll(m *raftpb.Message) error {
	for _, e := range m.GetEntries() {
		if err := c.apply(e); err != nil {
			return fmt.Errorf("applying entry %d: %w", e.GetIndex(), err)
		}
		c.applied, c.appliedTerm = e.GetIndex(), e.GetTerm()
		if c.checkpointDue() { // not behind all of them, which together have up to 4 MiB
			c.Checkpoint()
		}
	}
	for _, r := range m.GetResponses() {
		c.step(r)
	}
	if c.role.RaftState == raft.StateLeader && c.appliedTerm == c.term && !c.clock.running {
		c.clock.start(c.machine.Now(), c.now)
		c.reads.answerEarly()
	}
	c.truncation.truncate(c.machine.Size(), c.arbitration.disputed != 0)
	return nil
}

func (c *Core) apply(e *raftpb.Entry) error {
	if e.GetType() != raftpb.EntryNormal {
		return c.reconfigure(e)
	}
	batch := e.GetData()
	if len(batch) > 0 {
		var err error
		if batch, err = parseEntry(batch); err != nil {
			return err
		}
		if e.GetTerm() == c.term {
			c.proposals.proposalApplied(c.now)
			c.inbox.Applied(e.GetIndex())
		}
	}
	result := c.machine.Apply(e.GetIndex(), e.GetTerm(), batch)
	if agreed, supported := c.machine.Level(); agreed > supported {
		// Nothing of this entry is written, so a newer build applies it again.
		return fmt.Errorf("%w: the group's feature level is %d, this build supports up to %d", ErrUpgradeRequired, agreed, supported)
	}
	c.digests.add(e.GetIndex(), result.Changes)
	c.arbitration.digestAdded()
	c.gathered.add(result.Changes, e, c.ticks)
	c.notify(result)
	return nil
}

// notify queues the notifications of one entry. Its changes come first, so that a caller
// with an outcome finds the feeds at least as new. The end of a session comes before the
// outcomes that follow from it: no caller is granted what another one of this process
// believes to hold.
func (c *Core) notify(result fact.Result) {
	if n := (Notification{
		Keys: result.Keys, Leaders: result.Leaders, Recalls: result.Recalls, Shards: result.Shards, Listed: result.Listed,
	}); n.isChange() {
		c.out.Notifications = append(c.out.Notifications, n)
	}
	c.attachedClients.notifyRecalled(result.Recalls)
	result.InOrder(func(o fact.Outcome) {
		if !c.calls.outcome(o) {
			c.attachedClients.notifyOutcome(o)
		}
	}, func(ended fact.Ended) {
		c.attachedClients.notifyEnded(ended)
		c.out.Notifications = append(c.out.Notifications, Notification{Ended: ended})
	})
}

// reconfigure applies a membership change.
func (c *Core) reconfigure(e *raftpb.Entry) error {
	change, err := confChange(e)
	if err != nil {
		return err
	}
	c.membershipChanged(c.node.ApplyConfChange(change))
	c.gathered.add(nil, e, c.ticks)
	c.gathered.conf = c.conf
	c.digests.add(e.GetIndex(), nil)
	c.arbitration.digestAdded()
	return nil
}

// membershipChanged replaces the configuration.
func (c *Core) membershipChanged(conf *raftpb.ConfState) {
	c.conf, c.out.Membership, c.reconciler.changing = conf, conf, false
	for _, p := range c.peers.all {
		if !c.isVoter(p.id) && p.voteEnded() {
			c.arbitration.settled()
		}
		if !c.isMember(p.id) {
			c.snapshotSending.refuseSnapshot(p, errRemoved)
		}
	}
	c.peers.follow(c.id, conf)
}

// takeDiverged is Take of a member whose state differs from the majority's. Nothing that
// it has computed since is delivered, applied or proposed.
func (c *Core) takeDiverged() (Effects, error) {
	if err := c.arbitration.stepDownFirst(); err != nil {
		return Effects{}, err
	}
	for c.isLeader() && c.node.HasReady() {
		if err := c.ready(c.node.Ready()); err != nil {
			return Effects{}, err
		}
	}
	out := Effects{Messages: c.out.Messages, Digests: c.out.Digests, Cancelled: c.out.Cancelled, Machine: c.machine, Batch: Batch{c.disk.next(c.ticks)}}
	c.out.Messages, c.out.Digests, c.out.Cancelled = nil, nil, nil
	return out, nil
}
