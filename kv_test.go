package conclave

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
)

func mustPut(t testing.TB, k *KV, key, value string, opts ...PutOption) Entry {
	t.Helper()
	e, err := k.Put(within(t, 20*time.Second), key, []byte(value), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustGet(t testing.TB, k *KV, key string, opts ...ReadOption) Entry {
	t.Helper()
	e, err := k.Get(within(t, 20*time.Second), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func wantEntry(t testing.TB, got, want Entry) {
	t.Helper()
	if got.Key != want.Key || !bytes.Equal(got.Value, want.Value) || got.Flags != want.Flags ||
		got.CreateIndex != want.CreateIndex || got.ModifyIndex != want.ModifyIndex ||
		got.LockIndex != want.LockIndex || got.Session != want.Session || got.Fence != want.Fence {
		t.Fatalf("the entry is\n%+v, not\n%+v", got, want)
	}
}

func TestKeyPutGetDelete(t *testing.T) {
	k, ctx := alone(t).KV(), within(t, 30*time.Second)
	_, err := k.Get(ctx, "a")
	wantError(t, err, ErrKeyNotFound)
	first := mustPut(t, k, "a", "1", Flags(7))
	wantEntry(t, first, Entry{Key: "a", Value: []byte("1"), Flags: 7, CreateIndex: first.ModifyIndex, ModifyIndex: first.ModifyIndex})
	wantEntry(t, mustGet(t, k, "a"), first)

	wantEntry(t, mustPut(t, k, "a", "1", Flags(7)), first) // a Put that changes nothing
	second := mustPut(t, k, "a", "2")
	if second.ModifyIndex <= first.ModifyIndex || second.CreateIndex != first.CreateIndex || second.Flags != 0 {
		t.Fatalf("%+v after %+v", second, first)
	}
	index, err := k.Index(ctx)
	if err != nil || index != second.ModifyIndex {
		t.Fatal(index, err)
	}

	empty, err := k.Put(ctx, "empty", []byte{})
	if err != nil || empty.Value != nil || mustGet(t, k, "empty").Value != nil {
		t.Fatal(empty, err)
	}
	again, err := k.Put(ctx, "empty", nil)
	if err != nil || again.ModifyIndex != empty.ModifyIndex {
		t.Fatal(again, err)
	}

	for range 2 { // the second finds nothing, which is fine
		if err := k.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = k.Get(ctx, "a")
	wantError(t, err, ErrKeyNotFound)
	if reborn := mustPut(t, k, "a", "2"); reborn.CreateIndex <= second.ModifyIndex {
		t.Fatalf("%+v after %+v", reborn, second)
	}
}

// What is handed in and out belongs to the caller.
func TestKeyValuesAreCopies(t *testing.T) {
	k, ctx := alone(t).KV(), within(t, 30*time.Second)
	value := []byte("value")
	put, err := k.Put(ctx, "a", value)
	if err != nil {
		t.Fatal(err)
	}
	value[0], put.Value[1] = 'x', 'x'
	mustGet(t, k, "a").Value[2] = 'x'
	list, err := k.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	list[0].Value[3] = 'x'
	for e, err := range k.Watch(ctx, "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		e.Entry.Value[4] = 'x'
		break
	}
	if got := mustGet(t, k, "a"); string(got.Value) != "value" {
		t.Fatalf("the value became %q", got.Value)
	}
}

func TestKeyLists(t *testing.T) {
	k, ctx := alone(t).KV(), within(t, 30*time.Second)
	for _, key := range []string{"b/2", "a", "b/1", "b/dir/x", "b/dir/y", "b", "c", "b-", "é"} {
		mustPut(t, k, key, "of "+key)
	}
	for _, test := range []struct {
		prefix, separator string
		want              []string
	}{
		{"", "", []string{"a", "b", "b-", "b/1", "b/2", "b/dir/x", "b/dir/y", "c", "é"}},
		{"", "/", []string{"a", "b", "b-", "b/", "c", "é"}},
		{"b", "/", []string{"b", "b-", "b/"}},
		{"b/", "/", []string{"b/1", "b/2", "b/dir/"}},
		{"b/dir", "/", []string{"b/dir/"}},
		{"b/d", "ir/", []string{"b/dir/"}},
		{"zzz", "", nil},
		{"\x00\xff", "", nil},
	} {
		got, err := k.Keys(ctx, test.prefix, test.separator)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("keys of %q by %q: %q, %v; want %q", test.prefix, test.separator, got, err, test.want)
		}
	}
	list, err := k.List(ctx, "b/")
	if err != nil || len(list) != 4 || list[2].Key != "b/dir/x" || string(list[2].Value) != "of b/dir/x" {
		t.Fatal(list, err)
	}

	if err := k.DeletePrefix(ctx, "b/"); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Keys(ctx, "", ""); err != nil || !slices.Equal(got, []string{"a", "b", "b-", "c", "é"}) {
		t.Fatal(got, err)
	}
	if err := k.DeletePrefix(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Keys(ctx, "", ""); err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
}

func TestKeyCompare(t *testing.T) {
	k, ctx := alone(t).KV(), within(t, 30*time.Second)
	swap := func(index uint64, value string, want bool) Entry {
		t.Helper()
		e, ok, err := k.CompareAndSwap(ctx, "a", index, []byte(value), Flags(1))
		if err != nil || ok != want {
			t.Fatal(ok, err)
		}
		if !ok {
			wantEntry(t, e, Entry{})
		}
		return e
	}
	remove := func(index uint64, want bool) {
		t.Helper()
		if ok, err := k.CompareAndDelete(ctx, "a", index); err != nil || ok != want {
			t.Fatal(ok, err)
		}
	}
	remove(0, true)
	remove(9, false)
	swap(9, "no key", false)
	first := swap(0, "created", true)
	swap(0, "again", false)
	second := swap(first.ModifyIndex, "next", true)
	swap(first.ModifyIndex, "late", false)
	wantEntry(t, mustGet(t, k, "a"), second)
	remove(0, false)
	remove(first.ModifyIndex, false)
	remove(second.ModifyIndex, true)
	swap(second.ModifyIndex, "gone", false)
}

// Counting by compare-and-swap, from every member at once, loses nothing and
// counts nothing twice, also when answers are lost and requests come twice.
func TestKeyCounter(t *testing.T) {
	const each = 25
	g := group(t, 3, func(_ int, _ *Config, h *cluster.Seams) {
		faultyForwards(h, 3)
	})
	ctx := within(t, 60*time.Second)
	var wg sync.WaitGroup
	for _, n := range g.nodes {
		wg.Go(func() {
			for done := 0; done < each; {
				ok, err := count(t, n.KV(), "counter")
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	e, err := g.nodes[0].KV().Get(ctx, "counter")
	if err != nil || string(e.Value) != fmt.Sprint(each*len(g.nodes)) {
		t.Fatalf("%s %v", e.Value, err)
	}
}

// A group that forgets a process in the middle of its writes costs none of them,
// and makes none twice.
func TestKeyCounterOfForgottenProcess(t *testing.T) {
	const callers, each = 8, 20
	n := alone(t)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for done := 0; done < each; {
				ok, err := count(t, n.KV(), "counter")
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	for range 10 {
		// It may be forgotten already, and not be registered anew yet.
		if err := n.deregister(within(t, 20*time.Second)); err != nil && !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	}
	wg.Wait()
	if e := mustGet(t, n.KV(), "counter"); string(e.Value) != fmt.Sprint(callers*each) {
		t.Fatalf("counted to %s", e.Value)
	}
}

// count tries once to raise a counter by one.
func count(t *testing.T, k *KV, key string) (bool, error) {
	ctx := within(t, 60*time.Second)
	e, err := k.Get(ctx, key)
	if err != nil && !errors.Is(err, ErrKeyNotFound) {
		return false, err
	}
	n, _ := strconv.Atoi(string(e.Value)) // no key counts as 0
	_, ok, err := k.CompareAndSwap(ctx, key, e.ModifyIndex, strconv.AppendInt(nil, int64(n+1), 10))
	return ok, err
}

func TestKeyPutFenced(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 30*time.Second)
	l := n.FencedLock("l")
	old := mustLock(t, l)
	mustPut(t, k, "a", "", Flags(3))
	if e, err := k.PutFenced(ctx, "a", []byte("old"), old); err != nil || e.Fence != old || e.Flags != 3 {
		t.Fatal(e, err)
	}
	mustUnlock(t, l)
	f := mustLock(t, l)
	fresh, err := k.PutFenced(ctx, "a", []byte("new"), f)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.PutFenced(ctx, "a", []byte("late"), old)
	wantError(t, err, ErrStaleFence)
	wantEntry(t, mustGet(t, k, "a"), fresh)
	if _, err = k.PutFenced(ctx, "a", []byte("again"), f); err != nil {
		t.Fatal(err)
	}
	_, err = k.PutFenced(ctx, "a", nil, 0)
	wantError(t, err, ErrInvalid)
	if e := mustPut(t, k, "a", "plain"); e.Fence != f {
		t.Fatalf("%+v: a Put is advisory, and keeps the fence", e)
	}
}

// Limits hold at the door, and say what the matter is.
func TestKeyLimits(t *testing.T) {
	k, ctx := alone(t).KV(), within(t, 30*time.Second)
	big := make([]byte, machine.MaxValue)
	if _, err := k.Put(ctx, strings.Repeat("k", machine.MaxName), big); err != nil {
		t.Fatal(err)
	}
	_, err := k.Put(ctx, "a", append(big, 0))
	wantError(t, err, ErrTooLarge)
	_, err = k.Put(ctx, strings.Repeat("k", machine.MaxName+1), nil)
	wantError(t, err, ErrTooLarge)
	for _, key := range []string{"", "a\x00b", "\xff"} {
		_, err = k.Put(ctx, key, nil)
		wantError(t, err, ErrInvalid)
		_, err = k.Get(ctx, key)
		wantError(t, err, ErrInvalid)
		wantError(t, k.Delete(ctx, key), ErrInvalid)
		if key != "" {
			wantError(t, k.DeletePrefix(ctx, key), ErrInvalid)
		}
	}
	_, err = k.Txn(ctx)
	wantError(t, err, ErrInvalid)
	_, err = k.Txn(ctx, Op{})
	wantError(t, err, ErrInvalid)
	_, err = k.Txn(ctx, slices.Repeat([]Op{OpPut("a", nil)}, machine.MaxOps+1)...)
	wantError(t, err, ErrTooLarge)
	_, err = k.Txn(ctx, OpPut("a", big), OpPut("b", big))
	wantError(t, err, ErrTooLarge)
	if keys, err := k.Keys(ctx, "", ""); err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
}

// Local reads need nobody; those that promise more wait for a majority.
func TestKeyStaleReads(t *testing.T) {
	g := group(t, 3, nil)
	k := g.nodes[0].KV()
	put := mustPut(t, g.nodes[1].KV(), "a", "1")
	wantEntry(t, mustGet(t, k, "a"), put)
	g.kill(1)
	g.kill(2)
	wantEntry(t, mustGet(t, k, "a", Stale()), put)
	ctx := within(t, 20*time.Second)
	if list, err := k.List(ctx, "", Stale()); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if keys, err := k.Keys(ctx, "", "", Stale()); err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if index, err := k.Index(ctx, Stale()); err != nil || index != put.ModifyIndex {
		t.Fatal(index, err)
	}
	short := within(t, 300*time.Millisecond)
	_, err := k.Get(short, "a")
	wantError(t, err, ErrUnavailable)
	wantError(t, err, short.Err())
}

// Keys outlive their members' processes, and come along in a snapshot.
func TestKeysSurvive(t *testing.T) {
	g := group(t, 3, shortLog)
	k := g.nodes[0].KV()
	put := mustPut(t, k, "a", "1", Flags(9))
	away := 2
	g.kill(away)
	busy(t, g.nodes[0], 150)
	gone := mustPut(t, k, "gone", "")
	if err := k.Delete(within(t, 20*time.Second), "gone"); err != nil {
		t.Fatal(err)
	}
	g.start(away)
	g.awaitApplied(away)
	g.wantInstalled(away, 1)
	wantEntry(t, mustGet(t, g.nodes[away].KV(), "a", Stale()), put)
	g.closeAll()
	g.startAll()
	wantEntry(t, mustGet(t, g.nodes[away].KV(), "a"), put)
	if next := mustPut(t, g.nodes[1].KV(), "gone", ""); next.CreateIndex <= gone.ModifyIndex {
		t.Fatalf("index %d came after %d", next.CreateIndex, gone.ModifyIndex)
	}
}
