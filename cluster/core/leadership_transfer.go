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
	// ErrTransferRefused: the voter is not up to date, or another transfer is under way; the call had no effect.
	ErrTransferRefused = errors.New("the voter is not up to date, or another leadership transfer is under way")
	// ErrTooManyTransfers: as many as may be are under way; the call had no effect.
	ErrTooManyTransfers = fmt.Errorf("limit exceeded: %d leadership transfers are under way; wait for them", maxTransfers)
)

// maxTransfers bounds the transfers that callers of this process wait for, as each step looks at
// them. Clients are such callers as well.
const maxTransfers = 64

// leadershipTransfers is the transfers that this member executes as the leader, and those that it
// requests from the leader.
type leadershipTransfers struct {
	*raftNode
	out       *Effects
	transfers []*transfer
	requests  []*transferRequest
}

// transfer is a leadership transfer that this member executes as the leader.
type transfer struct {
	to   uint64       // as requested; 0: the most up-to-date voter
	only bool         // it fails if another one than to leads next
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
func (l *leadershipTransfers) Transfer(to uint64, done chan<- error) {
	if len(l.transfers)+len(l.requests) >= maxTransfers {
		done <- ErrTooManyTransfers
		return
	}
	if l.isLeader() {
		l.transfer(&transfer{to: to, done: done})
		return
	}
	l.requests = append(l.requests, &transferRequest{to: to, done: done})
}

// StepDown transfers leadership away from this member: ErrNotLeader if it does
// not lead.
func (l *leadershipTransfers) StepDown(done chan<- error) {
	if !l.isLeader() {
		done <- ErrNotLeader
		return
	}
	l.transfer(&transfer{done: done})
}

// StepDownTo transfers leadership from this member to another voter that is up to date. Unlike Transfer it has no effect if
// this member does not lead (ErrNotLeader), or if another transfer is under way or the voter would have to catch up
// first (ErrTransferRefused): during a transfer the leader proposes nothing. ErrNoSuccessor: that voter does not lead.
func (l *leadershipTransfers) StepDownTo(to uint64, done chan<- error) {
	s := l.node.Status()
	// raft resets RecentActive once in each election timeout, until the next message: a later call succeeds.
	p := s.Progress[to]
	switch {
	case !l.isLeader():
		done <- ErrNotLeader
	case s.LeadTransferee != raft.None || to == l.id || !l.isVoter(to) || !p.RecentActive || !l.isNear(p):
		done <- ErrTransferRefused
	default:
		l.transfer(&transfer{to: to, only: true, done: done})
	}
}

// AbandonTransfer abandons a Transfer, StepDown or StepDownTo. It reports whether that may
// still take effect: not while no leader has been asked.
func (l *leadershipTransfers) AbandonTransfer(done chan<- error) (asked bool) {
	asked = true
	l.requests = slices.DeleteFunc(l.requests, func(r *transferRequest) bool {
		asked = asked && !(r.done == done && r.leader == raft.None)
		return r.done == done
	})
	l.transfers = slices.DeleteFunc(l.transfers, func(t *transfer) bool { return t.done == done })
	return asked
}

// transfer starts a transfer. roleChanged finishes it, or checkTransfers if raft has
// abandoned it, which raft does after an election timeout.
func (l *leadershipTransfers) transfer(t *transfer) {
	to := t.to
	if to == raft.None {
		to = l.successor(l.conf.GetVoters())
	}
	switch {
	case to == l.id:
		l.finishTransfer(t, nil)
	case !slices.Contains(l.conf.GetVoters(), to):
		l.finishTransfer(t, ErrNoSuccessor)
	default:
		l.transfers = append(l.transfers, t)
		l.node.TransferLeader(to)
	}
}

// finishTransfers finishes the transfers that this member executes.
func (l *leadershipTransfers) finishTransfers(err error) {
	for _, t := range l.transfers {
		if err == nil && t.only && l.role.Lead != t.to {
			l.finishTransfer(t, ErrNoSuccessor)
			continue
		}
		l.finishTransfer(t, err)
	}
	l.transfers = nil
}

func (l *leadershipTransfers) finishTransfer(t *transfer, err error) {
	switch {
	case t.done != nil:
		t.done <- err
	case errors.Is(err, ErrNoSuccessor): // success needs no message: the peer observes the new leader
		l.out.Transfers = append(l.out.Transfers, TransferMessage{t.peer, &wire.LeadershipTransfer{To: t.to, Term: t.term, Refused: true}})
	}
}

// checkTransfers finishes transfers that raft has abandoned, and retries requests.
func (l *leadershipTransfers) checkTransfers() {
	if len(l.transfers) > 0 && l.role.RaftState == raft.StateLeader && l.node.BasicStatus().LeadTransferee == raft.None {
		l.finishTransfers(ErrNoSuccessor)
	}
	for _, r := range l.requests {
		if r.leader != raft.None && r.due <= l.ticks {
			l.request(r)
		}
	}
}

// requestTransfers sends requests that waited for a leader to be known.
func (l *leadershipTransfers) requestTransfers() {
	if len(l.requests) == 0 || l.role.Lead == raft.None {
		return
	}
	l.requests = slices.DeleteFunc(l.requests, func(r *transferRequest) bool {
		switch {
		case r.leader != raft.None:
			return false
		case r.to == l.role.Lead:
			r.done <- nil
			return true
		case l.role.Lead != l.id:
			r.leader, r.term = l.role.Lead, l.term
			l.request(r)
			return false
		case l.isLeader(): // this member was elected
			l.transfer(&transfer{to: r.to, done: r.done})
			return true
		}
		return false
	})
}

func (l *leadershipTransfers) request(r *transferRequest) {
	r.due = l.ticks + l.electionTicks
	l.out.Transfers = append(l.out.Transfers, TransferMessage{r.leader, &wire.LeadershipTransfer{To: r.to, Term: r.term}})
}

// ReceiveTransfer receives a peer's request for a transfer, or its refusal.
func (l *leadershipTransfers) ReceiveTransfer(from uint64, m *wire.LeadershipTransfer) {
	if m.GetRefused() {
		l.requests = slices.DeleteFunc(l.requests, func(r *transferRequest) bool {
			refused := r.leader == from && r.term == m.GetTerm() && r.to == m.GetTo()
			if refused {
				r.done <- ErrNoSuccessor
			}
			return refused
		})
		return
	}
	if !l.isLeader() || m.GetTerm() != l.term {
		return
	}
	repeated := slices.ContainsFunc(l.transfers, func(t *transfer) bool { return t.peer == from && t.to == m.GetTo() && t.term == m.GetTerm() })
	if !repeated && len(l.transfers) < 2*maxTransfers {
		l.transfer(&transfer{to: m.GetTo(), peer: from, term: m.GetTerm()})
	}
}

// leaderKnown finishes the transfers that another leader than before completes. The same
// leader in a later term has not transferred leadership, and gets the request again.
func (l *leadershipTransfers) leaderKnown() {
	if l.role.Lead != l.id {
		l.finishTransfers(nil)
	}
	l.requests = slices.DeleteFunc(l.requests, func(r *transferRequest) bool {
		switch {
		case r.leader == raft.None:
			return false
		case r.leader != l.role.Lead:
			r.done <- nil
			return true
		case r.term != l.term:
			r.leader = raft.None
		}
		return false
	})
}

// checkDisk transfers leadership when the disk has not completed a write for an election
// timeout: a leader with a stalled disk still sends heartbeats, so no other member
// campaigns.
func (l *leadershipTransfers) checkDisk(d *disk) {
	stalled := len(d.batch) > 0 && l.ticks >= d.since+l.electionTicks
	if !stalled || l.role.RaftState != raft.StateLeader {
		return
	}
	d.since = l.ticks // retried after another election timeout
	if to := l.successor(l.conf.GetVoters()); to != raft.None {
		l.logger.Warn("disk stalled, transferring leadership", "to", wire.MemberID(to))
		l.node.TransferLeader(to)
	}
}

// abandonAll fails the transfers that callers of this process wait for.
func (l *leadershipTransfers) abandonAll(err error) {
	l.finishTransfers(err)
	for _, r := range l.requests {
		r.done <- err
	}
	l.requests = nil
}
