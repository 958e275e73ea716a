package conclave_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// follower keeps a copy of keys, as a program does, and checks that no key goes back in time.
type follower struct {
	t      *testing.T
	copy   map[string]conclave.Entry
	latest map[string]uint64 // the index of the last event of each key
	synced int
}

func newFollower(t *testing.T) *follower {
	return &follower{t: t, copy: make(map[string]conclave.Entry), latest: make(map[string]uint64)}
}

func (f *follower) note(e conclave.Event) {
	if e.Synced {
		f.synced++
		return
	}
	if e.Index < f.latest[e.Entry.Key] {
		f.t.Errorf("%q at index %d after %d", e.Entry.Key, e.Index, f.latest[e.Entry.Key])
	}
	f.latest[e.Entry.Key] = e.Index
	if e.Deleted {
		if _, exists := f.copy[e.Entry.Key]; !exists {
			f.t.Errorf("%q is deleted, and did not exist", e.Entry.Key)
		}
		delete(f.copy, e.Entry.Key)
		return
	}
	f.copy[e.Entry.Key] = e.Entry
}

func (f *follower) wantKeys(n grouptest.Access, prefix string) {
	f.t.Helper()
	list, err := n.KV().List(f.t.Context(), prefix)
	if err != nil || len(list) != len(f.copy) {
		f.t.Fatalf("a copy of %d keys, %d exist, %v", len(f.copy), len(list), err)
	}
	for _, e := range list {
		if have := f.copy[e.Key]; have.ModifyIndex != e.ModifyIndex || string(have.Value) != string(e.Value) {
			f.t.Errorf("the copy has %+v, want %+v", have, e)
		}
	}
}

func TestFollow_DuringWrites(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		var writing sync.WaitGroup
		started := make(chan struct{})
		writing.Go(func() {
			for i := range 300 {
				grouptest.MustPut(t, k, fmt.Sprint("k", i%5), fmt.Sprint(i))
				if err := k.Delete(ctx, fmt.Sprint("k", i%3)); err != nil {
					t.Error(err)
				}
				if i == 20 {
					close(started)
				}
			}
			grouptest.MustPut(t, k, "k/end", "")
		})
		defer writing.Wait() // the writer reports to t
		<-started
		f := newFollower(t)
		for e, err := range k.Follow(ctx, "k") {
			if err != nil {
				t.Fatal(err)
			}
			if f.note(e); e.Entry.Key == "k/end" {
				break
			}
		}
		writing.Wait()
		if f.wantKeys(n, "k"); f.synced > 1 {
			t.Errorf("the state was read %d times", f.synced)
		}
	})
}

// A follower that is slower than the changes reads the state again, and learns what was deleted.
func TestFollow_AfterCompaction(t *testing.T) {
	n, err := conclave.Open(t.Context(), nil)
	grouptest.Must(t, err)
	defer n.Close(context.Background())
	k := n.KV()
	grouptest.MustPut(t, k, "a/1", "stays")
	grouptest.MustPut(t, k, "a/2", "is deleted")
	grouptest.MustPut(t, k, "a/3", "is changed")
	f := newFollower(t)
	var second []conclave.Event
	for e, err := range k.Follow(grouptest.Bounded(t), "a/") {
		grouptest.Must(t, err)
		f.note(e)
		switch {
		case f.synced == 2:
			second = append(second, e)
		case f.synced == 1 && !e.Synced:
			second = append(second, e)
		case f.synced == 1:
			grouptest.Must(t, k.Delete(t.Context(), "a/2"))
			grouptest.MustPut(t, k, "a/3", "changed")
			value := string(make([]byte, 512<<10))
			for i := range 70 { // more than a node buffers
				grouptest.MustPut(t, k, "b", fmt.Sprint(i)+value[8:])
			}
		}
		if f.synced == 2 {
			break
		}
	}
	f.wantKeys(n, "a/")
	if len(second) != 3 || !second[0].Deleted || second[0].Entry.Key != "a/2" || second[1].Entry.Key != "a/3" || !second[2].Synced {
		t.Errorf("after the compaction: %+v", second)
	}
}

func TestFollow_InvalidPrefix(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		for _, err := range n.KV().Follow(t.Context(), "\x00") {
			grouptest.WantError(t, err, conclave.ErrInvalid)
		}
		for _, err := range n.KV().FollowKey(t.Context(), "") {
			grouptest.WantError(t, err, conclave.ErrInvalid)
		}
	})
}

func TestFollowKey(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		grouptest.MustPut(t, k, "limits", "another key with the prefix")
		var got []string
		next, stop := iter.Pull2(k.FollowKey(ctx, "limit"))
		defer stop()
		step := func(change func()) {
			if change != nil {
				change()
			}
			e, err, ok := next()
			if err != nil || !ok || e.Key != "limit" {
				t.Fatalf("%+v, %v, %v", e, err, ok)
			}
			got = append(got, fmt.Sprintf("%s %v", e.Value, e.ModifyIndex != 0))
		}
		step(nil)
		step(func() { grouptest.MustPut(t, k, "limit", "1") })
		step(func() { grouptest.MustPut(t, k, "limits", "again"); grouptest.MustPut(t, k, "limit", "2") })
		step(func() { grouptest.Must(t, k.Delete(ctx, "limit")) })
		step(func() { grouptest.MustPut(t, k, "limit", "3") })
		if want := []string{" false", "1 true", "2 true", " false", "3 true"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for e, err := range k.FollowKey(ctx, "limit") {
			if err != nil || string(e.Value) != "3" {
				t.Errorf("%+v, %v", e, err)
			}
			break
		}
	})
}
