package replica

import (
	"context"
	"errors"
	"testing"
)

// A member receives one snapshot of a process at a time: the others in the order in which they came, the default group's first.
func TestSnapshotTurns(t *testing.T) {
	var turns SnapshotTurns
	a, b, c := turns.join(2, 1), turns.join(2, 2), turns.join(2, 3)
	other := turns.join(3, 2)
	byDefault := turns.join(2, 0)
	want := func(when string, begun ...*snapshotTurn) {
		t.Helper()
		for i, turn := range []*snapshotTurn{a, b, c, other, byDefault} {
			is := false
			for _, w := range begun {
				is = is || w == turn
			}
			if turn.hasBegun() != is {
				t.Errorf("%s: turn %d has begun: %t", when, i, !is)
			}
		}
	}
	want("at first", a, other)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := b.await(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.leave()
	want("after one that waited has left", a, other)
	a.leave()
	want("after the first", a, other, byDefault)
	byDefault.leave()
	want("after the default group's", a, other, byDefault, c)
	if err := c.await(t.Context()); err != nil {
		t.Error(err)
	}
	c.leave()
	other.leave()
	if len(turns.queue) > 0 {
		t.Errorf("%d queues without a snapshot", len(turns.queue))
	}
}
