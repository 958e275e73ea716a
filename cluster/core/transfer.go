package core

import (
	"errors"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/conclave-go/conclave/internal/wire"
)

// Leadership transfer. The leader executes it by raft's own means; any other
// member asks the leader, by a message that names the leader's term. Repeating the
// message is therefore safe: once leadership has moved, the term has passed.

var (
	// ErrNotLeader: the operation needs this member to lead the group.
	ErrNotLeader = errors.New("this member does not lead the group")
	// ErrNoSuccessor: leadership cannot be transferred.
	ErrNoSuccessor = errors.New("no other voter is up to date")
)

// transfer is a leadership transfer that this member executes as the leader.
type transfer struct {
	to   uint64       // as asked for; 0: the most up-to-date voter
	done chan<- error // nil: a peer asked
	peer uint64       // that asked
}

// transferRequest is a leadership transfer that this member asks the leader for.
type transferRequest struct {
	to           uint64
	done         chan<- error
	leader, term uint64 // that was asked; 0: none yet
	due          uint64 // tick at which the request is repeated
}

// Transfer transfers leadership to a voter, or to the most up-to-date one when to
// is 0. A member that does not lead asks the leader, when one is known. done, which
// must have room, receives nil once another leader is known or to leads already,
// and ErrNoSuccessor if the leader gave up.
func (c *Core) Transfer(to uint64, done chan<- error) {
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

// AbandonTransfer gives up waiting for a Transfer or StepDown. It reports whether that
// may still take effect: not while no leader has been asked.
func (c *Core) AbandonTransfer(done chan<- error) (asked bool) {
	asked = true
	c.requests = slices.DeleteFunc(c.requests, func(r *transferRequest) bool {
		asked = asked && !(r.done == done && r.leader == raft.None)
		return r.done == done
	})
	c.transfers = slices.DeleteFunc(c.transfers, func(t *transfer) bool { return t.done == done })
	return asked
}

// isLeader asks raft itself: leadership may have been lost since the last Ready,
// and raft would then forward a transfer to the new leader in the successor's name.
func (c *Core) isLeader() bool { return c.node.BasicStatus().RaftState == raft.StateLeader }

// transfer starts a transfer; roleChanged ends it. raft gives up after an election
// timeout without the successor's answer, which Tick notices.
func (c *Core) transfer(t *transfer) {
	to := t.to
	if to == raft.None {
		to = c.successor(c.conf.GetVoters())
	}
	switch {
	case to == c.id:
		c.answer(t, nil)
	case !slices.Contains(c.conf.GetVoters(), to):
		c.answer(t, ErrNoSuccessor)
	default:
		c.transfers = append(c.transfers, t)
		c.node.TransferLeader(to)
	}
}

// transferred ends the transfers that this member executes.
func (c *Core) transferred(err error) {
	for _, t := range c.transfers {
		c.answer(t, err)
	}
	c.transfers = nil
}

func (c *Core) answer(t *transfer, err error) {
	switch {
	case t.done != nil:
		t.done <- err
	case errors.Is(err, ErrNoSuccessor): // a peer learns of success by the new leader
		c.out.Transfers = append(c.out.Transfers, TransferMessage{t.peer, &wire.LeadershipTransfer{To: t.to, Term: c.term, Refused: true}})
	}
}

// watchTransfers notices that raft has given a transfer up, and asks again where a
// request may be lost.
func (c *Core) watchTransfers() {
	if len(c.transfers) > 0 && c.role.RaftState == raft.StateLeader && c.node.BasicStatus().LeadTransferee == raft.None {
		c.transferred(ErrNoSuccessor)
	}
	for _, r := range c.requests {
		if r.leader != raft.None && r.due <= c.ticks {
			c.request(r)
		}
	}
}

// askTransfers asks a leader that has become known for what was requested before.
func (c *Core) askTransfers() {
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
		case c.isLeader(): // this member itself, meanwhile
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

// ReceiveTransfer takes a peer's request for a transfer, or its refusal.
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
	repeated := slices.ContainsFunc(c.transfers, func(t *transfer) bool { return t.peer == from && t.to == m.GetTo() })
	if !repeated {
		c.transfer(&transfer{to: m.GetTo(), peer: from})
	}
}

// leaderKnown ends what waits for another leader than before. The same leader in a
// later term is asked again: in its earlier term it did not transfer.
func (c *Core) leaderKnown() {
	if c.role.Lead != c.id {
		c.transferred(nil)
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

// successor is the most up-to-date of these voters, preferably one that was heard
// of lately: raft resets that knowledge once in each election timeout.
func (c *Core) successor(voters []uint64) uint64 {
	var best uint64
	var active bool
	var match uint64
	progress := c.node.Status().Progress
	for _, id := range voters {
		p, ok := progress[id]
		if !ok || id == c.id {
			continue
		}
		better := best == raft.None || p.RecentActive && !active ||
			p.RecentActive == active && (p.Match > match || p.Match == match && id < best)
		if better {
			best, active, match = id, p.RecentActive, p.Match
		}
	}
	return best
}
