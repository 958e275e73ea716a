package core

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// maxReads bounds the reads that wait for the leader's confirmation.
const maxReads = 16384

var errTooManyReads = tickets.BusyError(fmt.Sprintf("limit exceeded: %d reads of this process are pending", maxReads))

// Read is a linearizable read. It runs on the loop's goroutine, with a state that
// includes every command acknowledged before Core.Read.
type Read interface {
	Run(Machine)
	Ended() bool // the caller has abandoned it; it need not run
}

// reads batches linearizable reads into ReadIndex requests, one in flight at a time.
// Each request has a new context: otherwise a late answer to an earlier request could
// confirm a read that began after it with an older state (etcd#20418).
type reads struct {
	self        *raftNode
	clock       *groupClock
	incarnation wire.ID // prefix of the context: no answer to an earlier process confirms a read
	attempt     uint64
	inFlight    []Read // confirmed by the request in flight
	sentAt      uint64 // tick of that request
	waiting     []Read // began later and need a later request
	ready       []read // confirmed; run when applied
	credit      int    // reads that makeRoom may look at

	early []*raftpb.Message // requests of peers, one of each, for a leader that cannot answer yet
	asked uint64            // as a leader: the last request that a heartbeat has asked the peers to confirm
}

type read struct {
	index uint64
	reads []Read
}

func (r *reads) len() int { return len(r.inFlight) + len(r.waiting) }

// isIdle reports whether there is none, of this member or of a peer.
func (r *reads) isIdle() bool { return r.len()+len(r.ready)+len(r.early) == 0 }

// next returns the context of a request to send now, or nil. A request without an
// answer is lost after timeout ticks, as raft drops requests silently.
func (r *reads) next(tick, timeout uint64) []byte {
	lost := len(r.inFlight) > 0 && tick >= r.sentAt+timeout
	if len(r.inFlight) > 0 && !lost || r.len() == 0 {
		return nil
	}
	r.prune()
	if r.len() == 0 {
		return nil
	}
	r.inFlight, r.waiting = append(r.inFlight, r.waiting...), nil
	r.attempt++
	r.sentAt = tick
	return r.context()
}

func (r *reads) context() []byte {
	return binary.BigEndian.AppendUint64(r.incarnation[:len(r.incarnation):len(r.incarnation)], r.attempt)
}

// prune drops abandoned reads.
func (r *reads) prune() {
	r.inFlight = slices.DeleteFunc(r.inFlight, Read.Ended)
	r.waiting = slices.DeleteFunc(r.waiting, Read.Ended)
}

// pruned is how many reads a refused one pays for to be looked at.
const pruned = 64

// makeRoom drops abandoned reads if there are as many as there may be, and reports whether there is
// room. Callers that are refused may come at any rate, and looking at all reads each time would
// stall the loop: each look is paid for by as many reads that were accepted, or fewer that were
// refused.
func (r *reads) makeRoom() bool {
	if r.len() < maxReads {
		r.credit = min(r.credit+2, 2*maxReads)
		return true
	}
	if r.credit += pruned; r.credit < maxReads {
		return false
	}
	r.credit -= maxReads
	r.prune()
	return r.len() < maxReads
}

// retry abandons the request in flight, after a change of leader: the next request
// confirms its reads.
func (r *reads) retry() {
	r.waiting, r.inFlight = append(r.inFlight, r.waiting...), nil
}

// confirmed receives raft's answer.
func (r *reads) confirmed(context []byte, index uint64) {
	if len(r.inFlight) == 0 || !bytes.Equal(context, r.context()) {
		return
	}
	r.ready = append(r.ready, read{index, r.inFlight})
	r.inFlight = nil
}

// applied removes and returns the reads that may run at the applied index.
func (r *reads) applied(index uint64) []Read {
	var run []Read
	keep := r.ready[:0]
	for _, batch := range r.ready {
		if batch.index <= index {
			run = append(run, slices.DeleteFunc(batch.reads, Read.Ended)...)
		} else {
			keep = append(keep, batch)
		}
	}
	clear(r.ready[len(keep):])
	r.ready = keep
	return run
}

// answersReads reports whether this member leads and has applied the first entry of its
// term. Until then it may not know of every committed entry, so it answers no read (Raft
// dissertation §6.4). raft makes an exception for a single voter, which may have
// acknowledged entries that its hard state does not show as committed after a restart.
func (r *reads) answersReads() bool { return r.clock.running && r.self.isLeader() }

// requestReads requests the confirmation of queued reads from the leader.
func (r *reads) requestReads() {
	if r.self.role.RaftState == raft.StateLeader && !r.answersReads() {
		return
	}
	if context := r.next(r.self.ticks, r.self.electionTicks); context != nil {
		r.self.node.ReadIndex(context)
	}
}

// raft's leader numbers the requests of a term, its own and those of peers, and the
// context of a heartbeat is the number of the last one: a response confirms all up to it.
// Requests with equal contexts of different members are separate ones.

// noteAsked records what a heartbeat asks for.
func (r *reads) noteAsked(heartbeat *raftpb.Message) {
	if number, ok := requestNumber(heartbeat); ok {
		r.asked = max(r.asked, number)
	}
}

// checkConfirmation checks a heartbeat's response for a leader. raft panics at a number
// that is none, and would count a number ahead of the requests for later ones, of which
// the peer confirms nothing yet.
func (r *reads) checkConfirmation(response *raftpb.Message) error {
	if len(response.GetContext()) == 0 {
		return nil
	}
	if number, ok := requestNumber(response); !ok || number > r.asked {
		return refuse("confirms request %x of %d", response.GetContext(), r.asked)
	}
	return nil
}

func requestNumber(m *raftpb.Message) (number uint64, ok bool) {
	if len(m.GetContext()) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(m.GetContext()), true
}

// receiveReadRequest passes a peer's request to raft. A follower drops it, as raft would
// forward it in its sender's name; the sender retries.
func (r *reads) receiveReadRequest(m *raftpb.Message) {
	switch {
	case !r.self.isLeader():
	case r.answersReads():
		r.self.step(m)
	case r.self.isMember(m.GetFrom()):
		same := func(other *raftpb.Message) bool { return other.GetFrom() == m.GetFrom() }
		r.early = append(slices.DeleteFunc(r.early, same), m) // a member waits for its latest only
	}
}

// answerEarly answers the requests that came before this leader could.
func (r *reads) answerEarly() {
	for _, m := range r.early {
		r.self.step(m)
	}
	r.early = nil
}
