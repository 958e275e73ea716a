package grouptest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Never more permits are held than the limit.
func TestSemaphore_LimitUnderLoad(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	const limit = 5
	var out, most atomic.Int64
	var users sync.WaitGroup
	ctx := Bounded(t)
	for i := range 24 {
		s := g.Nodes[i%3].Semaphore("x", limit)
		weight := i%3 + 1
		users.Go(func() {
			for round := range 12 {
				hurry, cancel := ctx, context.CancelFunc(func() {})
				if round%4 == 3 {
					hurry, cancel = context.WithTimeout(ctx, 2*time.Millisecond)
				}
				p, err := s.Acquire(hurry, weight)
				cancel()
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
						t.Error(err)
					}
					continue
				}
				now := out.Add(int64(weight))
				most.Store(max(most.Load(), now))
				if now > limit {
					t.Errorf("%d permits of %d are held", now, limit)
				}
				out.Add(int64(-weight))
				if err := p.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	MustAcquire(t, g.Nodes[0].Semaphore("x", limit), limit) // all others were released
}
