package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/client"
)

// shardWork is a shard that is assigned to this worker under a fence.
type shardWork struct {
	shard  int
	fence  Fence
	hold   *client.Hold
	ctx    context.Context // of the call of work
	cancel context.CancelCauseFunc

	running  bool      // work has not returned
	ended    bool      // its context
	released bool      // or about to be, though work has not returned
	due      time.Time // when its grace has passed; with ended
	next     *client.AssignedShard
}

// shardEnd is the return of a call of work, unless it died: by a panic with that value or, with nil, by the end of its goroutine.
type shardEnd struct {
	*shardWork
	err      error
	ordinary bool // err is none, or that of the context that had ended, or of the loss of the session
	died     bool
	value    any
}

// await has the work on a shard begin when that under an earlier fence has returned, unless it is to move until then.
func (r *shardRun) await(w *shardWork, s client.AssignedShard) {
	w.next = &s
	if s.Moving || r.ending != nil {
		w.next = nil
		r.give(&shardWork{shard: w.shard, fence: Fence(s.Fence)}, stopped)
	}
}

// begin begins the work on a shard, unless it is to move already.
func (r *shardRun) begin(s client.AssignedShard) {
	w := &shardWork{shard: int(s.Shard), fence: Fence(s.Fence)}
	if s.Moving || r.ending != nil {
		r.give(w, stopped)
		return
	}
	hold, err := r.worker.Begin(fmt.Sprintf("%s %d", r.shards.name, w.shard), s.Fence)
	if err != nil {
		return // the session has ended
	}
	w.hold, w.running = hold, true
	w.ctx, w.cancel = context.WithCancelCause(ContextWithFence(r.ctx, w.fence))
	r.put(w.shard, w)
	r.running++
	go r.call(w)
}

// call calls work.
func (r *shardRun) call(w *shardWork) {
	e := shardEnd{shardWork: w, died: true}
	defer func() {
		if e.died {
			e.value = recover()
		}
		r.returned <- e
	}()
	e.err = r.work(w.ctx, w.shard, w.fence)
	e.died = false
	// Methods of the error run here: one that blocks is a work that has not returned, and Run goes on.
	ended := cmp.Or(w.ctx.Err(), r.ctx.Err()) // Run's ends before
	// A work with a lock of the node may learn of the loss of the session before its own context ends.
	lost := r.worker.Err() != nil && isError(e.err, ErrLockOwnershipLost)
	e.ordinary = e.err == nil || lost || ended != nil && (isError(e.err, ended) || isError(e.err, context.Cause(w.ctx)))
}

// workReturned notes the end of a call of work.
func (r *shardRun) workReturned(e shardEnd) {
	w := e.shardWork
	r.interrupt()
	ended := w.ctx.Err()
	w.cancel(nil)
	switch {
	case e.died:
		r.end(shardRunEnd{cause: errWorkDied, died: true, value: e.value})
	case !e.ordinary:
		r.end(shardRunEnd{cause: e.err, err: e.err})
	}
	r.running--
	w.running = false
	if ended == nil && r.ending == nil {
		return // the shard stays
	}
	if !w.released {
		r.give(w, stopped)
	}
	if r.put(w.shard, nil); w.next != nil {
		r.assigned([]client.AssignedShard{*w.next})
	}
}

// isError is errors.Is for an error of a work. That panics if its methods do, or if what is in both errors cannot be compared.
func isError(err, target error) (is bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, target)
}

// isSame reports whether two errors are one. It calls no method of theirs.
func isSame(err, other error) (is bool) {
	defer func() { _ = recover() }() // they cannot be compared
	return err == other
}

// put notes what this process has of a shard; nil: nothing.
func (r *shardRun) put(shard int, w *shardWork) {
	here := &r.shards.group.client.Metrics().Shards
	switch had := r.own[shard] != nil; {
	case w != nil && !had:
		here.Add(1)
	case w == nil && had:
		here.Add(-1)
	}
	r.own[shard] = w
}

// stop ends the context of a work, or releases a shard whose work has returned.
func (r *shardRun) stop(w *shardWork, cause error) {
	if cause == ErrShardMoved && !w.ended {
		r.shards.group.client.Metrics().ShardsMoved.Add(1)
	}
	switch {
	case !w.running:
		r.give(w, stopped)
		r.put(w.shard, nil)
	case !w.ended:
		w.ended = true
		w.cancel(cause)
		if w.due = time.Now().Add(r.shards.grace); len(r.graces) == 0 {
			r.timer.Reset(r.shards.grace)
		}
		r.graces = append(r.graces, w)
	}
}

// gracePassed releases shards whose work has not returned in time. All have the same time, so the first that ended are the first here.
func (r *shardRun) gracePassed() {
	now := time.Now()
	for len(r.graces) > 0 && !r.graces[0].due.After(now) {
		w := r.graces[0]
		r.graces = r.graces[1:]
		if w.running && !w.released {
			w.released = true
			r.shards.group.client.Metrics().ShardsOverdue.Add(1)
			r.give(w, stillRunning)
		}
	}
	if len(r.graces) > 0 {
		r.timer.Reset(time.Until(r.graces[0].due))
	}
}

// give notes that a shard is to be released.
func (r *shardRun) give(w *shardWork, how int) {
	r.floor[w.shard] = max(r.floor[w.shard], w.fence)
	if w.hold != nil {
		r.worker.Done(w.hold)
	}
	if !r.lost {
		r.owed[how] = append(r.owed[how], client.AssignedShard{Shard: uint32(w.shard), Fence: uint64(w.fence)})
	}
}
