package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// repeating measures callers that repeat their operations.
func repeating(ctx context.Context, g group, callers func(context.Context, group) ([]operation, error)) (measure, error) {
	ops, err := callers(ctx, g)
	return func(ctx context.Context, length time.Duration) (figure, error) {
		return warmTurn(ctx, ops, length, nil)
	}, err
}

// steady measures the same callers at each size, which the shape of the group makes.
func steady(callers func(context.Context, group) ([]operation, error)) func() stage {
	return func() stage {
		return func(ctx context.Context, g *conclaveGroup, _ int) (measure, error) { return repeating(ctx, g, callers) }
	}
}

func withValues() stage {
	return func(ctx context.Context, g *conclaveGroup, x int) (measure, error) {
		return repeating(ctx, g, puts(64, x))
	}
}

// besideLocks has the leader's node hold locks by its own session, which may hold a million.
func besideLocks() stage {
	held := 0
	return func(ctx context.Context, g *conclaveGroup, x int) (measure, error) {
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		err = concurrently(ctx, held, x, 1024, func(ctx context.Context, i int) error {
			_, err := g.nodes[leader].FencedLock(fmt.Sprintf("held-%07d", i)).Lock(ctx)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("hold locks: %w", err)
		}
		held = x
		return repeating(ctx, g, own(64, atLeader))
	}
}

// besideMoreSessions spreads the sessions: one member may have 20,000.
func besideMoreSessions() stage {
	opened := 0
	return func(ctx context.Context, g *conclaveGroup, x int) (measure, error) {
		err := concurrently(ctx, opened, x, 64, func(ctx context.Context, i int) error { return g.sessions(ctx, i%members, 1) })
		if err != nil {
			return nil, fmt.Errorf("open sessions: %w", err)
		}
		opened = x
		return repeating(ctx, g, own(64, atLeader))
	}
}

// concurrently calls do with each number by so many workers, until one fails.
func concurrently(ctx context.Context, from, until, workers int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(from))
	var wg sync.WaitGroup
	for range min(workers, until-from) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < until && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
