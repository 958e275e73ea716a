package core

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Effects is what must be done because of the events up to one Take, as a plain
// value. The core keeps nothing of it: whoever holds the value either delivers it
// or abandons what is left.
type Effects struct {
	Batch         Batch
	Messages      []*raftpb.Message
	Forwards      []Forward
	Transfers     []TransferMessage
	Snapshots     []*raftpb.Message // MsgSnap: the state is to be streamed
	Machine       Machine           // after these events
	Restored      bool              // Machine comes from a snapshot
	Notifications []Notification
	Reads         []Read
	Membership    *raftpb.ConfState // nil: unchanged
	LeaderChanged bool              // the leader, the term or this member's role
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

// Notification is what the log means for this process, in the log's order:
// the changes that an entry made, the outcome of a call, or the end of a session.
type Notification struct {
	Keys    []wire.KeyChange
	Leaders []wire.LeaderChange
	Call    Call // nil, and neither Keys nor Leaders: Ended
	Ticket  wire.Ticket
	Reply   *wire.Reply
	More    bool
	Ended   wire.Ended
}

func (n *Notification) isChange() bool { return len(n.Keys) > 0 || len(n.Leaders) > 0 }

// Driver carries effects out: the loop of a member, or the simulator. None of its
// methods may call the core except for Unreachable.
type Driver interface {
	// Write starts writing a batch to the disk. Core.Stored must be called once
	// the batch is durable, and not before. There is one batch at a time.
	Write(Batch)
	// Send sends a message to a peer, or loses it.
	Send(*raftpb.Message)
	// Forward sends commands to the leader, or loses them.
	Forward(to uint64, s *wire.Submission)
	// SendTransfer sends a request for a leadership transfer, or its refusal, to a
	// peer, or loses it.
	SendTransfer(to uint64, t *wire.LeadershipTransfer)
	// SendSnapshot streams the state on the disk (see Snapshot) to a peer and
	// reports the end by Core.SnapshotSent.
	SendSnapshot(*raftpb.Message)
	// Progressed says that Core.Status has changed. The methods below notify this
	// process, which must not find an older status when they do.
	Progressed()
	// Restored passes on the machine that a snapshot has put in place.
	Restored(Machine)
	// Changed reports the changes of one entry, before its outcomes.
	Changed(keys []wire.KeyChange, leaders []wire.LeaderChange)
	// Ended reports the end of a session.
	Ended(wire.Ended)
	// MembershipChanged reports a membership change.
	MembershipChanged(*raftpb.ConfState)
	// LeaderChanged reports that the leader, the term or this member's role changed.
	LeaderChanged()
}

// Deliver has d carry everything out: first what other members wait for, then the
// notifications of this process in the log's order. What has been carried out is
// no longer in e, so that after a panic in the middle Abandon fails the rest.
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
		case n.isChange():
			d.Changed(n.Keys, n.Leaders)
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
}

// Abandon fails the calls whose outcomes were not delivered. A call that awaits
// another outcome is not among them: the core fails it, or a later notification does.
func (e *Effects) Abandon(err error) {
	for _, n := range e.Notifications {
		if n.Call != nil && !n.More {
			n.Call.Fail(err)
		}
	}
	e.Notifications = nil
}
