package conclave

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

func newTestFeed(maxItems, maxBytes int) *feed[int] {
	return &feed[int]{maxItems: maxItems, maxBytes: maxBytes, bytesOf: func(n int) int { return n }}
}

// read takes everything behind a position.
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
	if _, _, err := f.next(after); !errors.Is(err, ErrCompacted) {
		t.Fatalf("behind %d: %v", after, err)
	}
}

// A feed keeps the last items, by number and by bytes, and says when an older
// one is asked for.
func TestFeedForgetsTheOldest(t *testing.T) {
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
	f.wantCompacted(t, 30) // the bytes were too many
	if f.bytes > f.maxBytes || len(f.items) != 1 {
		t.Fatalf("%d items of %d bytes", len(f.items), f.bytes)
	}
}

// What was in the state with which a feed begins is not in the feed.
func TestFeedRestarts(t *testing.T) {
	f := newTestFeed(10, 100)
	f.add(1, 1)
	_, grown, err := f.next(1)
	if err != nil {
		t.Fatal(err)
	}
	f.restart(20)
	<-grown // whoever waits finds out
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

// Whoever waits for the future is woken by each change, and none is merged.
func TestFeedWaitsForTheFuture(t *testing.T) {
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

// Readers at their own pace each see the same sequence, or are told that they
// were too slow for it.
func TestFeedReaders(t *testing.T) {
	const last = 20_000
	f := newTestFeed(500, 1<<30)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for after := uint64(0); after < last; {
				items, grown, err := f.next(after)
				switch {
				case err != nil:
					after = f.end() // as who reads the state anew
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
