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

// servesClients reports whether the group knows of clients.
func (c *Core) servesClients() bool {
	level, _ := c.machine.Level()
	return level >= wire.LevelClient
}

// AttachClient attaches a client, which learns of everything after the state that is applied
// now. A later client of the same incarnation replaces it.
func (c *Core) AttachClient(incarnation wire.ID, client Client) { c.clients[incarnation] = client }

// DetachClient undoes AttachClient, unless another client has replaced this one.
func (c *Core) DetachClient(incarnation wire.ID, client Client) {
	if c.clients[incarnation] == client {
		delete(c.clients, incarnation)
	}
}

// SubmitForClient forwards what a client submits. Without a leader it is lost: the client
// retries, at the latest after Resend.
func (c *Core) SubmitForClient(s *wire.Submission) {
	if c.role.Lead != raft.None && c.servesClients() && proto.Size(s) <= inbox.MaxBatchBytes { // as leaders require
		c.submitToLeader(s)
	}
}

func (c *Core) notifyOutcome(o fact.Outcome) {
	if client := c.clients[o.Ticket.Incarnation]; client != nil {
		c.notifyClient(client, &wire.Notice{Body: &wire.Notice_Outcome{Outcome: &wire.DeliveredOutcome{
			Seq: o.Ticket.Seq, Reply: o.Reply, More: o.More,
		}}})
	}
}

func (c *Core) notifyEnded(e fact.Ended) {
	if client := c.clients[e.Incarnation]; client != nil {
		c.notifyClient(client, &wire.Notice{Body: &wire.Notice_Ended{Ended: &wire.EndedSession{
			Session: e.Session[:], Unbound: e.Unbound,
		}}})
	}
}

func (c *Core) notifyRecalled(recalls []fact.Recall) {
	for _, r := range recalls {
		if client := c.clients[r.Incarnation]; client != nil {
			c.notifyClient(client, &wire.Notice{Body: &wire.Notice_Recall{Recall: &wire.DeliveredRecall{
				Session: r.Session[:], Lock: r.Lock, Handle: r.Handle,
			}}})
		}
	}
}

func (c *Core) notifyClient(client Client, n *wire.Notice) {
	c.out.Notifications = append(c.out.Notifications, Notification{Client: client, Notice: n})
}
