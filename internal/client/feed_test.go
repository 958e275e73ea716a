package client

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

func newTestFeed(maxItems, maxBytes int) *feed[int] {
	return &feed[int]{maxItems: maxItems, maxBytes: maxBytes, bytesOf: func(n int) int { return n }}
}

// read returns everything after a position.
func (f *feed[T]) read(t *testing.T, after uint64) (values []T) {
	t.Helper()
	for {
		items, _, err := f.next(after)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			return values
		}
		for _, i := range items {
			values, after = append(values, i.value), i.at
		}
	}
}

func (f *feed[T]) wantCompacted(t *testing.T, after uint64) {
	t.Helper()
	if _, _, err := f.next(after); !IsKind(err, Compacted) {
		t.Fatalf("after %d: %v", after, err)
	}
}

// What a reader takes at a time is bounded by bytes: a slow one keeps what the feed has dropped.
func TestFeed_ChunkBytes(t *testing.T) {
	f := newTestFeed(1000, 1<<30)
	for at := range uint64(100) {
		f.add(at+1, 100<<10)
	}
	for after := uint64(0); after < 100; {
		items, _, err := f.next(after)
		if err != nil || len(items) == 0 || len(items) > 3 {
			t.Fatalf("%d items of 100 KiB, %v", len(items), err)
		}
		after = items[len(items)-1].at
	}
}

// Feeds that share a room keep no more than it has: what has the most makes room, and the others keep what they have.
func TestFeedRoom(t *testing.T) {
	const limit, size = 100 << 10, 1000
	room := NewFeedRoom(limit)
	of := func() *feed[int] {
		f := newTestFeed(1000, 1<<30)
		f.room = room
		return f
	}
	small, large, alone := of(), of(), of()
	for at := range uint64(10) {
		small.add(at+1, size)
	}
	for at := range uint64(500) {
		large.add(at+1, size)
		if kept := room.kept.Load(); kept > limit || kept != int64(small.kept+large.kept) {
			t.Fatalf("%d bytes are kept of %d, by feeds with %d and %d", kept, limit, small.kept, large.kept)
		}
	}
	if n := len(small.read(t, 0)); n != 10 {
		t.Errorf("the small feed has %d items", n)
	}
	if n := len(large.items); n < 40 || cap(large.items) > 2*n+100 {
		t.Errorf("the large feed has %d items in room for %d", n, cap(large.items))
	}
	large.wantCompacted(t, 100)
	alone.add(1, 2*limit)
	if len(small.items) != 1 || len(large.items) != 1 || len(alone.items) != 1 {
		t.Errorf("%d, %d and %d items are left beside one of more than all may have", len(small.items), len(large.items), len(alone.items))
	}
	alone.restart(7)
	large.leave()
	if kept := room.kept.Load(); kept != int64(small.kept) || len(room.feeds) != 2 {
		t.Errorf("%d bytes of %d feeds are counted", kept, len(room.feeds))
	}
	large.add(501, size)
	if large.kept != 0 || len(room.feeds) != 2 {
		t.Error("a feed that has left is counted")
	}
}

// A feed keeps the latest items, by number and by bytes.
func TestFeed_CompactsOldest(t *testing.T) {
	f := newTestFeed(3, 100)
	for at := range uint64(5) {
		f.add(10*at+10, int(at))
	}
	if got := f.read(t, 20); !slices.Equal(got, []int{2, 3, 4}) {
		t.Fatal(got)
	}
	if got := f.read(t, 35); !slices.Equal(got, []int{3, 4}) { // between two positions
		t.Fatal(got)
	}
	f.wantCompacted(t, 19)
	f.add(60, 98)
	if got := f.read(t, 50); !slices.Equal(got, []int{98}) {
		t.Fatal(got)
	}
	f.wantCompacted(t, 30) // the bytes exceed the limit
	if f.bytes > f.maxBytes || len(f.items) != 1 {
		t.Fatalf("%d items of %d bytes", len(f.items), f.bytes)
	}
}

// Changes that are part of the state with which a feed begins are not in the feed.
func TestFeed_Restart(t *testing.T) {
	f := newTestFeed(10, 100)
	f.add(1, 1)
	_, grown, err := f.next(1)
	if err != nil {
		t.Fatal(err)
	}
	f.restart(20)
	<-grown
	f.wantCompacted(t, 1)
	f.wantCompacted(t, 19)
	f.add(20, 2)
	f.add(21, 3)
	if got := f.read(t, 20); !slices.Equal(got, []int{3}) {
		t.Fatal(got)
	}
	end := f.end()
	f.skip()
	f.wantCompacted(t, end)
	f.push(4)
	if got := f.read(t, end+1); !slices.Equal(got, []int{4}) {
		t.Fatal(got)
	}
}

// A reader at a future position is woken by each change.
func TestFeed_FuturePosition(t *testing.T) {
	f := newTestFeed(10, 100)
	for at := range uint64(3) {
		items, grown, err := f.next(5)
		if len(items) > 0 || err != nil {
			t.Fatal(items, err)
		}
		f.add(at+3, 1)
		<-grown
	}
	f.add(6, 7)
	if got := f.read(t, 5); !slices.Equal(got, []int{7}) {
		t.Fatal(got)
	}
}

// Readers at their own pace see the same sequence, or that it was compacted.
func TestFeed_ConcurrentReaders(t *testing.T) {
	const last = 20_000
	f := newTestFeed(500, 1<<30)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for after := uint64(0); after < last; {
				items, grown, err := f.next(after)
				switch {
				case err != nil:
					after = f.end() // as after reading the state again
				case len(items) == 0:
					<-grown
				}
				for _, i := range items {
					if i.at != after+1 || i.value != int(i.at) {
						t.Errorf("%d came after %d", i.at, after)
						return
					}
					after = i.at
				}
			}
		})
	}
	for at := uint64(1); at <= last; at++ {
		f.add(at, int(at))
	}
	wg.Wait()
}

// A watcher behind what is buffered gets a Fault, also after a snapshot.
func TestWatch_Compacted(t *testing.T) {
	c, g := newFake(t)
	put := func() {
		t.Helper()
		_, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{
			Ops: []*wire.KeyOp{{Kind: wire.KeyOp_PUT, Key: "a", Value: []byte{byte(g.index)}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := func(fact.KeyChange) bool { return true }
	c.feeds.keys.maxItems = 10
	for range 20 {
		put()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // a watcher that misses a snapshot blocks
	defer cancel()
	wantKind(t, c.Watch(ctx, "", 0, all), Compacted)
	before := c.feeds.keys.end()
	put()
	g.replaceState()
	wantKind(t, c.Watch(ctx, "", before, all), Compacted)
}

// A watcher that takes what is buffered before it looks again falls behind when the
// changes are faster.
func TestWatch_SlowWatcher(t *testing.T) {
	f := newTestFeed(2*feedChunk, 1<<20)
	c, _ := newFake(t)
	f.add(1, 0)
	yielded := 0
	err := f.each(t.Context(), &c.lifetime, 0, func(int) bool {
		if yielded++; yielded == 1 {
			for at := range uint64(4 * feedChunk) {
				f.add(at+2, 0)
			}
		}
		return true
	})
	wantKind(t, err, Compacted)
	if yielded > feedChunk {
		t.Errorf("%d items before the gap was reported", yielded)
	}
}

// A watcher of what does not change receives how far it has come: soon if much passes, and
// otherwise after a while.
func TestWatch_Passing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newFake(t)
		ctx, cancel := context.WithCancel(t.Context())
		positions, shown := make(chan uint64, 100), make(chan uint64, 100)
		ended := make(chan error)
		go func() {
			ended <- c.FollowKeysPassing(ctx, "quiet/", 0, func(k fact.KeyChange) bool {
				shown <- k.Index
				return true
			}, func(at uint64) bool {
				positions <- at
				return true
			})
		}()
		add := func(at uint64, key string, size int) {
			c.feeds.keys.add(at, fact.KeyChange{Index: at, Entry: &fact.Entry{Key: key, Value: make([]byte, size)}})
		}
		want := func(what string, ch chan uint64, at uint64) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-ch:
				if got != at {
					t.Errorf("%s: got %d, want %d", what, got, at)
				}
			default:
				t.Errorf("%s: nothing", what)
			}
		}
		for at := range uint64(10) {
			add(1+at, "noise", 0)
		}
		<-time.After(passingInterval)
		want("after a while", positions, 10)
		add(11, "quiet/x", 0)
		want("a change", shown, 11)
		<-time.After(10 * passingInterval)
		if synctest.Wait(); len(positions) > 0 {
			t.Errorf("reported %d, and nothing has passed", <-positions)
		}
		add(12, "noise", 0)
		<-time.After(time.Nanosecond)
		want("after a quiet time", positions, 12)
		add(13, "noise", passingBytes)
		want("many bytes", positions, 13)
		cancel()
		if err := <-ended; !IsKind(err, Interrupted) {
			t.Error(err)
		}
	})
}
