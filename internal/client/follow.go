package client

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
)

// FollowKeys implements [Group].Watch by the feed of this process, which applies the log.
func (f *feeds) FollowKeys(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error {
	return f.keys.each(ctx, f.life, after, func(change fact.KeyChange) bool {
		return !strings.HasPrefix(change.Entry.Key, prefix) || yield(change)
	})
}

// When FollowKeysPassing reports its position: soon enough for another member to continue from
// there, whose feed is as large, and that may have started since. The interval is that of the
// keep-alives of clients, which it replaces.
const (
	passingInterval = 2 * time.Second
	passingItems    = maxFeedItems / 4
	passingBytes    = maxFeedBytes / 4
)

// FollowKeysPassing is FollowKeys, and calls passed with the index of the last change that has
// passed without one that begins with the prefix, from time to time. False ends it, as of yield.
func (f *feeds) FollowKeysPassing(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool, passed func(uint64) bool) error {
	reported, at, items, bytes := after, time.Now(), 0, 0
	timer := time.NewTimer(passingInterval)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if after > reported {
			due = timer.C
		}
		changes, err := f.keys.follow(ctx, f.life, after, due)
		if err != nil {
			return err
		}
		for _, change := range changes {
			after, items, bytes = change.at, items+1, bytes+f.keys.bytesOf(change.value)
			if !strings.HasPrefix(change.value.Entry.Key, prefix) {
				continue
			}
			if ctx.Err() != nil {
				return contextFault(Interrupted, ctx)
			}
			if !yield(change.value) {
				return nil
			}
			reported, items, bytes = after, 0, 0
		}
		if after == reported || len(changes) > 0 && items < passingItems && bytes < passingBytes && time.Since(at) < passingInterval {
			continue
		}
		if !passed(after) {
			return nil
		}
		reported, at, items, bytes = after, time.Now(), 0, 0
		timer.Reset(passingInterval)
	}
}

// FollowLeader implements [Group].Observe by the feed of this process. After a gap in the
// feed it continues with the current leader.
func (f *feeds) FollowLeader(ctx context.Context, election string, yield func(*fact.Leader) bool) error {
	var last *fact.Leader
	for first := true; ; first = false {
		now, position, err := f.leader(ctx, election)
		if err != nil {
			return err
		}
		if first || !SameLeader(now, last) {
			if last = now; !yield(now) {
				return nil
			}
		}
		err = f.leaders.each(ctx, f.life, position, func(change fact.LeaderChange) bool {
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
func SameLeader(a, b *fact.Leader) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Fence == b.Fence && bytes.Equal(a.Value, b.Value)
}

// leader returns the leader of an election, nil if there is none, and the position of that
// state in the feed of leader changes.
func (f *feeds) leader(ctx context.Context, election string) (leader *fact.Leader, position uint64, err error) {
	fixed := make(chan uint64, 1) // a query that was abandoned may still be evaluated
	answer, err := f.ask(ctx, machine.LeaderQuery{Election: election}, QueryOptions{
		Fixed: func() { fixed <- f.leaders.end() },
	})
	if err != nil {
		return nil, 0, err
	}
	return answer.(*fact.Leader), <-fixed, nil
}

// ShardsUpdate is the state of a set of shards or, with a change, what has become of one shard since the update before.
type ShardsUpdate struct {
	View   *machine.ShardsView `json:",omitempty"` // without a change; nil: there is no such set
	Change *fact.ShardChange   `json:",omitempty"` // never with All
}

// FollowShards implements [Group].FollowShards by the feed of this process. After a gap in the feed, and after a change
// of more than a shard, it continues with the state.
func (f *feeds) FollowShards(ctx context.Context, set string, yield func(ShardsUpdate) bool) error {
	for {
		view, position, err := f.shardSet(ctx, set)
		if err != nil {
			return err
		}
		if !yield(ShardsUpdate{View: view}) {
			return nil
		}
		left := false
		err = f.shards.each(ctx, f.life, position, func(change fact.ShardChange) bool {
			switch {
			case change.Set != set:
				return true
			case change.All:
				return false
			}
			left = !yield(ShardsUpdate{Change: &change})
			return !left
		})
		if left || err != nil && !IsKind(err, Compacted) {
			return err
		}
	}
}

// shardSet returns the state of a set of shards, nil if there is no such set, and its position in the feed of changes
// of shards.
func (f *feeds) shardSet(ctx context.Context, set string) (view *machine.ShardsView, position uint64, err error) {
	fixed := make(chan uint64, 1) // a query that was abandoned may still be evaluated
	answer, err := f.ask(ctx, machine.ShardsQuery{Name: set}, QueryOptions{
		Fixed: func() { fixed <- f.shards.end() },
	})
	if err != nil {
		return nil, 0, err
	}
	return answer.(*machine.ShardsView), <-fixed, nil
}
