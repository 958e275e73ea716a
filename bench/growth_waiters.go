package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// queueing measures how often one lock is granted while so many callers wait for it. A caller
// that releases the lock waits for it again at once.
func queueing() stage {
	turns := 0
	return func(ctx context.Context, g *conclaveGroup, x int) (measure, error) {
		leader, err := g.leader(ctx)
		return func(ctx context.Context, length time.Duration) (figure, error) {
			turns++ // each has a lock of its own: the queue of the one before is empty, or nearly so
			q := &queue{node: g.nodes[leader], name: fmt.Sprint("queue-", turns)}
			return q.measure(ctx, x, length)
		}, err
	}
}

type queue struct {
	node *conclave.Node
	name string

	mu     sync.Mutex
	grants []time.Time // guarded by mu
	failed error       // guarded by mu
}

// measure lets x+1 callers queue behind a hold of its own, releases that, and counts the
// grants of a while.
func (q *queue) measure(ctx context.Context, x int, length time.Duration) (figure, error) {
	first := q.node.FencedLock(q.name)
	if _, err := first.Lock(ctx); err != nil {
		return figure{}, err
	}
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range x + 1 { // one of them holds the lock
		wg.Go(func() { q.repeat(inner, cancel) })
	}
	if err := q.await(inner, first, x+1); err != nil {
		return figure{}, q.cause(err)
	}
	if err := first.Unlock(ctx); err != nil {
		return figure{}, err
	}
	warm := time.Now().Add(length / 4)
	end := warm.Add(length)
	select {
	case <-time.After(time.Until(end)):
	case <-inner.Done():
		return figure{}, q.cause(inner.Err())
	}
	cancel()
	wg.Wait()
	// Waiters are withdrawn in the background, and the places of a process are bounded.
	if err := q.await(ctx, first, 0); err != nil {
		return figure{}, err
	}
	return q.figure(warm, end), q.cause(nil)
}

// repeat takes the lock and releases it until ctx ends.
func (q *queue) repeat(ctx context.Context, cancel func()) {
	l := q.node.FencedLock(q.name)
	for {
		_, err := l.Lock(ctx)
		if err == nil {
			q.mu.Lock()
			q.grants = append(q.grants, time.Now())
			q.mu.Unlock()
			err = l.Unlock(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			q.mu.Lock()
			q.failed = err
			q.mu.Unlock()
			cancel()
			return
		}
	}
}

// cause returns why the callers stopped, or else err.
func (q *queue) cause(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed != nil {
		return q.failed
	}
	return err
}

// await asks until so many wait: nothing signals the length of a queue.
func (q *queue) await(ctx context.Context, l *conclave.FencedLock, waiters int) error {
	for {
		info, err := l.Info(ctx)
		if err != nil || info.Waiters == waiters {
			return err
		}
	}
}

// figure returns the grants between two times. Its times are from one grant to the next.
func (q *queue) figure(from, until time.Time) figure {
	var last time.Time
	var gaps []time.Duration
	granted := 0
	for _, at := range q.grants { // in order: one caller at a time holds the lock
		if at.Before(from) || at.After(until) {
			continue
		}
		if granted++; granted > 1 {
			gaps = append(gaps, at.Sub(last))
		}
		last = at
	}
	slices.Sort(gaps)
	return figure{rate: float64(granted) / until.Sub(from).Seconds(), p50: quantile(gaps, 0.5), p99: quantile(gaps, 0.99)}
}
