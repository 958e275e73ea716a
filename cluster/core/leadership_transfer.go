package core

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/conclave-go/conclave/internal/wire"
)

// Leadership transfer. The leader executes it as raft defines it; any other member sends
// the leader a request that names the leader's term. That makes the request idempotent:
// once leadership has moved, the term has passed.

var (
	// ErrNotLeader: only the leader can do that.
	ErrNotLeader = errors.New("this member does not lead the group")
	// ErrNoSuccessor: leadership cannot be transferred.
	ErrNoSuccessor = errors.New("no other voter is up to date")
	// ErrTooManyTransfers: as many as may be are under way; the call had no effect.
	ErrTooManyTransfers = fmt.Errorf("limit exceeded: %d leadership transfers are under way; wait for them", maxTransfers)
)

// maxTransfers bounds the transfers that callers of this process wait for, as each step looks at
// them. Clients are such callers as well.
const maxTransfers = 64

// transfer is a leadership transfer that this member executes as the leader.
type transfer struct {
	to   uint64       // as requested; 0: the most up-to-date voter
	done chan<- error // nil: requested by peer
	peer uint64
	term uint64 // in which peer requested it
}

// transferRequest is a leadership transfer that this member requests from the leader.
type transferRequest struct {
	to           uint64
	done         chan<- error
	leader, term uint64 // the request's receiver; 0: none yet
	due          uint64 // tick of the next retry
}

// Transfer transfers leadership to a voter, or to the most up-to-date one when to is 0.
// A member that does not lead sends a request to the leader, once one is known. done,
// which must be buffered, receives nil when another member leads, or to does, and
// ErrNoSuccessor if the leader abandoned the transfer. ErrTooManyTransfers: nothing is requested.
func (c *Core) Transfer(to uint64, done chan<- error) {
	if len(c.transfers)+len(c.requests) >= maxTransfers {
		done <- ErrTooManyTransfers
		return
	}
	if c.isLeader() {
		c.transfer(&transfer{to: to, done: done})
		return
	}
	c.requests = append(c.requests, &transferRequest{to: to, done: done})
}

// StepDown transfers leadership away from this member: ErrNotLeader if it does
// not lead.
func (c *Core) StepDown(done chan<- error) {
	if !c.isLeader() {
		done <- ErrNotLeader
		return
	}
	c.transfer(&transfer{done: done})
}

// AbandonTransfer abandons a Transfer or StepDown. It reports whether that may
// still take effect: not while no leader has been asked.
func (c *Core) AbandonTransfer(done chan<- error) (asked bool) {
	asked = true
	c.requests = slices.DeleteFunc(c.requests, func(r *transferRequest) bool {
		asked = asked && !(r.done == done && r.leader == raft.None)
		return r.done == done
	})
	c.transfers = slices.DeleteFunc(c.transfers, func(t *transfer) bool { return t.done == done })
	return asked
}

// transfer starts a transfer. roleChanged finishes it, or checkTransfers if raft has
// abandoned it, which raft does after an election timeout.
func (c *Core) transfer(t *transfer) {
	to := t.to
	if to == raft.None {
		to = c.successor(c.conf.GetVoters())
	}
	switch {
	case to == c.id:
		c.finishTransfer(t, nil)
	case !slices.Contains(c.conf.GetVoters(), to):
		c.finishTransfer(t, ErrNoSuccessor)
	default:
		c.transfers = append(c.transfers, t)
		c.node.TransferLeader(to)
	}
}

// finishTransfers finishes the transfers that this member executes.
func (c *Core) finishTransfers(err error) {
	for _, t := range c.transfers {
		c.finishTransfer(t, err)
	}
	c.transfers = nil
}

func (c *Core) finishTransfer(t *transfer, err error) {
	switch {
	case t.done != nil:
		t.done <- err
	case errors.Is(err, ErrNoSuccessor): // success needs no message: the peer observes the new leader
		c.out.Transfers = append(c.out.Transfers, TransferMessage{t.peer, &wire.LeadershipTransfer{To: t.to, Term: t.term, Refused: true}})
	}
}

// checkTransfers finishes transfers that raft has abandoned, and retries requests.
func (c *Core) checkTransfers() {
	if len(c.transfers) > 0 && c.role.RaftState == raft.StateLeader && c.node.BasicStatus().LeadTransferee == raft.None {
		c.finishTransfers(ErrNoSuccessor)
	}
	for _, r := range c.requests {
		if r.leader != raft.None && r.due <= c.ticks {
			c.request(r)
		}
	}
}

// requestTransfers sends requests that waited for a leader to be known.
func (c *Core) requestTransfers() {
	if len(c.requests) == 0 || c.role.Lead == raft.None {
		return
	}
	c.requests = slices.DeleteFunc(c.requests, func(r *transferRequest) bool {
		switch {
		case r.leader != raft.None:
			return false
		case r.to == c.role.Lead:
			r.done <- nil
			return true
		case c.role.Lead != c.id:
			r.leader, r.term = c.role.Lead, c.term
			c.request(r)
			return false
		case c.isLeader(): // this member was elected
			c.transfer(&transfer{to: r.to, done: r.done})
			return true
		}
		return false
	})
}

func (c *Core) request(r *transferRequest) {
	r.due = c.ticks + uint64(c.cfg.ElectionTicks)
	c.out.Transfers = append(c.out.Transfers, TransferMessage{r.leader, &wire.LeadershipTransfer{To: r.to, Term: r.term}})
}

// ReceiveTransfer receives a peer's request for a transfer, or its refusal.
func (c *Core) ReceiveTransfer(from uint64, m *wire.LeadershipTransfer) {
	if m.GetRefused() {
		c.requests = slices.DeleteFunc(c.requests, func(r *transferRequest) bool {
			refused := r.leader == from && r.term == m.GetTerm() && r.to == m.GetTo()
			if refused {
				r.done <- ErrNoSuccessor
			}
			return refused
		})
		return
	}
	if !c.isLeader() || m.GetTerm() != c.term {
		return
	}
	repeated := slices.ContainsFunc(c.transfers, func(t *transfer) bool { return t.peer == from && t.to == m.GetTo() && t.term == m.GetTerm() })
	if !repeated && len(c.transfers) < 2*maxTransfers {
		c.transfer(&transfer{to: m.GetTo(), peer: from, term: m.GetTerm()})
	}
}

// leaderKnown finishes the transfers that another leader than before completes. The same
// leader in a later term has not transferred leadership, and gets the request again.
func (c *Core) leaderKnown() {
	if c.role.Lead != c.id {
		c.finishTransfers(nil)
	}
	c.requests = slices.DeleteFunc(c.requests, func(r *transferRequest) bool {
		switch {
		case r.leader == raft.None:
			return false
		case r.leader != c.role.Lead:
			r.done <- nil
			return true
		case r.term != c.term:
			r.leader = raft.None
		}
		return false
	})
}

// checkDisk transfers leadership when the disk has not completed a write for an election
// timeout: a leader with a stalled disk still sends heartbeats, so no other member
// campaigns.
func (c *Core) checkDisk() {
	stalled := len(c.disk.batch) > 0 && c.ticks >= c.disk.since+uint64(c.cfg.ElectionTicks)
	if !stalled || c.role.RaftState != raft.StateLeader {
		return
	}
	c.disk.since = c.ticks // retried after another election timeout
	if to := c.successor(c.conf.GetVoters()); to != raft.None {
		c.cfg.Logger.Warn("disk stalled, transferring leadership", "to", wire.MemberID(to))
		c.node.TransferLeader(to)
	}
}
