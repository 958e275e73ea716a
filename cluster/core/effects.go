package core

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Effects are the results of the events up to one Take, as a plain value like raft's
// Ready. The core keeps no copy: the caller of Take delivers it or abandons the rest.
type Effects struct {
	Batch         Batch
	Messages      []*raftpb.Message
	Forwards      []Forward
	Transfers     []TransferMessage
	Digests       []DigestMessage
	Quiet         []QuietMessage
	Cancelled     []uint64          // peers to which a snapshot in flight is useless
	Snapshots     []*raftpb.Message // MsgSnap; to be sent with the state by a stream
	Machine       Machine           // after these events
	Restored      bool              // Machine comes from a snapshot
	Notifications []Notification
	Reads         []Read
	Membership    *raftpb.ConfState // nil: unchanged
	LeaderChanged bool              // the leader, the term or this member's role
	Resend        bool              // attached clients must send again what has no outcome yet
}

// Forward is a submission for the leader.
type Forward struct {
	To         uint64
	Submission *wire.Submission
}

// TransferMessage is a request for a leadership transfer, or its refusal.
type TransferMessage struct {
	To       uint64 // the peer that gets the message
	Transfer *wire.LeadershipTransfer
}

// DigestMessage is this voter's digest for another member.
type DigestMessage struct {
	To     uint64
	Digest *wire.Digest
}

// QuietMessage is a message about the quiet of the group to another member.
type QuietMessage struct {
	To    uint64
	Quiet *wire.Quiet
}

// Notification notifies this process of a result of the log, in log order: the changes
// made by an entry and the recalls that it caused, the outcome of a call, or the end of a
// session. With Client it is for that client.
type Notification struct {
	Keys    []fact.KeyChange
	Leaders []fact.LeaderChange
	Recalls []fact.Recall
	Shards  []fact.ShardChange
	Listed  bool // see fact.Result
	Call    Call // nil, and none of the above: Ended
	Ticket  wire.Ticket
	Reply   *wire.Reply
	More    bool
	Ended   fact.Ended
	Client  Client // nil: for this process
	Notice  *wire.Notice
}

func (n *Notification) isChange() bool {
	return len(n.Keys)+len(n.Leaders)+len(n.Recalls)+len(n.Shards) > 0 || n.Listed
}

func (n *Notification) deliverChanges(d Driver) {
	if len(n.Keys)+len(n.Leaders) > 0 {
		d.Changed(n.Keys, n.Leaders)
	}
	if len(n.Recalls) > 0 {
		d.Recalled(n.Recalls)
	}
	if len(n.Shards) > 0 {
		d.ShardsChanged(n.Shards)
	}
	if n.Listed {
		d.ListsChanged()
	}
}

// Driver carries out effects: the loop of a member, or the simulator. Of the core's
// methods it may call Unreachable only.
type Driver interface {
	// Write starts writing a batch to the disk. Core.Stored must be called when the
	// batch is durable. There is one batch in flight at a time.
	Write(Batch)
	// Send, Forward, SendTransfer, SendDigest and SendQuiet send a message to a peer. It may be lost.
	Send(*raftpb.Message)
	Forward(to uint64, s *wire.Submission)
	SendTransfer(to uint64, t *wire.LeadershipTransfer)
	SendDigest(to uint64, d *wire.Digest)
	SendQuiet(to uint64, q *wire.Quiet)
	// SendSnapshot reads the state on the disk (see Snapshot), has it confirmed by
	// Core.ConfirmSnapshot, and streams it to a peer. It reports the progress to
	// Core.SnapshotProgress and the result to Core.SnapshotSent, and if it waits for its turn,
	// that to Core.SnapshotWaits and Core.SnapshotBegins.
	SendSnapshot(*raftpb.Message)
	// CancelSnapshot ends the stream to a peer, if there is one, as a failure.
	CancelSnapshot(to uint64)
	// Progressed reports that Core.Status has changed. It is called before the
	// methods below, whose receivers must not find an older status.
	Progressed()
	// Restored reports the machine of an installed snapshot.
	Restored(Machine)
	// Changed reports the changes of one entry, before its outcomes.
	Changed(keys []fact.KeyChange, leaders []fact.LeaderChange)
	// ListsChanged reports that one entry has changed what lists of members, sessions and
	// checks show.
	ListsChanged()
	// Recalled reports the recalls that one entry caused.
	Recalled([]fact.Recall)
	// ShardsChanged reports the changes of shards that one entry made.
	ShardsChanged([]fact.ShardChange)
	// Ended reports the end of a session.
	Ended(fact.Ended)
	// MembershipChanged reports a membership change.
	MembershipChanged(*raftpb.ConfState)
	// LeaderChanged reports that the leader, the term or this member's role changed.
	LeaderChanged()
	// Resend asks the attached clients to send again what has no outcome yet.
	Resend()
}

// Callers returns how many callers of this process get an outcome, or the answer of a read.
func (e *Effects) Callers() (n int) {
	for i := range e.Notifications {
		if e.Notifications[i].Call != nil {
			n++
		}
	}
	return n + len(e.Reads)
}

// Deliver carries out the effects: first writes and messages, then notifications in log
// order. It removes each notification from e before delivering it, so that Abandon fails
// the rest after a panic.
func (e *Effects) Deliver(d Driver) {
	if !e.Batch.isEmpty() {
		d.Write(e.Batch)
	}
	for _, m := range e.Messages {
		d.Send(m)
	}
	for _, f := range e.Forwards {
		d.Forward(f.To, f.Submission)
	}
	for _, t := range e.Transfers {
		d.SendTransfer(t.To, t.Transfer)
	}
	for _, m := range e.Digests {
		d.SendDigest(m.To, m.Digest)
	}
	for _, m := range e.Quiet {
		d.SendQuiet(m.To, m.Quiet)
	}
	for _, to := range e.Cancelled {
		d.CancelSnapshot(to)
	}
	for _, m := range e.Snapshots {
		d.SendSnapshot(m)
	}
	d.Progressed()
	if e.Restored {
		d.Restored(e.Machine)
	}
	for len(e.Notifications) > 0 {
		n := e.Notifications[0]
		e.Notifications = e.Notifications[1:]
		switch {
		case n.Client != nil:
			n.Client.Notify(n.Notice)
		case n.isChange():
			n.deliverChanges(d)
		case n.Call != nil:
			n.Call.Deliver(n.Ticket, n.Reply, n.More)
		default:
			d.Ended(n.Ended)
		}
	}
	for _, r := range e.Reads {
		r.Run(e.Machine)
	}
	if e.Membership != nil {
		d.MembershipChanged(e.Membership)
	}
	if e.LeaderChanged {
		d.LeaderChanged()
	}
	if e.Resend {
		d.Resend()
	}
}

// Abandon fails the calls whose last outcomes were not delivered. A call that awaits
// another outcome is still in the core, or in a later notification, and fails there.
func (e *Effects) Abandon(err error) {
	for _, n := range e.Notifications {
		if n.Call != nil && !n.More {
			n.Call.Fail(err)
		}
	}
	e.Notifications = nil
}
