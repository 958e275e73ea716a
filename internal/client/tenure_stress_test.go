package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Handles of three sessions, with and without a time to linger, some shared by goroutines,
// acquire one lock with short contexts, while sessions are closed by force, the state is
// replaced and commands are held back. A holder that trusts its hold has the latest fence,
// each call ends, and in the end nothing is left in the group nor here. Calls are traced: what
// caused a grant is the release of the hold before it.
func TestTenure_Stress(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := newStress(t, uint64(seed))
			s.run()
			s.wantNothingLeft()
			if s.caused == 0 {
				t.Error("no grant has a cause")
			}
		})
		if t.Failed() {
			t.Fatalf("round %d", seed)
		}
	}
}

type stress struct {
	t      *testing.T
	client *Client
	group  *fakeGroup
	seed   uint64
	leases []*Lease
	latest atomic.Uint64 // fence
	mu     sync.Mutex
	held   []uint64 // guarded by mu; fences
	caused int      // guarded by mu; grants of which the cause is known
}

func newStress(t *testing.T, seed uint64) *stress {
	c, g, other := newLingering(t)
	raise(t, c, wire.LevelTrace)
	return &stress{t: t, client: c, group: g, seed: seed, leases: []*Lease{nil, other, mustOpen(t, c, time.Hour)}}
}

func (s *stress) run() {
	ctx, stop := context.WithTimeout(s.t.Context(), time.Second) // the fake group takes 32,768 commands
	defer stop()
	var users sync.WaitGroup
	for i := range 12 {
		linger := []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 50 * time.Millisecond}[i%4]
		l := lockOf(s.client, s.leases[i%3], linger, i%5 == 4)
		for j := range 1 + i%2 {
			users.Go(func() { s.use(ctx, l, rand.New(rand.NewPCG(s.seed, uint64(10*i+j)))) })
		}
	}
	users.Go(func() { s.disturb(ctx, rand.New(rand.NewPCG(s.seed, 1000))) })
	users.Wait()
}

// use acquires and releases until ctx ends.
func (s *stress) use(ctx context.Context, l *Lock, r *rand.Rand) {
	for ctx.Err() == nil {
		patience := time.Duration(r.IntN(2000)) * time.Microsecond
		if r.IntN(3) == 0 {
			patience = time.Minute
		}
		one, cancel := context.WithTimeout(ctx, patience)
		call := newTraced("")
		fence, err := l.Acquire(one, r.IntN(3) > 0, nil, &call.Trace)
		cancel()
		if err == nil {
			s.checkCause(fence, call)
			s.hold(l, fence, time.Duration(r.IntN(300))*time.Microsecond)
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
}

// checkCause checks that between the release that caused a grant and the grant no other handle
// had the lock, and that the request was queued.
func (s *stress) checkCause(fence uint64, call *traced) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, fence)
	if call.Cause == nil {
		return
	}
	s.caused++
	released, err := strconv.ParseUint(string(call.Cause), 10, 64)
	between := func(f uint64) bool { return released < f && f < fence }
	if err != nil || released >= fence || slices.ContainsFunc(s.held, between) || len(call.seen) == 0 {
		s.t.Errorf("the grant of fence %d is due to the release of %q, after %q", fence, call.Cause, call.seen)
	}
}

func (s *stress) hold(l *Lock, fence uint64, d time.Duration) {
	before := s.latest.Swap(fence)
	if s.trusts(l, fence) && before > fence {
		s.t.Errorf("fence %d after %d", fence, before)
	}
	time.Sleep(d)
	if now := s.latest.Load(); s.trusts(l, fence) && now > fence {
		s.t.Errorf("held with fence %d, and %d was granted", fence, now)
	}
	by := newTraced(strconv.FormatUint(fence, 10))
	if err := l.Release(s.t.Context(), &by.Trace); err != nil && !IsKind(err, Lost) {
		s.t.Error(err)
	}
}

func (s *stress) trusts(l *Lock, fence uint64) bool {
	f, err := l.Fence()
	return err == nil && f == fence
}

func (s *stress) disturb(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
		switch r.IntN(3) {
		case 0:
			s.group.replaceState()
		case 1:
			if own, err := s.client.ownLease(ctx); err == nil {
				_ = s.client.CloseSession(ctx, own.ID())
			}
		default:
			s.group.hold()
			time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
			s.group.release()
		}
	}
}

func (s *stress) wantNothingLeft() {
	time.Sleep(abstention + time.Second)
	synctest.Wait()
	s.group.settle()
	if v := s.group.lock("x"); v != nil {
		s.t.Errorf("the group still has %+v", v)
	}
	for _, l := range s.client.leases.live() {
		l.keeper.mu.Lock()
		for name, n := range l.keeper.names { // order: each is an error
			s.t.Errorf("left of %s: %d tenures, open %v", name, len(n.tenures), n.open)
		}
		l.keeper.mu.Unlock()
	}
	s.client.StopRenewing()
}
