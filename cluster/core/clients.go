package core

import (
	"go.etcd.io/raft/v3"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// MaxClientCalls is how many calls a client has in one submission at most.
const MaxClientCalls = tickets.Window

// Client is a client that is attached to this member: a process that is no member, and gets
// from this one what the log means for it. Its methods run on the driver's goroutine, and
// must not block.
type Client interface {
	// Notify reports an outcome, the end of a session or a recall, in log order.
	Notify(*wire.Notice)
}

// attachedClients is the clients that are attached to this member.
type attachedClients struct {
	out     *Effects
	clients map[wire.ID]Client // by incarnation
}

// any reports whether there is one.
func (a *attachedClients) any() bool { return len(a.clients) > 0 }

// servesClients reports whether the group knows of clients.
func (c *Core) servesClients() bool {
	level, _ := c.machine.Level()
	return level >= wire.LevelClient
}

// AttachClient attaches a client, which learns of everything after the state that is applied
// now. A later client of the same incarnation replaces it.
func (a *attachedClients) AttachClient(incarnation wire.ID, client Client) {
	a.clients[incarnation] = client
}

// DetachClient undoes AttachClient, unless another client has replaced this one.
func (a *attachedClients) DetachClient(incarnation wire.ID, client Client) {
	if a.clients[incarnation] == client {
		delete(a.clients, incarnation)
	}
}

// SubmitForClient forwards what a client submits. Without a leader it is lost: the client
// retries, at the latest after Resend.
func (c *Core) SubmitForClient(s *wire.Submission) {
	if c.role.Lead != raft.None && c.servesClients() && proto.Size(s) <= inbox.MaxBatchBytes { // as leaders require
		c.calls.submitToLeader(s)
	}
}

func (a *attachedClients) notifyOutcome(o fact.Outcome) {
	if client := a.clients[o.Ticket.Incarnation]; client != nil {
		a.notifyClient(client, &wire.Notice{Body: &wire.Notice_Outcome{Outcome: &wire.DeliveredOutcome{
			Seq: o.Ticket.Seq, Reply: o.Reply, More: o.More,
		}}})
	}
}

func (a *attachedClients) notifyEnded(e fact.Ended) {
	if client := a.clients[e.Incarnation]; client != nil {
		a.notifyClient(client, &wire.Notice{Body: &wire.Notice_Ended{Ended: &wire.EndedSession{
			Session: e.Session[:], Unbound: e.Unbound,
		}}})
	}
}

func (a *attachedClients) notifyRecalled(recalls []fact.Recall) {
	for _, r := range recalls {
		if client := a.clients[r.Incarnation]; client != nil {
			a.notifyClient(client, &wire.Notice{Body: &wire.Notice_Recall{Recall: &wire.DeliveredRecall{
				Session: r.Session[:], Lock: r.Lock, Handle: r.Handle, Shared: r.Shared, Share: r.Share,
			}}})
		}
	}
}

func (a *attachedClients) notifyClient(client Client, n *wire.Notice) {
	a.out.Notifications = append(a.out.Notifications, Notification{Client: client, Notice: n})
}
