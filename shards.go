package conclave

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Shards is a set of shards: parts of a work, numbered from 0, that the group assigns to the processes which call [Shards.Run]. A
// shard has one owner at most, like a lock, with a fence for each ownership, which is larger than all before.
//
// Each process gets a share in proportion to its [Capacity]: rounded down or up, so with equal capacities the shares differ by one
// shard at most. When one joins or leaves, only the surplus moves, and the other shards go on. A move is orderly: the owner ends its
// work first, see Run.
//
// A process whose session ends, because it crashed, was closed or restarted, keeps its shards for the time of [Settle]: they wait
// for a process of the same name, Config.Name or that of the [Session], which gets them back at once. So a rolling restart moves
// nothing.
//
// A set has one count of shards, as long as any process works on it: see [Shards.Resize]. A Shards is no owner: each call of Run is
// a worker of its own, on one handle as on two. An idle Shards costs nothing and need not be closed. Sets of shards have names of
// their own, apart from those of locks and jobs. All methods are safe for concurrent use.
type Shards struct {
	group    *Group
	lease    *client.Lease // nil: the node's own
	name     string
	count    int
	bad      error // what is wrong with the name, the count or an option
	capacity uint32
	settle   time.Duration
	grace    time.Duration
}

// ShardsOption configures a [Shards]. It applies to what this handle requests.
type ShardsOption interface{ applyShards(*Shards) }

type shardsOption func(*Shards)

func (f shardsOption) applyShards(s *Shards) { f(s) }

const (
	maxSettle = time.Duration(machine.MaxSettle)
	maxGrace  = 24 * time.Hour

	defaultSettle = 30 * time.Second
	defaultGrace  = 10 * time.Second
)

// Capacity has the group assign shards to this process in proportion to weight, 1 to 1,024. The default is 1.
func Capacity(weight int) ShardsOption {
	return shardsOption(func(s *Shards) {
		if weight < 1 || weight > machine.MaxCapacity {
			s.bad = fmt.Errorf("%w capacity: want 1 to %d, got %d", ErrInvalid, machine.MaxCapacity, weight)
			return
		}
		s.capacity = uint32(weight)
	})
}

// Settle is for how long the shards of this process wait for another one of its name after its session has ended, 1 ms to 24 h by
// group time. Then they go to others. 0 is not at all, and the default is 30 s. The session's lock-delay is waited for in any case.
// Shards that a process gives away, as Run does when it returns, do not wait.
func Settle(d time.Duration) ShardsOption {
	return shardsOption(func(s *Shards) {
		if d != 0 && d < minDuration || d > maxSettle {
			s.bad = fmt.Errorf("%w time to settle: want 0 (not at all) or %v to %v, got %v", ErrInvalid, minDuration, maxSettle, d)
			return
		}
		s.settle = d
	})
}

// Grace is for how long the work on a shard may go on after its context has ended for a move, 1 ms to 24 h. Then this process
// releases the shard all the same, with the session's lock-delay, and the next owner may work beside what has not returned: only
// the resource can refuse that, by the fence. 0 is not at all, and the default is 10 s.
//
// This process keeps the time. If it is paused, the shard stays with it until its session ends.
func Grace(d time.Duration) ShardsOption {
	return shardsOption(func(s *Shards) {
		if d != 0 && d < minDuration || d > maxGrace {
			s.bad = fmt.Errorf("%w grace: want 0 (not at all) or %v to %v, got %v", ErrInvalid, minDuration, maxGrace, d)
			return
		}
		s.grace = d
	})
}

// Shards returns a handle to the set of shards of that name, 1 to 512 bytes of UTF-8 without NUL, which has count shards, 1 to
// 4,096. It does not block; an invalid name, count or option is reported when the handle is used, as ErrInvalid or ErrTooLarge.
//
// Shards are owned under the node's own session, which has the TTL Config.SessionTTL and no lock-delay. While a member of the
// group runs a build that does not know shards, Run and Resize fail with ErrUpgradeRequired.
func (g *Group) Shards(name string, count int, opts ...ShardsOption) *Shards {
	return newShards(g, nil, name, count, opts)
}

// Shards returns a handle to the set of shards of that name, like [Group.Shards], whose shards are owned under this session, with
// its lock-delay. Once the session has ended, Run fails with ErrSessionExpired.
func (s *Session) Shards(name string, count int, opts ...ShardsOption) *Shards {
	return newShards(s.group, s.lease, name, count, opts)
}

func newShards(g *Group, lease *client.Lease, name string, count int, opts []ShardsOption) *Shards {
	s := &Shards{group: g, lease: lease, name: name, count: count, capacity: 1, settle: defaultSettle, grace: defaultGrace}
	for _, o := range opts {
		o.applyShards(s)
	}
	if count < 1 || count > machine.MaxShards {
		s.bad = fmt.Errorf("%w count of shards: want 1 to %d, got %d", ErrInvalid, machine.MaxShards, count)
	}
	if err := validName(name); err != nil {
		s.bad = err
	}
	return s
}

// Run joins the set, calls work for each shard that the group assigns to this process, and leaves when ctx is done. Each call of work
// has a goroutine of its own. Run blocks until all of them have returned.
//
// The context passed to work carries the fence as well ([FenceFromContext]). It ends
//
//   - when ctx does, with its cause;
//   - with the cause ErrShardMoved, when the shard is to move to another process, because that has joined or the count changes. Work
//     should then stop and return, within [Grace]: the next owner is not granted the shard before;
//   - with the cause ErrLockOwnershipLost, when the session has ended. Another owner may have the shard by then, so work should stop
//     at once and must not touch what the shard stands for;
//   - when Run ends otherwise, with the error that Run returns as the cause.
//
// When work returns after that, the shard is released. If work returns nil before, the shard stays with this process, and work is not
// called again for it before another fence is granted. An error before, or one that is not that of the context, ends Run. Not so
// ErrLockOwnershipLost once the session is lost, which a lock of the same node may report before the context ends. A shard whose
// work goes on behind Grace may come back to this process: work is called for it again when the earlier call has returned.
//
// When the session is lost, Run waits until work has returned for all shards, and joins again under the node's next session. For a
// Shards of a session it returns ErrSessionExpired.
//
// Run never returns nil. Where it ends for one of these, the works' contexts end, each shard is released when its work has returned or Grace
// has passed, and Run waits for that: for the works, however long they take, and then for the group, at most until the
// session's deadline if it has one.
//
//   - ctx is done: ctx's error, joined with those of works that had another one;
//   - a work has failed: its error as it is. One that panics or ends its goroutine has Run panic, or end its own goroutine, in the same way;
//   - the count of the set is another one, or was changed: ErrLimitMismatch. The error names it, unless the set has ended since;
//   - the group refuses that this process joins: ErrBusy with too many sets, shards, workers or calls; ErrSessionExpired for a Shards of a
//     session that has ended; ErrUpgradeRequired; ErrTooLarge and ErrInvalid for the name, the count or an option; ErrClosed. With ctx's
//     error, ErrUnavailable if no quorum was reachable. ErrBusy also if too many reads, or streams of a client, are under way.
//
// What is not promised: an owner can be paused at any moment, or not react to the end of its context, and act when another owner has
// the shard already. Only the resource can refuse that: send it the fence. And a work that never returns keeps Run from returning,
// and, after a loss of the session, from joining again.
func (s *Shards) Run(ctx context.Context, work func(ctx context.Context, shard int, f Fence) error) error {
	if s.bad != nil {
		return fault("run", s.name, s.bad)
	}
	for {
		worker, err := s.join(ctx)
		if err != nil {
			return fault("run", s.name, withContextError(ctx, err))
		}
		r := newShardRun(ctx, s, worker, work)
		r.loop()
		if again, err := r.result(); !again {
			return err
		}
	}
}

// join makes a worker.
func (s *Shards) join(ctx context.Context) (*client.ShardWorker, error) {
	began, span := s.group.calls.begin(), s.span(ctx, CallJoinShards, "join shards")
	worker, err := client.JoinShards(ctx, s.group.client, client.ShardWorkerConfig{
		Lease: s.lease, Set: s.name, Count: uint32(s.count), Capacity: s.capacity, Settle: s.settle,
	})
	if err == nil {
		span.granted(0, joinedWorker{worker})
	}
	err = s.explain(err)
	span.end(err)
	s.group.calls.returned(CallJoinShards, began, err)
	return worker, err
}

// joinedWorker is the grant of a join.
type joinedWorker struct{ *client.ShardWorker }

// giveUp implements grant.
func (w joinedWorker) giveUp() { w.Quit() }

// explain makes the error of another count.
func (s *Shards) explain(err error) error {
	var f *client.Fault
	if errors.As(err, &f) && f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_LIMIT_MISMATCH {
		return s.otherCount(f.Reply.GetLimit())
	}
	return err
}

func (s *Shards) otherCount(count uint32) error {
	return fmt.Errorf("%w: the set has %d shards, and not %d: use that count, or change it with Resize", ErrLimitMismatch, count, s.count)
}

// ended is the error of a change of the count when the set has ended since.
func (s *Shards) ended() error {
	return fmt.Errorf("%w: the count was changed from %d, and no process works on the set any more", ErrLimitMismatch, s.count)
}

func (s *Shards) span(ctx context.Context, kind CallKind, op string) *span {
	t := &s.group.tracing
	if !t.on() {
		return nil
	}
	return t.begin(ctx, Operation{Kind: kind, Op: op, Name: s.name})
}

// Resize makes the count of this handle that of the set. Every worker of the former count ends its work, as for a move, and its Run
// returns ErrLimitMismatch; those of the new count can join at once. Their shards are assigned when no shard is owned or
// in a lock-delay under the former count. So a work of the former count has returned by then, or its [Grace] has passed. One that
// ignores the end of its context can run beside works of the new count: only the resource can refuse it, by the fence.
//
// If no process works on the set, the first one that joins determines the count, and Resize changes none. If all of them have ended,
// it gives up what is reserved for their return, and until their lock-delays have passed only workers of this handle's count can join.
//
// It blocks until the group has agreed to begin the change, and not for its end. If the count is that of the handle already,
// or changes to it, nothing happens. Errors: ErrBusy while another change is under way, or with too many shards or calls; ErrUpgradeRequired;
// ErrTooLarge and ErrInvalid for the name or the count; ErrClosed; and ctx's with ErrUnavailable or ErrUnknown.
func (s *Shards) Resize(ctx context.Context) error {
	err := s.bad
	if err == nil {
		err = client.ResizeShards(ctx, s.group.client, s.name, uint32(s.count))
	}
	return fault("resize", s.name, err)
}
