package core

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// ready turns what raft wants into effects. Storage writes are asynchronous:
// raft hands out what depends on the disk as responses of the write, and
// nothing of it leaves before the write is durable. That is the whole
// argument for "durable before answered"; see AsyncStorageWrites in
// go.etcd.io/raft.
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
			if err := c.applyAll(m); err != nil {
				return err
			}
		default:
			c.send(m)
		}
	}
	return nil
}

// roleChanged notices changes of term, leader and role.
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
	c.out.leader = true
	c.proposed, c.removing = false, false
	c.clock.stop()
	if c.role.RaftState != raft.StateLeader {
		c.inbox.clear()
	}
	if c.role.Lead != raft.None {
		if c.role.Lead != c.id {
			c.transferred(nil)
		}
		// What we handed to an earlier leader may be lost.
		c.campaignAt, c.standing = 0, 0
		c.reads.retry()
		c.resend()
	}
}

func (c *Core) send(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		c.out.snapshots = append(c.out.snapshots, m)
		return
	}
	c.out.messages = append(c.out.messages, m)
}

// append queues raft's write to the log.
func (c *Core) append(m *raftpb.Message) {
	var hard *raftpb.HardState
	if m.Term != nil {
		hard = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if snapshot := m.GetSnapshot(); !raft.IsEmptySnap(snapshot) {
		c.install(snapshot, hard)
		hard = nil
	}
	w := write{responses: m.GetResponses()}
	if entries := m.GetEntries(); len(entries) > 0 || hard != nil {
		w.op = raftlog.Append{HardState: hard, Entries: entries}
		if len(entries) > 0 {
			c.last = entries[len(entries)-1].GetIndex()
		}
	}
	c.disk.add(w)
}

// applyAll applies committed entries to the machine and queues the changes of
// its durable state. That write needs no sync and nobody waits for it: it
// stands in the same WAL behind the entries that it came from, which are
// durable, so after a crash it is there or is made again.
func (c *Core) applyAll(m *raftpb.Message) error {
	op := raftlog.Apply{}
	for _, e := range m.GetEntries() {
		if err := c.apply(e, &op); err != nil {
			return fmt.Errorf("applying entry %d: %w", e.GetIndex(), err)
		}
		op.Index, op.Term = e.GetIndex(), e.GetTerm()
	}
	c.applied, op.Digest = op.Index, c.digests.last
	c.disk.add(write{op: op})
	for _, r := range m.GetResponses() {
		c.step(r)
	}
	if c.role.RaftState == raft.StateLeader && op.Term == c.term && !c.clock.running {
		c.clock.start(c.machine.Now(), c.now)
	}
	c.truncate()
	return nil
}

func (c *Core) apply(e *raftpb.Entry, op *raftlog.Apply) error {
	if e.GetType() != raftpb.EntryNormal {
		return c.reconfigure(e, op)
	}
	batch := e.GetData()
	if len(batch) > 0 {
		parsed, err := parseEntry(batch)
		if err != nil {
			return err
		}
		if !c.digests.agrees(parsed.digestIndex, parsed.digest) {
			return fmt.Errorf("%w: this member's digest at index %d is not the leader's", ErrCorrupt, parsed.digestIndex)
		}
		batch = parsed.batch
		if e.GetTerm() == c.term {
			c.proposed = false
		}
	}
	result := c.machine.Apply(e.GetIndex(), e.GetTerm(), batch)
	c.digests.add(e.GetIndex(), result.Changes)
	op.Changes = append(op.Changes, result.Changes...)
	c.tell(result)
	return nil
}

// tell hands out what an entry yielded. Its changes come first: whoever is
// woken by an outcome finds the feeds at least as new.
func (c *Core) tell(result wire.Result) {
	if n := (news{keys: result.Keys, leaders: result.Leaders}); n.isChange() {
		c.out.news = append(c.out.news, n)
	}
	for _, o := range result.Outcomes {
		if o.Ticket.Incarnation != c.incarnation {
			continue
		}
		if c.cfg.DropOutcome != nil && c.tickets.isOpen(o.Ticket.Seq) && c.cfg.DropOutcome(o.Ticket) {
			continue
		}
		if call := c.tickets.outcome(o.Ticket.Seq, o.More); call != nil {
			c.out.news = append(c.out.news, news{call: call, ticket: o.Ticket, reply: o.Reply, more: o.More})
		}
	}
	for _, ended := range result.Ended {
		c.out.news = append(c.out.news, news{ended: ended})
	}
}

// reconfigure applies a change of the membership.
func (c *Core) reconfigure(e *raftpb.Entry, op *raftlog.Apply) error {
	change, err := confChange(e)
	if err != nil {
		return err
	}
	c.membership(c.node.ApplyConfChange(change))
	op.ConfState = c.conf
	c.digests.add(e.GetIndex(), nil)
	return nil
}

// truncate lets go of entries that are applied here, once enough of them have
// piled up that it is worth a write. What is kept lets a member that was away
// for a while catch up without a snapshot.
func (c *Core) truncate() {
	first, _ := c.log.FirstIndex()
	if first <= c.truncated {
		return // told so already, and Bytes does not know of it yet
	}
	if c.applied < first+2*c.cfg.Keep && c.log.Bytes() < 2*c.cfg.KeepBytes {
		return
	}
	keep := c.cfg.Keep
	if c.log.Bytes() >= 2*c.cfg.KeepBytes {
		keep = min(keep, (c.applied-first)/2)
	}
	if c.applied-keep >= first {
		c.truncated = c.applied - keep
		c.disk.add(write{op: raftlog.Truncate{Index: c.truncated}})
	}
}
