package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// ShardWorker is a worker of a set of shards: the group assigns shards to it, from JoinShards until it leaves or its lease
// ends. Which those are, Follow reports.
type ShardWorker struct {
	client *Client
	lease  *Lease
	set    string
	number uint64 // random: it distinguishes the handles of one session, also those of processes that have it one after the other
}

// ShardWorkerConfig describes a worker.
type ShardWorkerConfig struct {
	Lease    *Lease // nil: the client's own, which is opened when it is needed
	Set      string
	Count    uint32 // of the shards of the set
	Capacity uint32 // its share is in proportion
	Settle   time.Duration
}

// JoinShards makes a new worker. It blocks until the group has agreed. An error says that there is none: if ctx was done
// first, one that has joined leaves in the background.
//
// Under the client's own lease it joins under the next one if that lease ends.
func JoinShards(ctx context.Context, c *Client, cfg ShardWorkerConfig) (*ShardWorker, error) {
	if c.group.Level() < wire.LevelShards {
		return nil, belowLevel("knows shards")
	}
	for {
		if ctx.Err() != nil {
			return nil, contextFault(Interrupted, ctx)
		}
		if err := c.Usable(); err != nil {
			return nil, err
		}
		lease, err := c.leaseFor(ctx, cfg.Lease)
		if err != nil {
			return nil, err
		}
		lease.worked.Store(true)
		w := &ShardWorker{client: c, lease: lease, set: cfg.Set, number: rand.Uint64()}
		err = w.join(ctx, cfg)
		switch {
		case err == nil:
			return w, nil
		case errors.Is(err, errUnknownSession):
			lease.end(endedByGroup(), lost)
		case errors.Is(err, errLeaseEnded): // leaseFor returns why, or the next lease
		default:
			return nil, err
		}
	}
}

// join submits the command and waits for its outcome. A worker of which no caller learns leaves when the outcome comes:
// a command to leave that is submitted earlier could be applied before the one to join.
func (w *ShardWorker) join(ctx context.Context, cfg ShardWorkerConfig) error {
	var (
		mu        sync.Mutex
		abandoned bool
		answered  *answer
	)
	joining, stop := WithLoss(ctx, w.lease.done, leaseEnded) // nothing is left to join under
	defer stop()
	_, err := w.client.send(joining, w.joinCommand(cfg), func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		if answered = &a; abandoned && a.err == nil && refusal(a.reply) == nil {
			w.Quit()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	switch abandoned = answered == nil; {
	case abandoned && ctx.Err() == nil && w.lease.Err() != nil:
		return errLeaseEnded
	case abandoned && IsKind(err, Unknown): // it does not matter whether it joins, as it leaves then
		return contextFault(Interrupted, ctx)
	case abandoned:
		return err
	case answered.expired(), isCode(answered.fault(), wire.Code_SESSION_EXPIRED):
		return errUnknownSession
	}
	return answered.fault() // also if the group cannot be reached any more: with this process its session ends
}

func (w *ShardWorker) joinCommand(cfg ShardWorkerConfig) *wire.Command {
	return &wire.Command{Op: &wire.Command_JoinShards{JoinShards: &wire.JoinShards{
		Set: w.set, Count: cfg.Count, Session: w.lease.id[:], Handle: w.number, Capacity: cfg.Capacity, Settle: int64(cfg.Settle),
	}}}
}

// Is reports whether a worker that the group names is this one.
func (w *ShardWorker) Is(session wire.ID, handle uint64) bool {
	return session == w.lease.id && handle == w.number
}

// Lost is closed when the lease has ended, and with it what the worker has.
func (w *ShardWorker) Lost() <-chan struct{} { return w.lease.done }

// Err returns why the lease has ended; nil while it is live. It reads the clock.
func (w *ShardWorker) Err() error { return w.lease.Err() }

// Begin notes that this process works on a shard, which is granted to the worker: until Release, the loss of the lease is that
// of the shard as well. name is for people. An error says that the lease has ended.
func (w *ShardWorker) Begin(name string, fence uint64) (*Hold, error) {
	h := newHold(name, w.lease, grant{fence: fence})
	return h, w.lease.add(h)
}

// Done undoes Begin: the shard is released, or is about to be.
func (w *ShardWorker) Done(h *Hold) { w.lease.remove(h) }

// AssignedShard is a shard that a worker may work on, or with Moving is to release.
type AssignedShard struct {
	Shard  uint32
	Fence  uint64
	Moving bool
}

// ShardShare is what a worker has in a state of its set.
type ShardShare struct {
	Present bool // it is a worker of the set
	Leaving bool // no more shards are assigned to it
	Shards  []AssignedShard
}

// Share returns what the worker has; nil: there is no such set.
func (w *ShardWorker) Share(v *machine.ShardsView) (s ShardShare) {
	if v == nil {
		return s
	}
	i := slices.IndexFunc(v.Workers, func(o machine.ShardWorkerView) bool { return w.Is(o.Session, o.Handle) && !o.Left })
	if i < 0 {
		return s
	}
	s.Present, s.Leaving = true, v.Workers[i].Leaving
	for n, sh := range v.Shards {
		if sh.Worker == v.Workers[i].Number && sh.Fence != 0 {
			s.Shards = append(s.Shards, AssignedShard{uint32(n), sh.Fence, sh.Moving})
		}
	}
	return s
}

// Release releases shards. With stillRunning the work on them may go on, and the session's lock-delay follows. It blocks
// until the group has agreed, or the lease has ended; it is pursued in any case.
func (w *ShardWorker) Release(shards []AssignedShard, stillRunning bool) error {
	for part := range slices.Chunk(shards, machine.MaxReleasedShards) {
		release := &wire.ReleaseShards{Set: w.set, Session: w.lease.id[:], Handle: w.number, Lost: stillRunning}
		for _, s := range part {
			release.Shards, release.Fences = append(release.Shards, s.Shard), append(release.Fences, s.Fence)
		}
		if err := w.settled(w.pursue(&wire.Command{Op: &wire.Command_ReleaseShards{ReleaseShards: release}})); err != nil {
			return err
		}
	}
	return nil
}

// Leave has the group assign no more shards to the worker. It does not block: what is released later does not come back. left
// returns the shards that the worker is to release. It blocks as Release does.
func (w *ShardWorker) Leave() (left func() ([]AssignedShard, error)) {
	leave := w.pursue(&wire.Command{Op: &wire.Command_LeaveShards{LeaveShards: &wire.LeaveShards{
		Set: w.set, Session: w.lease.id[:], Handle: w.number,
	}}})
	return func() ([]AssignedShard, error) {
		if err := w.settled(leave); err != nil {
			return nil, err
		}
		return w.remaining()
	}
}

// remaining asks the group for the shards of a worker that has left.
func (w *ShardWorker) remaining() ([]AssignedShard, error) {
	asking, stop := WithLoss(context.Background(), w.lease.done, leaseEnded)
	defer stop()
	for pause := minBusyPause; ; pause = min(2*pause, maxBusyPause) {
		v, err := Ask[*machine.ShardsView](asking, w.client, machine.ShardsQuery{Name: w.set}, QueryOptions{})
		if err == nil {
			return w.Share(v).Shards, nil
		}
		select { // too many reads are under way
		case <-time.After(pause/2 + rand.N(pause)):
		case <-asking.Done():
			return nil, &Fault{Kind: Lost}
		}
	}
}

// Quit has the worker leave in the background, and release what it has. Nothing works on that.
func (w *ShardWorker) Quit() {
	w.client.requests.start(func() {
		if shards, err := w.Leave()(); err == nil {
			_ = w.Release(shards, false) // else the lease has ended
		}
	})
}

// pursue submits a command, and returns what gets its outcome.
func (w *ShardWorker) pursue(cmd *wire.Command) <-chan answer {
	answered := make(chan answer, 1)
	w.client.pursue(cmd, func(a answer) { answered <- a })
	return answered
}

// settled waits for the outcome of a command. A worker that the group does not know any more has nothing.
func (w *ShardWorker) settled(answered <-chan answer) error {
	select {
	case a := <-answered:
		err := a.fault()
		switch {
		case a.expired(), isCode(err, wire.Code_SESSION_EXPIRED):
			return &Fault{Kind: Lost}
		case isCode(err, wire.Code_NOT_HELD):
			return nil
		}
		if a.err != nil {
			err = w.client.ended(err)
		}
		return err
	case <-w.lease.done:
		return &Fault{Kind: Lost}
	}
}

// ResizeShards begins a change of the count of a set of shards. It blocks until the group has decided.
func ResizeShards(ctx context.Context, c *Client, set string, count uint32) error {
	if c.group.Level() < wire.LevelShards {
		return belowLevel("knows shards")
	}
	_, err := c.Exec(ctx, &wire.Command{Op: &wire.Command_ResizeShards{ResizeShards: &wire.ResizeShards{Set: set, Count: count}}})
	return err
}

// Follow is [Group].FollowShards of the set of the worker.
func (w *ShardWorker) Follow(ctx context.Context, yield func(ShardsUpdate) bool) error {
	return w.client.ObserveShards(ctx, w.set, yield)
}
