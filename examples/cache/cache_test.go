package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

// caches starts a group with a cache on each node.
func caches(t *testing.T, n int) (*conclavetest.Group, []*cache) {
	t.Helper()
	group := conclavetest.Start(t, n)
	var all []*cache
	for _, node := range group.Nodes() {
		all = append(all, newCache(node, time.Hour))
	}
	return group, all
}

func mustPut(t *testing.T, c *cache, text string) {
	t.Helper()
	if err := c.put(t.Context(), "k", text); err != nil {
		t.Fatal(err)
	}
}

// mustGet reads until the key comes from memory, and each time it is as wanted.
func mustGet(t *testing.T, c *cache, want string) {
	t.Helper()
	for {
		text, near, err := c.get(t.Context(), "k")
		if text != want || err != nil {
			t.Fatalf("got %q, %v; want %q", text, err, want)
		}
		if near {
			return
		}
	}
}

// Readers of all nodes read while writers of all nodes write. No reader gets a value that is
// older than the last write that had returned before the read.
func TestCache_NeverOld(t *testing.T) {
	t.Parallel()
	_, all := caches(t, 3)
	mustPut(t, all[0], "0")
	var (
		written, near, far atomic.Int64
		readers            sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range 12 {
		readers.Go(func() {
			for ctx.Err() == nil {
				least := written.Load()
				text, fromMemory, err := all[i%3].get(ctx, "k")
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := strconv.ParseInt(text, 10, 64); err != nil || got < least {
					t.Errorf("got %q (%v) after the write of %d had returned", text, err, least)
				}
				if fromMemory {
					near.Add(1)
				} else {
					far.Add(1)
				}
			}
		})
	}
	for i := range 60 {
		mustPut(t, all[i%3], strconv.Itoa(i+1))
		written.Store(int64(i + 1))
	}
	stop()
	readers.Wait()
	if near.Load() == 0 || far.Load() == 0 {
		t.Errorf("%d reads from memory and %d from the group, want both", near.Load(), far.Load())
	}
	for _, c := range all {
		mustGet(t, c, "60") // all have it in memory at the same time
	}
	mustPut(t, all[1], "61")
	for _, c := range all {
		mustGet(t, c, "61")
	}
}

// The lock of a writer is lost before its write arrives. Once a reader has the value in memory,
// the group refuses the write.
func TestCache_LateWrite(t *testing.T) {
	_, all := caches(t, 1)
	c := all[0]
	mustPut(t, c, "old")
	lock := c.item("k").lock
	late, err := lock.Lock(t.Context())
	if err == nil {
		err = lock.Unlock(t.Context()) // as its loss would
	}
	if err != nil {
		t.Fatal(err)
	}
	mustGet(t, c, "old")
	if _, err := c.kv.PutFenced(t.Context(), c.item("k").key, []byte("late"), late); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("got %v, want ErrStaleFence", err)
	}
	mustGet(t, c, "old")
}

// A partitioned node reads nothing from memory once a write of the others has returned.
func TestCache_ReaderPartitioned(t *testing.T) {
	t.Parallel()
	group, all := caches(t, 3)
	leader := group.Leader()
	reader, writer := all[(leader+1)%3], all[leader]
	mustPut(t, writer, "first")
	mustGet(t, reader, "first")
	group.Partition([]int{(leader + 1) % 3})
	mustPut(t, writer, "second")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if text, near, err := reader.get(ctx, "k"); err == nil {
		t.Errorf("got %q, from memory %v, of a node without a majority", text, near)
	}
	group.Heal()
	mustGet(t, reader, "second")
}

// A key that was never written is empty, and read from memory too.
func TestCache_Missing(t *testing.T) {
	_, all := caches(t, 1)
	mustGet(t, all[0], "")
	mustPut(t, all[0], "now")
	mustGet(t, all[0], "now")
}
