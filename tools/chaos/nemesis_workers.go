//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// restartWorkers restarts some members in turn, again and again, by SIGTERM or kill -9, each when the one before has
// its shards back. The end of the nemesis does not shorten the first wait, so that a short run restarts one as well.
func restartWorkers(ctx context.Context, f *faults) error {
	first := true
	return rounds(ctx, func() error {
		waiting := ctx
		if first {
			waiting, first = context.WithoutCancel(ctx), false
		}
		before, err := f.awaitShards(waiting, func(all []shardState) error { return balanced(all, f.founders) })
		if err != nil {
			return err
		}
		var owners []string
		for _, s := range before {
			owners = append(owners, s.Owner)
		}
		f.rolls = append(f.rolls, roll{from: now(), owners: owners})
		r := &f.rolls[len(f.rolls)-1]
		for _, m := range f.shuffled()[:1+f.random.IntN(f.founders)] {
			took, err := f.restartWorker(ctx, m, owners)
			if err != nil {
				return err
			}
			f.trace("%s has its shards back after %v", m.name, took.Round(time.Millisecond))
			if took > settled.settle {
				return nil // they may have moved
			}
			r.until = now()
		}
		f.between(ctx, 100*time.Millisecond, time.Second)
		return nil
	})
}

// restartWorker restarts a member and waits until it owns its shards again. It returns how long that took. The end of the nemesis
// does not shorten it: what is begun is checked.
func (f *faults) restartWorker(ctx context.Context, m *member, owners []string) (time.Duration, error) {
	ctx = context.WithoutCancel(ctx)
	inAny := func([]shardState) error { return nil }
	before, err := f.awaitShards(ctx, inAny) // an election may come in between
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if f.random.IntN(2) == 0 {
		f.terminate(m)
	} else {
		f.kill(m)
	}
	f.between(ctx, 100*time.Millisecond, time.Second)
	if err := f.restart(ctx, m); err != nil {
		return 0, err
	}
	after, err := f.awaitShards(ctx, func(all []shardState) error { return takenBack(before, all, m.name) })
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	for i, s := range after {
		if s.Owner != owners[i] && took <= settled.settle {
			f.spoiled = append(f.spoiled, fmt.Sprintf("shard %d of %s belongs to %s after %s was restarted in %v", i, owners[i], s.Owner, m.name, took))
		}
	}
	return took, nil
}

// awaitShards waits until the shards of the settled set are in a state, and returns it.
func (f *faults) awaitShards(ctx context.Context, in func(all []shardState) error) ([]shardState, error) {
	const limit = time.Minute // twice as long as they wait for a worker
	began := time.Now()
	for {
		all, err := f.readShards(ctx)
		if err == nil {
			err = in(all)
		}
		if err == nil {
			return all, nil
		}
		if time.Since(began) > limit {
			return nil, fmt.Errorf("after %v: %w", limit, err)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// readShards asks some member for the owners of the shards of the settled set.
func (f *faults) readShards(ctx context.Context) ([]shardState, error) {
	for _, m := range f.shuffled() {
		if !m.isOpen() {
			continue
		}
		select {
		case <-m.process.shards: // of an order that was given up
		default:
		}
		m.process.order(order{Do: doShards, Phase: f.phase.Phase})
		select {
		case n := <-m.process.shards:
			if n.Error != "" {
				return nil, fmt.Errorf("%s: %s", m.name, n.Error)
			}
			return n.Shards, nil
		case <-m.process.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * readLimit):
			return nil, fmt.Errorf("%s does not read the owners of shards within %v", m.name, 2*readLimit)
		}
	}
	return nil, errors.New("no member is open")
}

// takenBack returns nil when a member has new fences for all shards that it owned, if no other one owns them, and none waits or moves.
func takenBack(before, all []shardState, name string) error {
	for i, s := range all {
		switch {
		case s.Fence == 0 || s.Moving:
			return fmt.Errorf("shard %d has no owner, or is moving", i)
		case before[i].Owner == name && s.Fence <= before[i].Fence:
			return fmt.Errorf("shard %d is still owned by the process of %s that has ended", i, name)
		}
	}
	return nil
}

// balanced returns nil when each shard has an owner, and the shares of the members differ by one at most.
func balanced(all []shardState, members int) error {
	shares := make(map[string]int)
	for i, s := range all {
		if s.Fence == 0 || s.Moving {
			return fmt.Errorf("shard %d has no owner, or is moving", i)
		}
		shares[s.Owner]++
	}
	var sizes []int
	for _, n := range shares {
		sizes = append(sizes, n)
	}
	if len(sizes) != members || slices.Max(sizes)-slices.Min(sizes) > 1 {
		return fmt.Errorf("shares are not balanced: %v", shares)
	}
	return nil
}
