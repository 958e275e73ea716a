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

// Sessions come and go with what they hold, given back by some and left to the
// close by others; calls are cancelled at random moments, outcomes are lost,
// commands arrive twice, and leadership moves. There are never more permits out
// than the limit or two leaders, and in the end nothing is left of anything.
func TestSessionsComeAndGo(t *testing.T) {
	g := Start(t, 3, FaultyNetwork)
	ctx, stop := context.WithCancel(Within(t, 100*time.Second))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	var shared visited
	for i := range 9 {
		v := visitor{t: t, node: g.Nodes[i%3], random: rand.New(rand.NewPCG(1, uint64(i))), shared: &shared}
		users.Go(func() {
			for range 30 {
				v.visit(ctx)
			}
		})
	}
	users.Wait()
	stop()
	moving.Wait()
	if shared.leaders.Load() == 0 || shared.permitted.Load() == 0 {
		t.Fatal("nobody has got anything")
	}
	g.awaitNothing()
}

// awaitNothing blocks until there is no session: what was left is closed in the
// background. Then nothing else may be there either.
func (g *Group) awaitNothing() {
	g.T.Helper()
	ctx := Within(g.T, 20*time.Second)
	for _, n := range g.Nodes {
		MustLock(g.T, n.FencedLock(n.Status().Name)) // behind whatever this node has sent
	}
	for {
		list, err := Collect(g.Nodes[0].Sessions(ctx))
		if err != nil {
			g.T.Fatalf("%v; left behind: %+v", err, list)
		}
		if len(list) == len(g.Nodes) { // their own
			break
		}
	}
	if info := SemaphoreInfo(g.T, g.Nodes[0].Semaphore("x", visitors)); info.Available != visitors || info.Waiters != 0 {
		g.T.Errorf("left behind: %+v", info)
	}
	_, err := g.Nodes[0].Election("x").Leader(ctx)
	if !errors.Is(err, conclave.ErrNoLeader) {
		g.T.Errorf("left behind: %v", err)
	}
}

const visitors = 4 // permits there are

type visited struct {
	out, leading       atomic.Int64
	leaders, permitted atomic.Int64
}

type visitor struct {
	t      *testing.T
	node   *conclave.Node
	random *rand.Rand
	shared *visited
}

// patience is a context that may end soon.
func (v *visitor) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if v.random.IntN(3) > 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(v.random.IntN(20))*time.Millisecond)
}

func (v *visitor) visit(ctx context.Context) {
	short, cancel := v.patience(ctx)
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

// accept fails unless the error is that of a patience that has ended.
func (v *visitor) accept(ctx context.Context, err error) {
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		v.t.Error(err)
	}
}

func (v *visitor) takePermits(ctx context.Context, s *conclave.Session) {
	n := 1 + v.random.IntN(3)
	short, cancel := v.patience(ctx)
	defer cancel()
	p, err := s.Semaphore("x", visitors).Acquire(short, n)
	if err != nil {
		v.accept(ctx, err)
		return
	}
	v.shared.permitted.Add(1)
	if out := v.shared.out.Add(int64(n)); out > visitors {
		v.t.Errorf("%d permits of %d are out", out, visitors)
	}
	if err := s.Renew(ctx); err != nil { // takes a while, like work
		v.t.Error(err)
	}
	v.shared.out.Add(int64(-n))
	if v.random.IntN(2) == 0 {
		if err := p.Release(ctx); err != nil {
			v.t.Error(err)
		}
	}
}

func (v *visitor) lead(ctx context.Context, s *conclave.Session) {
	e := s.Election("x")
	short, cancel := v.patience(ctx)
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
