package grouptest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Sessions open, hold and close, some without a release, while calls are cancelled at
// random moments, outcomes are lost, commands arrive twice, and leadership moves.
// There are never more permits than the limit nor two leaders, and nothing remains.
func TestSession_Stress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	ctx, stop := context.WithCancel(Bounded(t))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	var shared totals
	for i := range 9 {
		v := user{t: t, node: g.Nodes[i%3], random: rand.New(rand.NewPCG(1, uint64(i))), shared: &shared}
		users.Go(func() {
			for range 30 {
				v.use(ctx)
			}
		})
	}
	users.Wait()
	stop()
	moving.Wait()
	if shared.leaders.Load() == 0 || shared.permitted.Load() == 0 {
		t.Fatal("nothing was acquired")
	}
	g.awaitNothing()
}

// awaitNothing blocks until there is no session but the nodes' own, as some are closed
// in the background, and checks that nothing is held then.
func (g *Group) awaitNothing() {
	g.T.Helper()
	ctx := Bounded(g.T)
	for _, n := range g.Nodes {
		MustLock(g.T, n.FencedLock(n.Status().Name)) // after whatever this node has sent
	}
	for {
		list, err := Collect(g.Nodes[0].Sessions(ctx))
		if err != nil {
			g.T.Fatalf("%v; still there: %+v", err, list)
		}
		if len(list) == len(g.Nodes) { // the nodes' own
			break
		}
		Pass(5 * time.Millisecond)
	}
	if info := SemaphoreInfo(g.T, g.Nodes[0].Semaphore("x", permits)); info.Available != permits || info.Waiters != 0 {
		g.T.Errorf("still there: %+v", info)
	}
	_, err := g.Nodes[0].Election("x").Leader(ctx)
	if !errors.Is(err, conclave.ErrNoLeader) {
		g.T.Errorf("still there: %v", err)
	}
}

const permits = 4

type totals struct {
	out, leading       atomic.Int64
	leaders, permitted atomic.Int64
}

type user struct {
	t      *testing.T
	node   *conclave.Node
	random *rand.Rand
	shared *totals
}

// hurried returns a context that may end soon.
func (v *user) hurried(ctx context.Context) (context.Context, context.CancelFunc) {
	if v.random.IntN(3) > 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(v.random.IntN(20))*time.Millisecond)
}

func (v *user) use(ctx context.Context) {
	short, cancel := v.hurried(ctx)
	s, err := v.node.NewSession(short, &conclave.SessionConfig{LockDelay: conclave.NoLockDelay, NoChecks: true})
	cancel()
	if err != nil {
		v.accept(ctx, err)
		return
	}
	v.takePermits(ctx, s)
	v.lead(ctx, s)
	if err := s.Close(ctx); err != nil {
		v.t.Error(err)
	}
}

// accept checks that the error is that of a hurried context.
func (v *user) accept(ctx context.Context, err error) {
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		v.t.Error(err)
	}
}

func (v *user) takePermits(ctx context.Context, s *conclave.Session) {
	n := 1 + v.random.IntN(3)
	short, cancel := v.hurried(ctx)
	defer cancel()
	p, err := s.Semaphore("x", permits).Acquire(short, n)
	if err != nil {
		v.accept(ctx, err)
		return
	}
	v.shared.permitted.Add(1)
	if out := v.shared.out.Add(int64(n)); out > permits {
		v.t.Errorf("%d permits of %d are held", out, permits)
	}
	if err := s.Renew(ctx); err != nil { // takes some time
		v.t.Error(err)
	}
	v.shared.out.Add(int64(-n))
	if v.random.IntN(2) == 0 {
		if err := p.Release(ctx); err != nil {
			v.t.Error(err)
		}
	}
}

func (v *user) lead(ctx context.Context, s *conclave.Session) {
	e := s.Election("x")
	short, cancel := v.hurried(ctx)
	defer cancel()
	if _, err := e.Campaign(short, nil); err != nil {
		v.accept(ctx, err)
		return
	}
	v.shared.leaders.Add(1)
	if v.shared.leading.Add(1) != 1 {
		v.t.Error("two leaders")
	}
	if err := e.Proclaim(ctx, []byte("still")); err != nil {
		v.t.Error(err)
	}
	v.shared.leading.Add(-1)
	if v.random.IntN(2) == 0 {
		if err := e.Resign(ctx); err != nil {
			v.t.Error(err)
		}
	}
}
