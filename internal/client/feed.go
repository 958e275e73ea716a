package client

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
)

// feed buffers the latest changes that the log reports, for watchers. One goroutine
// appends; any number read, each at its own pace and from its own position, that of
// the last item it has seen. Appending never waits for a reader. A reader whose
// position is older than the buffer gets a Fault of kind Compacted.
type feed[T any] struct {
	maxItems, maxBytes int
	bytesOf            func(T) int

	mu    sync.Mutex
	items []item[T]     // guarded by mu; by position
	floor uint64        // guarded by mu; the items after it are kept
	last  uint64        // guarded by mu; position of the newest item, or the floor
	bytes int           // guarded by mu
	grown chan struct{} // guarded by mu; closed at the next change; nil without waiting readers
}

type item[T any] struct {
	at    uint64
	value T
}

// feedChunk and feedChunkBytes bound the items that a reader takes at a time, but for the bytes of
// the last one: a slow one keeps them, even when the feed has dropped them.
const (
	feedChunk      = 64
	feedChunkBytes = 256 << 10
)

// restart discards everything: the next item comes after floor.
func (f *feed[T]) restart(floor uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.bytes = nil, 0
	f.floor, f.last = floor, floor
	f.wake()
}

// skip is restart at a position that no reader has seen, for a feed whose positions
// have no meaning outside of it.
func (f *feed[T]) skip() { f.restart(f.end() + 1) }

// add appends an item. One that does not come after the last is part of the state
// with which the feed began.
func (f *feed[T]) add(at uint64, value T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at <= f.last {
		return
	}
	f.items, f.last = append(f.items, item[T]{at, value}), at
	f.bytes += f.bytesOf(value)
	for len(f.items) > f.maxItems || f.bytes > f.maxBytes {
		f.dropOldest()
	}
	f.wake()
}

// push is add at the next position.
func (f *feed[T]) push(value T) { f.add(f.end()+1, value) }

func (f *feed[T]) dropOldest() {
	f.floor = f.items[0].at
	f.bytes -= f.bytesOf(f.items[0].value)
	f.items[0] = item[T]{} // the array is kept
	f.items = f.items[1:]
}

func (f *feed[T]) wake() {
	if f.grown != nil {
		close(f.grown)
		f.grown = nil
	}
}

// end is the position of the newest item.
func (f *feed[T]) end() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// next returns the items after a position, or, if there are none, a channel that is
// closed when it is worth asking again.
func (f *feed[T]) next(after uint64) (items []item[T], grown <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after < f.floor {
		return nil, nil, &Fault{Kind: Compacted}
	}
	from := sort.Search(len(f.items), func(i int) bool { return f.items[i].at > after })
	if from < len(f.items) {
		return slices.Clone(f.items[from:f.chunkEnd(from)]), nil, nil
	}
	if f.grown == nil {
		f.grown = make(chan struct{})
	}
	return nil, f.grown, nil
}

// chunkEnd is where the chunk ends that begins at an index. It is called with mu held.
func (f *feed[T]) chunkEnd(from int) int {
	end := from
	for bytes := 0; end < min(from+feedChunk, len(f.items)) && bytes < feedChunkBytes; end++ {
		bytes += f.bytesOf(f.items[end].value)
	}
	return end
}

// follow waits for items after a position, and returns none once due delivers; nil: never. When
// the client stops, the items that the feed has come first.
func (f *feed[T]) follow(ctx context.Context, life *lifetime, after uint64, due <-chan time.Time) ([]item[T], error) {
	for {
		if ctx.Err() != nil {
			return nil, contextFault(Interrupted, ctx)
		}
		items, grown, err := f.next(after)
		if err != nil || len(items) > 0 {
			return items, err
		}
		select {
		case <-grown:
		case <-due:
			return nil, nil
		case <-ctx.Done():
		case <-life.done:
			if items, _, err = f.next(after); err == nil && len(items) == 0 {
				err = life.Usable()
			}
			return items, err
		}
	}
}

// each calls yield with each item after a position until yield returns false, which
// is no error, or no item can come.
func (f *feed[T]) each(ctx context.Context, life *lifetime, after uint64, yield func(T) bool) error {
	for {
		items, err := f.follow(ctx, life, after, nil)
		if err != nil {
			return err
		}
		for _, i := range items {
			after = i.at
			if ctx.Err() != nil {
				return contextFault(Interrupted, ctx)
			}
			if !yield(i.value) {
				return nil
			}
		}
	}
}

// feeds are the feeds of a client. The group fills them before it delivers outcomes,
// and fixes the answer of a query afterwards: the end of a feed and the state that a
// query sees are always at the same position of the log.
type feeds struct {
	life *lifetime
	ask  func(context.Context, machine.Query, QueryOptions) (any, error)

	keys    feed[fact.KeyChange]    // by the index of the change
	leaders feed[fact.LeaderChange] // by a number of our own
	shards  feed[fact.ShardChange]  // likewise
}

const (
	maxFeedItems = 65_536
	maxFeedBytes = 32 << 20
)

func (f *feeds) begin(life *lifetime, ask func(context.Context, machine.Query, QueryOptions) (any, error)) {
	f.life, f.ask = life, ask
	f.keys.maxItems, f.keys.maxBytes = maxFeedItems, maxFeedBytes
	f.keys.bytesOf = func(c fact.KeyChange) int { return len(c.Entry.Key) + len(c.Entry.Value) }
	f.leaders.maxItems, f.leaders.maxBytes = maxFeedItems, maxFeedBytes
	f.leaders.bytesOf = func(c fact.LeaderChange) int { return len(c.Election) + c.Leader.Bytes() }
	f.shards.maxItems, f.shards.maxBytes = maxFeedItems, maxFeedBytes
	f.shards.bytesOf = func(c fact.ShardChange) int { return len(c.Set) }
}

func (f *feeds) restart(changes uint64) {
	f.keys.restart(changes)
	f.leaders.skip()
	f.shards.skip()
}

func (f *feeds) changed(keys []fact.KeyChange, leaders []fact.LeaderChange) {
	for _, c := range keys {
		f.keys.add(c.Index, c)
	}
	for _, c := range leaders {
		f.leaders.push(c)
	}
}

func (f *feeds) shardsChanged(shards []fact.ShardChange) {
	for _, c := range shards {
		f.shards.push(c)
	}
}
