package client

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

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
	joined             bool // it is one of the feeds of room; owned by the goroutine that appends

	mu    sync.Mutex
	room  *FeedRoom     // guarded by mu; nil: it shares none
	kept  int           // guarded by mu; the bytes of the items in the room
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
	f.count(-f.kept)
	f.floor, f.last = floor, floor
	f.wake()
}

// skip is restart at a position that no reader has seen, for a feed whose positions
// have no meaning outside of it.
func (f *feed[T]) skip() { f.restart(f.end() + 1) }

// add appends an item. One that does not come after the last is part of the state
// with which the feed began.
func (f *feed[T]) add(at uint64, value T) {
	room := f.append(at, value)
	if room == nil {
		return
	}
	if !f.joined {
		f.joined = true
		room.join(f)
	}
	room.shrink()
}

// append is add without regard to the feeds that share its room, which it returns.
func (f *feed[T]) append(at uint64, value T) *FeedRoom {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at <= f.last {
		return nil
	}
	f.items, f.last = append(f.items, item[T]{at, value}), at
	f.bytes += f.bytesOf(value)
	f.count(f.itemBytes(value))
	for len(f.items) > f.maxItems || f.bytes > f.maxBytes {
		f.dropOldest()
	}
	f.wake()
	return f.room
}

// push is add at the next position.
func (f *feed[T]) push(value T) { f.add(f.end()+1, value) }

func (f *feed[T]) dropOldest() {
	f.floor = f.items[0].at
	f.bytes -= f.bytesOf(f.items[0].value)
	f.count(-f.itemBytes(f.items[0].value))
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

// FeedRoom bounds the bytes that the feeds of several clients keep together. Beyond it the feed that keeps the most drops the older half of that, so
// that the one with much to report makes room, and not those with little. A feed keeps its newest item in any case, of which the state
// has the bytes as well.
type FeedRoom struct {
	limit int64
	kept  atomic.Int64 // by all feeds

	mu    sync.Mutex
	feeds map[sharingFeed]struct{} // guarded by mu; those that may keep anything
}

// sharingFeed is a feed of whatever items.
type sharingFeed interface {
	// spare is how many bytes it keeps, or 0 if that is its newest item alone.
	spare() int
	// halve drops the oldest items until half of the bytes are left, or the newest item.
	halve()
}

// NewFeedRoom returns a room of so many bytes.
func NewFeedRoom(bytes int) *FeedRoom {
	return &FeedRoom{limit: int64(bytes), feeds: make(map[sharingFeed]struct{})}
}

func (r *FeedRoom) join(f sharingFeed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feeds[f] = struct{}{}
}

func (r *FeedRoom) leave(f sharingFeed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.feeds, f)
}

// shrink has feeds drop items while all together keep too much. It is called without the mutex of a feed. Each call of halve removes half
// of what is the most, so that appending pays for a look at all feeds as many bytes as that.
func (r *FeedRoom) shrink() {
	if r.kept.Load() <= r.limit {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.kept.Load() > r.limit {
		var largest sharingFeed
		most := 0
		for f := range r.feeds { // order: any of the largest
			if n := f.spare(); n > most {
				largest, most = f, n
			}
		}
		if largest == nil {
			return
		}
		largest.halve()
	}
}

// itemBytes is about the memory of an item.
func (f *feed[T]) itemBytes(value T) int { return f.bytesOf(value) + int(unsafe.Sizeof(item[T]{})) }

// count counts bytes in the room. It is called with mu held.
func (f *feed[T]) count(bytes int) {
	if f.room != nil {
		f.kept += bytes
		f.room.kept.Add(int64(bytes))
	}
}

func (f *feed[T]) spare() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.items) <= 1 {
		return 0
	}
	return f.kept
}

func (f *feed[T]) halve() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for half := f.kept / 2; f.kept > half && len(f.items) > 1; {
		f.dropOldest()
	}
	f.items = slices.Clone(f.items) // without the memory of the others
}

// leave leaves the room to other feeds. Nothing is appended any more.
func (f *feed[T]) leave() {
	f.mu.Lock()
	room := f.room
	f.count(-f.kept)
	f.room = nil
	f.mu.Unlock()
	if room != nil {
		room.leave(f)
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

func (f *feeds) begin(life *lifetime, room *FeedRoom, ask func(context.Context, machine.Query, QueryOptions) (any, error)) {
	f.life, f.ask = life, ask
	f.keys.room, f.leaders.room, f.shards.room = room, room, room
	f.keys.maxItems, f.keys.maxBytes = maxFeedItems, maxFeedBytes
	f.keys.bytesOf = func(c fact.KeyChange) int { return len(c.Entry.Key) + len(c.Entry.Value) }
	f.leaders.maxItems, f.leaders.maxBytes = maxFeedItems, maxFeedBytes
	f.leaders.bytesOf = func(c fact.LeaderChange) int { return len(c.Election) + c.Leader.Bytes() }
	f.shards.maxItems, f.shards.maxBytes = maxFeedItems, maxFeedBytes
	f.shards.bytesOf = func(c fact.ShardChange) int { return len(c.Set) }
}

// leave ends the share of the feeds in their room: nothing is appended any more.
func (f *feeds) leave() {
	f.keys.leave()
	f.leaders.leave()
	f.shards.leave()
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
