package core

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Effects is what has to be done because of the events up to one Take.
type Effects struct {
	writes    []write
	messages  []*raftpb.Message
	snapshots []*raftpb.Message // MsgSnap: the state is to be streamed
	forward   []forward
	news      []news
	reads     []Read
	leader    bool // the leader or our role has changed
	restored  bool // a snapshot has replaced the state

	membership *raftpb.ConfState // nil: it has not changed
}

// forward is a submission on its way to the leader.
type forward struct {
	to         uint64
	submission *wire.Submission
}

// news is what the log says to this process, in the log's order: what an entry
// has changed, an outcome for one of its calls, or the end of a session.
type news struct {
	keys    []wire.KeyChange
	leaders []wire.LeaderChange
	call    Call // nil, and nothing changed: ended
	ticket  wire.Ticket
	reply   *wire.Reply
	more    bool
	ended   wire.Ended
}

// isChange reports whether the news is of what an entry has changed.
func (n *news) isChange() bool { return len(n.keys) > 0 || len(n.leaders) > 0 }

// Driver does what a core wants done: the loop of a member, or the simulator's.
// Nothing of it may call back into the core but for Unreachable.
type Driver interface {
	// Write has a batch written to the disk. When it is durable, and not
	// before, the core is told by Stored. There is one batch at a time.
	Write(Batch)
	// Send brings a message to a peer, or loses it.
	Send(*raftpb.Message)
	// Forward brings commands to the leader, or loses them.
	Forward(to uint64, s *wire.Submission)
	// SendSnapshot streams the state as it is on the disk (Snapshot) to a peer,
	// and tells the core by SnapshotSent how that ended.
	SendSnapshot(*raftpb.Message)
	// Moved says that Status tells something else now. What follows is told to
	// this process, which must not find an older one.
	Moved()
	// Restored brings the machine that a snapshot has put in place of another.
	Restored(Machine)
	// Changed says what one entry has changed; its outcomes follow.
	Changed(keys []wire.KeyChange, leaders []wire.LeaderChange)
	// Ended says that a session has ended.
	Ended(wire.Ended)
	// Regrouped says that the membership has changed.
	Regrouped(*raftpb.ConfState)
	// LeaderChanged says that the leader, the term or this member's role has
	// changed.
	LeaderChanged()
}

// CarryOut has the driver do what Take has handed out: what others wait for
// first, and then what this process is told, in the log's order.
func (c *Core) CarryOut(out Effects, d Driver) {
	c.telling = out.news
	if len(out.writes) > 0 {
		d.Write(Batch{out.writes})
	}
	for _, m := range out.messages {
		d.Send(m)
	}
	for _, f := range out.forward {
		d.Forward(f.to, f.submission)
	}
	for _, m := range out.snapshots {
		d.SendSnapshot(m)
	}
	d.Moved()
	if out.restored {
		d.Restored(c.machine)
	}
	for len(c.telling) > 0 {
		n := c.telling[0]
		c.telling = c.telling[1:]
		switch {
		case n.isChange():
			d.Changed(n.keys, n.leaders)
		case n.call != nil:
			n.call.Deliver(n.ticket, n.reply, n.more)
		default:
			d.Ended(n.ended)
		}
	}
	for _, r := range out.reads {
		r.Run(c.machine)
	}
	if out.membership != nil {
		d.Regrouped(out.membership)
	}
	if out.leader {
		d.LeaderChanged()
	}
}
