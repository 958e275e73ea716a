package client

import (
	"bytes"
	"context"
	"strings"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Watch is [Group].Watch.
func (c *Client) Watch(ctx context.Context, prefix string, after uint64, yield func(wire.KeyChange) bool) error {
	return c.group.Watch(ctx, prefix, after, yield)
}

// Observe is [Group].Observe.
func (c *Client) Observe(ctx context.Context, election string, yield func(*wire.Leader) bool) error {
	return c.group.Observe(ctx, election, yield)
}

// FollowKeys implements [Group].Watch by the feed of this process, which applies the log.
func (c *Client) FollowKeys(ctx context.Context, prefix string, after uint64, yield func(wire.KeyChange) bool) error {
	return c.feeds.keys.each(ctx, c, after, func(change wire.KeyChange) bool {
		return !strings.HasPrefix(change.Entry.Key, prefix) || yield(change)
	})
}

// FollowLeader implements [Group].Observe by the feed of this process. After a gap in the
// feed it continues with the current leader.
func (c *Client) FollowLeader(ctx context.Context, election string, yield func(*wire.Leader) bool) error {
	var last *wire.Leader
	for first := true; ; first = false {
		now, position, err := c.leader(ctx, election)
		if err != nil {
			return err
		}
		if first || !SameLeader(now, last) {
			if last = now; !yield(now) {
				return nil
			}
		}
		err = c.feeds.leaders.each(ctx, c, position, func(change wire.LeaderChange) bool {
			if change.Election != election {
				return true
			}
			last = change.Leader
			return yield(last)
		})
		if !IsKind(err, Compacted) {
			return err
		}
	}
}

// SameLeader reports whether two states of an election are the same; nil: there is no leader.
func SameLeader(a, b *wire.Leader) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Fence == b.Fence && bytes.Equal(a.Value, b.Value)
}

// leader returns the leader of an election, nil if there is none, and the position of that
// state in the feed of leader changes.
func (c *Client) leader(ctx context.Context, election string) (leader *wire.Leader, position uint64, err error) {
	fixed := make(chan uint64, 1) // a query that was abandoned may still be evaluated
	leader, err = Ask[*wire.Leader](ctx, c, machine.LeaderQuery{Election: election}, QueryOptions{
		Fixed: func() { fixed <- c.feeds.leaders.end() },
	})
	if err != nil {
		return nil, 0, err
	}
	return leader, <-fixed, nil
}
