package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Handles of three sessions, with and without a time to linger and Reentrant, read, write and
// downgrade with short contexts, while sessions are closed by force, the state is replaced and
// commands are held back. A holder that trusts its hold has the latest fence, whether it shares it or not;
// each call ends, and in the end nothing is left in the group nor here.
func TestRWLock_Stress(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	var did [3]atomic.Int64
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := &sharedStress{stress: newStress(t, uint64(seed)), did: &did}
			raise(t, s.client, wire.LevelShared)
			s.run()
			s.wantNothingLeft()
		})
		if t.Failed() {
			t.Fatalf("round %d", seed)
		}
	}
	for i, kind := range []string{"writes", "reads", "downgrades"} {
		if did[i].Load() < 100 {
			t.Errorf("%d %s: the test tests too little", did[i].Load(), kind)
		}
	}
}

type sharedStress struct {
	*stress
	did *[3]atomic.Int64 // writes, reads, downgrades
}

func (s *sharedStress) run() {
	ctx, stop := context.WithTimeout(s.t.Context(), time.Second)
	defer stop()
	var users sync.WaitGroup
	for i := range 12 {
		l := newRWLock(s.t, s.client, LockConfig{
			Lease: s.leases[i%3], Reentrant: i%5 == 4,
			Linger: []time.Duration{0, 3 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond}[i%4],
		})
		for j := range 1 + i%2 {
			if j > 0 && l.reentrant {
				break // a Downgrade of one goroutine would surprise the other one
			}
			users.Go(func() { s.use(ctx, l, rand.New(rand.NewPCG(s.seed, uint64(10*i+j)))) })
		}
	}
	users.Go(func() { s.disturb(ctx, rand.New(rand.NewPCG(s.seed, 1000))) })
	users.Wait()
}

// use acquires and releases until ctx ends.
func (s *sharedStress) use(ctx context.Context, l *RWLock, r *rand.Rand) {
	for ctx.Err() == nil {
		patience := time.Duration(r.IntN(2000)) * time.Microsecond
		if r.IntN(3) == 0 {
			patience = time.Minute
		}
		one, cancel := context.WithTimeout(ctx, patience)
		acquire, release, kind := l.AcquireShared, l.ReleaseShared, 1
		if r.IntN(4) == 0 {
			acquire, release, kind = l.Acquire, l.Release, 0
		}
		fence, err := acquire(one, r.IntN(3) > 0, nil)
		cancel()
		if err == nil {
			s.did[kind].Add(1)
			s.check(l, fence, r)
			if kind == 0 && r.IntN(2) == 0 {
				release = s.downgrade(ctx, l, r)
			}
			if err := release(s.t.Context(), nil); err != nil && !IsKind(err, Lost) {
				s.t.Error(err)
			}
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
}

// check checks that no later grant is made while a holder trusts its hold.
func (s *sharedStress) check(l *RWLock, fence uint64, r *rand.Rand) {
	for {
		latest := s.latest.Load()
		if fence <= latest || s.latest.CompareAndSwap(latest, fence) {
			break
		}
	}
	for range 2 {
		if now := s.latest.Load(); now > fence && s.trusts(&l.Lock, fence) {
			s.t.Errorf("held with fence %d, and %d was granted", fence, now)
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
	}
}

// downgrade downgrades an exclusive hold, and returns how to release what it has become.
func (s *sharedStress) downgrade(ctx context.Context, l *RWLock, r *rand.Rand) (release func(context.Context, *Trace) error) {
	one, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(1000))*time.Microsecond)
	defer cancel()
	fence, err := l.Downgrade(one, nil)
	switch {
	case err == nil:
		s.did[2].Add(1)
		s.check(l, fence, r)
		return l.ReleaseShared
	case IsKind(err, Unknown) && r.IntN(2) == 0:
		return l.ReleaseShared
	}
	return l.Release
}
