package conclave

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/client"
)

// shardRun is a Run under one session, from the time when its worker has joined. Run's goroutine has all of its state; the others
// send it what has happened, and have ended when loop returns.
type shardRun struct {
	shards *Shards
	ctx    context.Context // of Run
	worker *client.ShardWorker
	work   func(ctx context.Context, shard int, f Fence) error

	follow        context.Context
	stopFollowing context.CancelFunc
	routines      sync.WaitGroup
	updates       chan client.ShardsUpdate
	followed      chan error // takes one
	returned      chan shardEnd
	released      chan struct{}
	left          chan shardsLeft

	own         []*shardWork // by shard; nil: it is not assigned to this worker, or was released
	floor       []Fence      // by shard: the last one that was released. A late update may still show it
	running     int          // calls of work
	owed        [2][]client.AssignedShard
	busy        bool // a release is under way
	ending      *shardRunEnd
	interrupted bool // by ctx
	dropped     bool // the worker is none any more, and there is no such set
	quitted     bool // the worker has left, and what it had is known
	lost        bool // the session has ended
	graces      []*shardWork
	timer       *time.Timer // of the first of graces
}

// The lists of owed: of shards whose work has ended, and of those whose work may go on.
const (
	stopped = iota
	stillRunning
)

// shardRunEnd is why a run ends.
type shardRunEnd struct {
	cause error   // of the works' contexts
	err   error   // what Run returns; nil: it joins again
	more  []error // of works, joined with err
	died  bool
	value any // with died, as in shardEnd
}

// shardsLeft is what a worker that leaves still has. It is not live if its session has ended.
type shardsLeft struct {
	shards []client.AssignedShard
	live   bool
}

// add adds an error, unless it is there already. It calls no method of the errors, which may block.
func (e *shardRunEnd) add(err error) {
	switch {
	case err == nil, isSame(err, e.err), slices.ContainsFunc(e.more, func(other error) bool { return isSame(err, other) }):
	case e.err == nil:
		e.err = err
	default:
		e.more = append(e.more, err)
	}
}

func newShardRun(ctx context.Context, s *Shards, w *client.ShardWorker, work func(context.Context, int, Fence) error) *shardRun {
	r := &shardRun{
		shards: s, ctx: ctx, worker: w, work: work,
		updates: make(chan client.ShardsUpdate), followed: make(chan error, 1), returned: make(chan shardEnd),
		released: make(chan struct{}, 1), left: make(chan shardsLeft, 1),
		own: make([]*shardWork, s.count), floor: make([]Fence, s.count),
		timer: time.NewTimer(maxGrace),
	}
	r.timer.Stop()
	r.follow, r.stopFollowing = context.WithCancel(ctx)
	return r
}

// loop returns when nothing of the run is left: no work, no shard and no goroutine.
func (r *shardRun) loop() {
	r.routines.Go(r.followSet)
	defer r.routines.Wait()
	defer r.timer.Stop()
	done, lost := r.ctx.Done(), r.worker.Lost()
	for !r.isOver() {
		r.release()
		select {
		case <-lost:
			lost = nil
			r.lose()
		case <-done:
			done = nil
			r.interrupt()
		case u := <-r.updates:
			r.updated(u)
		case err := <-r.followed:
			r.followEnded(err)
		case e := <-r.returned:
			r.workReturned(e)
		case <-r.released:
			r.busy = false
		case left := <-r.left:
			r.quit(left)
		case <-r.timer.C:
			r.gracePassed()
		}
	}
	r.stopFollowing()
	for shard := range r.own { // after a loss, what has no work
		r.put(shard, nil)
	}
}

// interrupt ends the run when ctx is done. That is noticed before anything is released that would come back.
func (r *shardRun) interrupt() {
	if !r.interrupted && r.ctx.Err() != nil {
		r.interrupted = true
		r.end(shardRunEnd{cause: context.Cause(r.ctx), err: fault("run", r.shards.name, contextError(r.ctx))})
	}
}

// isOver reports whether nothing of the run is left.
func (r *shardRun) isOver() bool {
	if r.ending == nil || r.running > 0 {
		return false
	}
	return r.lost || r.quitted && !r.busy && len(r.owed[stopped])+len(r.owed[stillRunning]) == 0
}

// result returns what Run is to return, or whether it is to join again. It does not return if a work has died.
func (r *shardRun) result() (again bool, err error) {
	switch e := r.ending; {
	case e.died && e.value == nil:
		runtime.Goexit()
	case e.died:
		panic(e.value)
	case len(e.more) > 0:
		return false, errors.Join(append([]error{e.err}, e.more...)...)
	case e.err == nil && r.ctx.Err() == nil:
		return true, nil
	case e.err == nil:
		return false, fault("run", r.shards.name, contextError(r.ctx))
	}
	return false, r.ending.err
}

// followSet sends what becomes of the set. When too many reads are under way later than at the begin, it waits and begins again:
// the works go on meanwhile.
func (r *shardRun) followSet() {
	const least, most = 100 * time.Millisecond, 2 * time.Second
	begun, pause := false, least
	for {
		err := r.worker.Follow(r.follow, func(u client.ShardsUpdate) bool {
			begun, pause = true, least
			select {
			case r.updates <- u:
			case <-r.follow.Done():
			}
			return r.follow.Err() == nil
		})
		if r.follow.Err() != nil {
			return
		}
		if !begun || !errors.Is(convert(err), ErrBusy) {
			r.followed <- err
			return
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, most)
		case <-r.follow.Done():
			return
		}
	}
}

// followEnded ends the run since the set cannot be followed any more. It does not if the node or client is closed: then the session
// has ended, or is about to, and the shards are lost with it. Given away, they would not wait for the next process of this name.
func (r *shardRun) followEnded(err error) {
	if r.worker.Err() != nil || client.IsKind(err, client.Closed) {
		return
	}
	err = fault("run", r.shards.name, err)
	r.end(shardRunEnd{cause: err, err: err})
}

// updated notes what has become of the set.
func (r *shardRun) updated(u client.ShardsUpdate) {
	if c := u.Change; c != nil {
		if c.Fence != 0 && r.worker.Is(c.Session, c.Handle) {
			r.assigned([]client.AssignedShard{{Shard: c.Shard, Fence: c.Fence, Moving: c.Moving}})
		}
		return
	}
	share := r.worker.Share(u.View)
	r.assigned(share.Shards)
	if share.Present && !share.Leaving || r.ending != nil {
		return
	}
	if u.View != nil && countOf(u.View) != uint32(r.shards.count) {
		r.end(shardRunEnd{cause: ErrShardMoved, err: fault("run", r.shards.name, r.shards.otherCount(countOf(u.View)))})
		return
	}
	// The group has ended the session, of which this process is about to learn, or the count was changed: to and fro, or the set has
	// ended since.
	r.dropped = u.View == nil
	r.end(shardRunEnd{cause: ErrLockOwnershipLost})
}

// assigned notes shards that this worker owns.
func (r *shardRun) assigned(shards []client.AssignedShard) {
	for _, s := range shards {
		if int(s.Shard) >= len(r.own) {
			continue
		}
		switch w := r.own[s.Shard]; {
		case Fence(s.Fence) <= r.floor[s.Shard]:
		case w == nil:
			r.begin(s)
		case Fence(s.Fence) > w.fence && w.running:
			r.await(w, s)
		case Fence(s.Fence) > w.fence:
			r.begin(s)
		case s.Moving:
			r.stop(w, ErrShardMoved)
		}
	}
}

// errWorkDied is the cause with which contexts end when the work of another shard has panicked.
var errWorkDied = errors.New("the work of another shard has panicked, or ended its goroutine")

// end begins the end of the run, or adds to it what else goes wrong.
func (r *shardRun) end(e shardRunEnd) {
	if is := r.ending; is != nil {
		if e.died && !is.died {
			is.died, is.value = true, e.value
		}
		is.add(e.err)
		return
	}
	r.ending = &e
	r.stopFollowing()
	for _, w := range r.own {
		if w == nil {
			continue
		}
		if r.stop(w, e.cause); w.next != nil {
			r.await(w, *w.next)
		}
	}
	if !r.lost {
		r.leave()
	}
}

// leave has the worker leave, and r.left gets what it still has: an update of that may not have come.
func (r *shardRun) leave() {
	left := r.worker.Leave()
	r.routines.Go(func() {
		shards, err := left() // else the session has ended
		r.left <- shardsLeft{shards, err == nil}
	})
}

// quit notes that the worker has left. While the session lives, nothing but a change of the count drops a worker that has not left.
func (r *shardRun) quit(left shardsLeft) {
	r.quitted = true
	if r.dropped && left.live {
		r.ending.add(fault("run", r.shards.name, r.shards.ended()))
	}
	r.assigned(left.shards)
}

// lose ends the run because the session has ended: there is nothing to release.
func (r *shardRun) lose() {
	r.lost, r.owed, r.graces = true, [2][]client.AssignedShard{}, nil
	r.timer.Stop()
	for _, w := range r.own {
		if w != nil && w.running && !w.ended {
			w.ended = true
			w.cancel(ErrLockOwnershipLost)
		}
	}
	r.end(shardRunEnd{cause: ErrLockOwnershipLost})
}

// release releases what is owed, in one command at a time.
func (r *shardRun) release() {
	for how, shards := range r.owed {
		if !r.busy && len(shards) > 0 {
			r.busy, r.owed[how] = true, nil
			r.routines.Go(func() { r.releaseShards(shards, how == stillRunning) })
		}
	}
}

func (r *shardRun) releaseShards(shards []client.AssignedShard, still bool) {
	var err error
	submitted := false
	release := func() {
		if !submitted {
			submitted = true
			err = r.worker.Release(shards, still)
		}
	}
	defer func() {
		release() // also if the tracer ends the goroutine
		r.released <- struct{}{}
	}()
	ctx := context.WithoutCancel(r.ctx)
	began, span := r.shards.group.calls.begin(), r.shards.span(ctx, CallReleaseShards, "release shards")
	release()
	err = fault("release shards", r.shards.name, err)
	span.end(err)
	r.shards.group.calls.returned(CallReleaseShards, began, err)
}
