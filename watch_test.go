package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Index, List and Watch together miss no change of concurrent writers.
func TestWatch_FromIndex(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		var writing sync.WaitGroup
		writing.Go(func() {
			for i := range 200 {
				grouptest.MustPut(t, k, fmt.Sprint("k", i%10), fmt.Sprint(i))
				if i%3 == 0 {
					if err := k.Delete(ctx, fmt.Sprint("k", i%7)); err != nil {
						t.Error(err)
					}
				}
			}
			grouptest.MustPut(t, k, "z", "")
		})
		defer writing.Wait() // the writer reports to t
		index, err := k.Index(ctx)
		if err != nil {
			t.Fatal(err)
		}
		list, err := k.List(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		built := make(map[string]conclave.Entry)
		for _, e := range list {
			built[e.Key] = e
		}
		for e, err := range k.Watch(ctx, "", index) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Entry.Key == "z" {
				break
			}
			if built[e.Entry.Key] = e.Entry; e.Deleted {
				delete(built, e.Entry.Key)
			}
		}
		writing.Wait()
		if list, err = k.List(ctx, "k"); err != nil || len(list) != len(built) {
			t.Fatalf("%d entries from events, %d in the list, %v", len(built), len(list), err)
		}
		for _, e := range list {
			grouptest.WantEntry(t, built[e.Key], e)
		}
	})
}

func TestWatch_Ends(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k := n.KV()
		e := grouptest.MustPut(t, k, "a", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		why := errors.New("enough")
		for event, err := range k.Watch(ctx, "", 0) {
			if err == nil {
				grouptest.WantEntry(t, event.Entry, e)
				cancel(why)
				continue
			}
			grouptest.WantError(t, err, context.Canceled)
			grouptest.WantError(t, err, why)
		}
		grouptest.WantWatchEnd(t, ctx, k, 1<<60, context.Canceled) // an index of the future

		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			grouptest.WantWatchEnd(t, t.Context(), k, 0, conclave.ErrClosed) // after the events so far
		}()
		n.Close(t.Context())
		<-waiting
		grouptest.WantWatchEnd(t, t.Context(), k, 1<<60, conclave.ErrClosed)
	})
}

// A transaction that changes a key several times yields as many events, each with its
// own index.
func TestWatch_ManyChangesInOneTransaction(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		entries, err := k.Txn(ctx, conclave.OpPut("a", []byte("1")), conclave.OpPut("a", []byte("2")), conclave.OpDelete("a"), conclave.OpPut("a", []byte("3")))
		if err != nil {
			t.Fatal(err)
		}
		grouptest.MustPut(t, k, "end", "")
		first := entries[0].ModifyIndex
		want := []string{
			fmt.Sprintf("%d %q=%q %v", first, "a", "1", false),
			fmt.Sprintf("%d %q=%q %v", first+1, "a", "2", false),
			fmt.Sprintf("%d %q=%q %v", first+2, "a", "2", true),
			fmt.Sprintf("%d %q=%q %v", first+3, "a", "3", false),
		}
		if seen, err := grouptest.WatchUntil(ctx, k, "", 0, "end"); err != nil || !slices.Equal(seen, want) {
			t.Fatalf("events %q, want %q; %v", seen, want, err)
		}
	})
}
