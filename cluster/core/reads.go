package core

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// maxReads bounds the reads that wait for the leader's confirmation.
const maxReads = 16384

// Read is a linearizable read: it runs on the loop's goroutine once the state
// is at least as new as everything that was acknowledged before it was asked
// for.
type Read interface {
	Run(Machine)
	Ended() bool // its caller has given up; it need not run
}

// reads batches linearizable reads behind ReadIndex requests, one at a time.
// A request's context is used once and never again: a late answer to an
// earlier attempt would let a read see a state older than its own beginning
// (etcd#20418).
type reads struct {
	incarnation wire.ID // leads the context: the leader keeps those of all members in one table
	attempt     uint64
	inFlight    []Read // confirmed by the request under way
	sentAt      uint64 // tick at which that was sent
	waiting     []Read // came later and need a later request
	ready       []read // confirmed; run when applied
}

type read struct {
	index uint64
	reads []Read
}

func (r *reads) len() int { return len(r.inFlight) + len(r.waiting) }

// next returns the context of a request to send now, or nil. A request without an
// answer is given up in time, as raft drops requests silently.
func (r *reads) next(tick, patience uint64) []byte {
	lost := len(r.inFlight) > 0 && tick >= r.sentAt+patience
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

// prune drops the reads whose callers have given up.
func (r *reads) prune() {
	r.inFlight = slices.DeleteFunc(r.inFlight, Read.Ended)
	r.waiting = slices.DeleteFunc(r.waiting, Read.Ended)
}

// retry gives the request under way up: another member leads.
func (r *reads) retry() {
	r.waiting, r.inFlight = append(r.inFlight, r.waiting...), nil
}

// confirmed takes raft's answer.
func (r *reads) confirmed(context []byte, index uint64) {
	if len(r.inFlight) == 0 || !bytes.Equal(context, r.context()) {
		return
	}
	r.ready = append(r.ready, read{index, r.inFlight})
	r.inFlight = nil
}

// applied takes the reads that may run at the applied index.
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
