package virtualtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

const (
	settle = 20 * time.Second
	grace  = 7 * time.Second
)

// shardEvent is the begin of a work or, with a cause, the end of its context.
type shardEvent struct {
	shard int
	at    time.Time
	cause error
}

// shardRun is a Run under way. Its works take so long once their contexts have ended.
type shardRun struct {
	began, ended chan shardEvent
	err          chan error
	stop         context.CancelFunc
}

func runShards(g *grouptest.Group, s *conclave.Shards, stopping time.Duration) shardRun {
	ctx, stop := context.WithCancel(g.T.Context())
	r := shardRun{make(chan shardEvent, 1000), make(chan shardEvent, 1000), make(chan error, 1), stop}
	go func() {
		defer close(r.err)
		r.err <- s.Run(ctx, func(ctx context.Context, shard int, _ conclave.Fence) error {
			r.began <- shardEvent{shard, time.Now(), nil}
			<-ctx.Done()
			r.ended <- shardEvent{shard, time.Now(), context.Cause(ctx)}
			pass(stopping)
			return ctx.Err()
		})
	}()
	return r
}

// shardWorkers are two sessions with a lock-delay, of nodes that do not lead, with two shards each.
type shardWorkers struct {
	*grouptest.Group
	first, second int
	session       *conclave.Session // of the first
	a, b          shardRun
}

func newShardWorkers(g *grouptest.Group, stopping time.Duration) *shardWorkers {
	others := g.Others(g.Leader())
	w := &shardWorkers{Group: g, first: others[0], second: others[1]}
	shards := func(i int) (*conclave.Session, *conclave.Shards) {
		s := grouptest.MustSession(g.T, g.Nodes[i], &conclave.SessionConfig{
			Name: g.Configs[i].Name, TTL: ttl, LockDelay: lockDelay, NoChecks: true,
		})
		return s, s.Shards("orders", 4, conclave.Settle(settle), conclave.Grace(grace))
	}
	session, set := shards(w.first)
	w.session, w.a = session, runShards(g, set, stopping)
	for range 4 {
		<-w.a.began
	}
	_, set = shards(w.second)
	w.b = runShards(g, set, stopping)
	return w
}

// moved waits until two shards have moved to the second worker.
func (w *shardWorkers) moved() (asked, began time.Time) {
	for range 2 {
		e := <-w.a.ended
		if e.cause != conclave.ErrShardMoved { //nolint:errorlint // as it is
			w.T.Errorf("a work ended with %v", e.cause)
		}
		asked, began = e.at, (<-w.b.began).at
	}
	return asked, began
}

func (w *shardWorkers) end() {
	w.a.stop()
	w.b.stop()
	<-w.a.err
	grouptest.WantError(w.T, <-w.b.err, context.Canceled)
}

// renew returns when a renewal of the first session was sent.
func (w *shardWorkers) renew() time.Time {
	grouptest.Must(w.T, w.session.Renew(grouptest.Within(w.T, election)))
	return time.Now()
}

// A worker is killed. Its shards go to the other when its session has ended and they have waited for one of its name.
func TestShards_WorkerKilled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		w := newShardWorkers(g, 0)
		w.moved()
		due := w.renew().Add(ttl + settle)
		g.Kill(w.first)
		for range 2 {
			wantBetween(g.T, "the work of the other", (<-w.b.began).at, due.Add(-heartbeat), due.Add(2*heartbeat))
		}
		w.end()
	})
}

// A worker starts again while its shards wait: it gets them back when the lock-delay has passed, and nothing moves.
func TestShards_WorkerRestarted(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		w := newShardWorkers(g, 0)
		w.moved()
		g.Kill(w.first)
		pass(time.Second)
		g.Start(w.first)
		ended := time.Now() // at the latest: the next process of the member has registered
		s := grouptest.MustSession(g.T, g.Nodes[w.first], &conclave.SessionConfig{
			Name: g.Configs[w.first].Name, TTL: ttl, LockDelay: lockDelay, NoChecks: true,
		})
		again := runShards(g, s.Shards("orders", 4, conclave.Settle(settle)), 0)
		for range 2 {
			wantBetween(g.T, "its work", (<-again.began).at, ended.Add(lockDelay/2), ended.Add(lockDelay+2*heartbeat))
		}
		pass(2 * settle)
		if len(w.b.began)+len(w.b.ended)+len(again.began) > 0 {
			g.T.Error("a shard has moved")
		}
		again.stop()
		grouptest.WantError(g.T, <-again.err, context.Canceled)
		w.end()
	})
}

// A worker that is partitioned ends its work by its own clock, before its shards go to the other.
func TestShards_WorkerPartitioned(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		w := newShardWorkers(g, 0)
		w.moved()
		renewed := w.renew()
		g.Net.Isolate(w.first)
		for range 2 {
			e := <-w.a.ended
			wantAt(g.T, "the loss", e.at, deadlineOf(renewed))
			if e.cause != conclave.ErrLockOwnershipLost { //nolint:errorlint // as it is
				g.T.Errorf("a work ended with %v", e.cause)
			}
		}
		if err := <-w.a.err; !errors.Is(err, conclave.ErrSessionExpired) {
			g.T.Error(err)
		}
		wantAt(g.T, "the end of Run", time.Now(), deadlineOf(renewed))
		if len(w.b.began) > 0 {
			g.T.Error("the other has begun before the loss")
		}
		<-w.b.began
		<-w.b.began
		g.Net.Rejoin(w.first)
		w.end()
	})
}

// A work that stops within Grace keeps its shard so long. From one that does not the shard is taken, with the lock-delay of its session.
func TestShards_Grace(t *testing.T) {
	for name, c := range map[string]struct{ stopping, until time.Duration }{
		"in time": {grace - time.Second, grace - time.Second}, "too late": {5 * grace, grace + lockDelay},
	} {
		t.Run(name, func(t *testing.T) {
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				w := newShardWorkers(g, c.stopping)
				asked, began := w.moved()
				wantBetween(g.T, "the work of the other", began, asked.Add(c.until), asked.Add(c.until+2*heartbeat))
				w.end()
			})
		})
	}
}
