package core

import (
	"go.etcd.io/raft/v3"

	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// calls is the calls of this process that have no outcome yet, and the way of commands to the
// leader.
type calls struct {
	*raftNode
	inbox  *inbox.Inbox // where this member leads
	out    *Effects
	resent *metrics.Counter

	maxCalls, maxBytes int // of Config

	incarnation wire.ID
	tickets     *tickets.Table[Call]
}

// Submit submits a command of this process. Urgent commands, renewals and releases, go
// before the others in every queue, and are not limited by MaxCalls and MaxCallBytes:
// refusing them would lose or leak locks.
func (c *calls) Submit(command []byte, call Call, urgent bool) {
	switch {
	case c.tickets.Refused():
		tickets.Answer(call, c.incarnation, nil)
		return
	case !c.tickets.Admits(len(command), urgent, c.maxCalls, c.maxBytes):
		call.Fail(tickets.ErrTooManyCalls)
		return
	}
	c.tickets.Add(command, call, urgent)
}

// Cancel withdraws a call whose command has not been sent, and reports to the call
// whether it was.
func (c *calls) Cancel(call Call) {
	call.Cancelled(!c.tickets.Cancel(call))
}

// Reregister replaces the incarnation, whose registration has expired. Every call made
// under the former incarnation fails. The registration precedes every other command.
func (c *calls) Reregister(id wire.ID, registration []byte, call Call) {
	expired := c.incarnation
	sent, queued := c.tickets.Drain()
	c.incarnation = id
	c.tickets.Gate()
	c.tickets.Add(registration, call, true)
	for _, call := range sent {
		call.Fail(tickets.ErrUnregistered)
	}
	for _, call := range queued {
		tickets.Answer(call, expired, nil)
	}
}

// Incarnation returns the incarnation that calls are made under.
func (c *calls) Incarnation() wire.ID { return c.incarnation }

// Backlog returns the calls that the core has.
func (c *calls) Backlog() Backlog { return c.tickets.Backlog() }

// outcome queues an outcome, and reports whether it is of this process.
func (c *calls) outcome(o fact.Outcome) bool {
	if o.Ticket.Incarnation != c.incarnation || o.Member != c.id {
		return false
	}
	registering := !c.tickets.Registered()
	call, ok := c.tickets.Outcome(o.Ticket.Seq, o.More)
	if !ok {
		return true
	}
	c.out.Notifications = append(c.out.Notifications, Notification{Call: call, Ticket: o.Ticket, Reply: o.Reply, More: o.More})
	if registering && o.Reply.GetCode() != wire.Code_OK {
		for _, call := range c.tickets.Refuse() {
			tickets.Answer(call, c.incarnation, o.Reply)
		}
	}
	return true
}

// recheck looks up the outcomes that calls still await in an installed state: the
// entries that bring them may be compacted into the snapshot.
func (c *calls) recheck(machine Machine) {
	for _, seq := range c.tickets.AwaitingInOrder() {
		ticket := wire.Ticket{Incarnation: c.incarnation, Seq: seq}
		call, _ := c.tickets.Awaiting(seq)
		if reply := call.Recheck(machine, ticket); reply != nil {
			c.tickets.Settle(seq)
			c.out.Notifications = append(c.out.Notifications, Notification{Call: call, Ticket: ticket, Reply: reply})
		}
	}
}

// send sends the commands that were not sent yet.
func (c *calls) send() { c.sendCalls(c.tickets.Issue(c.ticks)) }

// resendOverdue sends those again that have waited for an outcome for long.
func (c *calls) resendOverdue() { c.resendCalls(c.tickets.Overdue(c.ticks)) }

// resendAll sends every pending command again.
func (c *calls) resendAll() { c.resendCalls(c.tickets.RetryAll(c.ticks)) }

// sendCalls sends commands of this process to the leader, in submissions small enough
// that several fit into an entry.
func (c *calls) sendCalls(out tickets.Outgoing) {
	c.sendLane(out.Urgent, true)
	c.sendLane(out.Ordinary, false)
}

// resendCalls sends calls again whose outcomes have not come.
func (c *calls) resendCalls(out tickets.Outgoing) {
	c.resent.Add(uint64(len(out.Urgent) + len(out.Ordinary)))
	c.sendCalls(out)
}

func (c *calls) sendLane(calls []*wire.Call, urgent bool) {
	for calls := range tickets.Split(calls) {
		c.submitToLeader(&wire.Submission{
			Member: c.id, Incarnation: c.incarnation[:], Floor: c.tickets.Floor(), Calls: calls, Urgent: urgent, Applied: c.applied,
		})
	}
}

// submitToLeader submits calls to the leader, which may be this member.
func (c *calls) submitToLeader(s *wire.Submission) {
	if c.role.RaftState == raft.StateLeader {
		c.inbox.Add(c.id, s)
	} else {
		c.out.Forwards = append(c.out.Forwards, Forward{c.role.Lead, s})
	}
}

// abandonAll fails every call.
func (c *calls) abandonAll(err error) {
	sent, queued := c.tickets.Drain()
	tickets.FailAll(sent, queued, err)
}
