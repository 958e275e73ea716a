package conclave

import (
	"context"
	"iter"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// Event is one change of one key.
type Event struct {
	Entry   Entry // the key as it is then; or as it was before, if it was deleted
	Deleted bool
	Index   uint64 // of the change: Entry.ModifyIndex, or that of the deletion
}

// Watch yields each change, with an index larger than after, of the keys that
// begin with prefix: in the order in which they happened, none merged and none
// left out, from any writer of the group and from sessions that end. It waits for
// those to come. An Event with an index is all that is needed to go on with
// another Watch, on any node. The empty prefix is all keys.
//
// It ends when the loop is left. Otherwise the last pair that it yields is an
// error: ctx's; ErrCompacted; or ErrClosed when the node was closed or has
// stopped. It has no goroutine, and waits without polling.
//
// A node remembers the last 65,536 changes, with at most 32 MiB of keys and
// values, and none from before its start, or before it was so far behind that it
// was sent the whole state. ErrCompacted: changes that would have to be yielded
// are not remembered any more, because after is too old, or because the loop's
// body is slower than the changes come. Then read the state anew; [KV.Index]
// says how. An index from the future is waited for.
func (k *KV) Watch(ctx context.Context, prefix string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := k.watch(ctx, prefix, after, func(c wire.KeyChange) bool {
			return yield(Event{Entry: entryOf(c.Entry), Deleted: c.Deleted, Index: c.Index}, nil)
		})
		if err != nil {
			yield(Event{}, fault("watch", prefix, err))
		}
	}
}

// watch calls yield until that has enough, which is no error, or no more can come.
func (k *KV) watch(ctx context.Context, prefix string, after uint64, yield func(wire.KeyChange) bool) error {
	for {
		items, err := follow(ctx, k.node, &k.node.feeds.keys, after)
		if err != nil {
			return err
		}
		for _, i := range items {
			after = i.at
			if !strings.HasPrefix(i.value.Entry.Key, prefix) {
				continue
			}
			if ctx.Err() != nil {
				return ended(ctx)
			}
			if !yield(i.value) {
				return nil
			}
		}
	}
}

// follow waits for items behind a position. When the node stops, what the feed
// has comes first.
func follow[T any](ctx context.Context, n *Node, f *feed[T], after uint64) ([]item[T], error) {
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		items, grown, err := f.next(after)
		if err != nil || len(items) > 0 {
			return items, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
		case <-n.done:
			if items, _, err = f.next(after); err == nil && len(items) == 0 {
				err = n.usable()
			}
			return items, err
		}
	}
}
