package conclave

import (
	"slices"
	"sort"
	"sync"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// feed keeps the last of what the log has changed, for those who follow it. One
// goroutine adds; any number read, each at its own pace and with a place of its
// own: the position of the last item that it has seen. Adding never waits for a
// reader. One that falls behind what is kept is told that it has missed
// something.
type feed[T any] struct {
	maxItems, maxBytes int
	bytesOf            func(T) int

	mu    sync.Mutex
	items []item[T]     // guarded by mu; by position
	floor uint64        // guarded by mu; the items behind it are kept
	last  uint64        // guarded by mu; position of the newest item, or the floor
	bytes int           // guarded by mu
	grown chan struct{} // guarded by mu; closed at the next change; nil: nobody waits
}

type item[T any] struct {
	at    uint64
	value T
}

// feedPortion is how many items a reader takes at a time.
const feedPortion = 64

// restart forgets everything: what comes next is behind floor.
func (f *feed[T]) restart(floor uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.bytes = nil, 0
	f.floor, f.last = floor, floor
	f.wake()
}

// skip is restart at a position that nobody has seen yet, for a feed whose
// positions mean nothing outside.
func (f *feed[T]) skip() { f.restart(f.end() + 1) }

// add appends an item. One that is not behind the last is in the state already
// with which the feed has begun.
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
	f.items[0] = item[T]{} // the array lives on
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

// next returns the next items behind a position, or, if there are none, a
// channel that is closed when it is worth asking again. ErrCompacted: some that
// followed the position are not kept any more.
func (f *feed[T]) next(after uint64) (items []item[T], grown <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after < f.floor {
		return nil, nil, ErrCompacted
	}
	from := sort.Search(len(f.items), func(i int) bool { return f.items[i].at > after })
	if from < len(f.items) {
		return slices.Clone(f.items[from:min(from+feedPortion, len(f.items))]), nil, nil
	}
	if f.grown == nil {
		f.grown = make(chan struct{})
	}
	return nil, f.grown, nil
}

// feeds is what a node keeps for those who follow its keys and its elections.
// The loop fills them before anybody hears the outcomes, and runs reads
// afterwards: the end of a feed and the state that a read sees are always at the
// same place in the log.
type feeds struct {
	keys    feed[wire.KeyChange]
	leaders feed[wire.LeaderChange]
}

const (
	maxFeedItems = 65_536
	maxFeedBytes = 32 << 20
)

func newFeeds() *feeds {
	f := new(feeds)
	f.keys.maxItems, f.keys.maxBytes = maxFeedItems, maxFeedBytes
	f.keys.bytesOf = func(c wire.KeyChange) int { return len(c.Entry.Key) + len(c.Entry.Value) }
	f.leaders.maxItems, f.leaders.maxBytes = maxFeedItems, maxFeedBytes
	f.leaders.bytesOf = func(c wire.LeaderChange) int {
		if c.Leader == nil {
			return len(c.Election)
		}
		return len(c.Election) + len(c.Leader.Value)
	}
	return f
}

func (f *feeds) restored(state cluster.Machine) {
	f.keys.restart(state.(*machine.Machine).Changes())
	f.leaders.skip()
}

func (f *feeds) changed(keys []wire.KeyChange, leaders []wire.LeaderChange) {
	for _, c := range keys {
		f.keys.add(c.Index, c)
	}
	for _, c := range leaders {
		f.leaders.push(c)
	}
}
