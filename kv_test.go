package conclave_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/machine"
)

func TestKV_PutGetDelete(t *testing.T) {
	k, ctx := grouptest.Alone(t).KV(), grouptest.Bounded(t)
	_, err := k.Get(ctx, "a")
	grouptest.WantError(t, err, conclave.ErrKeyNotFound)
	first := grouptest.MustPut(t, k, "a", "1", conclave.WithFlags(7))
	grouptest.WantEntry(t, first, conclave.Entry{Key: "a", Value: []byte("1"), Flags: 7, CreateIndex: first.ModifyIndex, ModifyIndex: first.ModifyIndex})
	grouptest.WantEntry(t, grouptest.MustGet(t, k, "a"), first)

	grouptest.WantEntry(t, grouptest.MustPut(t, k, "a", "1", conclave.WithFlags(7)), first) // a Put that changes nothing
	second := grouptest.MustPut(t, k, "a", "2")
	if second.ModifyIndex <= first.ModifyIndex || second.CreateIndex != first.CreateIndex || second.Flags != 0 {
		t.Fatalf("%+v after %+v", second, first)
	}
	index, err := k.Index(ctx)
	if err != nil || index != second.ModifyIndex {
		t.Fatal(index, err)
	}

	empty, err := k.Put(ctx, "empty", []byte{})
	if err != nil || empty.Value != nil || grouptest.MustGet(t, k, "empty").Value != nil {
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
	grouptest.WantError(t, err, conclave.ErrKeyNotFound)
	if reborn := grouptest.MustPut(t, k, "a", "2"); reborn.CreateIndex <= second.ModifyIndex {
		t.Fatalf("%+v after %+v", reborn, second)
	}
}

// Arguments and results belong to the caller.
func TestKV_ValuesAreCopies(t *testing.T) {
	k, ctx := grouptest.Alone(t).KV(), grouptest.Bounded(t)
	value := []byte("value")
	put, err := k.Put(ctx, "a", value)
	if err != nil {
		t.Fatal(err)
	}
	value[0], put.Value[1] = 'x', 'x'
	grouptest.MustGet(t, k, "a").Value[2] = 'x'
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
	if got := grouptest.MustGet(t, k, "a"); string(got.Value) != "value" {
		t.Fatalf("the value is %q", got.Value)
	}
}

func TestKV_ListAndKeys(t *testing.T) {
	k, ctx := grouptest.Alone(t).KV(), grouptest.Bounded(t)
	for _, key := range []string{"b/2", "a", "b/1", "b/dir/x", "b/dir/y", "b", "c", "b-", "é"} {
		grouptest.MustPut(t, k, key, "of "+key)
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
	} {
		got, err := k.Keys(ctx, test.prefix, test.separator)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("keys of %q by %q: %q, %v; want %q", test.prefix, test.separator, got, err, test.want)
		}
	}
	_, err := k.Keys(ctx, "\x00\xff", "") // which no key can begin with
	grouptest.WantError(t, err, conclave.ErrInvalid)
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

func TestKV_CompareAndSwap(t *testing.T) {
	k, ctx := grouptest.Alone(t).KV(), grouptest.Bounded(t)
	swap := func(index uint64, value string, want bool) conclave.Entry {
		t.Helper()
		e, ok, err := k.CompareAndSwap(ctx, "a", index, []byte(value), conclave.WithFlags(1))
		if err != nil || ok != want {
			t.Fatal(ok, err)
		}
		if !ok {
			grouptest.WantEntry(t, e, conclave.Entry{})
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
	grouptest.WantEntry(t, grouptest.MustGet(t, k, "a"), second)
	remove(0, false)
	remove(first.ModifyIndex, false)
	remove(second.ModifyIndex, true)
	swap(second.ModifyIndex, "deleted", false)
}

func TestKV_PutFenced(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		l := n.FencedLock("l")
		old := grouptest.MustLock(t, l)
		grouptest.MustPut(t, k, "a", "", conclave.WithFlags(3))
		if e, err := k.PutFenced(ctx, "a", []byte("old"), old); err != nil || e.Fence != old || e.Flags != 3 {
			t.Fatal(e, err)
		}
		grouptest.MustUnlock(t, l)
		f := grouptest.MustLock(t, l)
		fresh, err := k.PutFenced(ctx, "a", []byte("new"), f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.PutFenced(ctx, "a", []byte("late"), old)
		grouptest.WantError(t, err, conclave.ErrStaleFence)
		grouptest.WantEntry(t, grouptest.MustGet(t, k, "a"), fresh)
		if _, err = k.PutFenced(ctx, "a", []byte("again"), f); err != nil {
			t.Fatal(err)
		}
		_, err = k.PutFenced(ctx, "a", nil, 0)
		grouptest.WantError(t, err, conclave.ErrInvalid)
		if e := grouptest.MustPut(t, k, "a", "plain"); e.Fence != f {
			t.Fatalf("%+v: a Put is advisory, and keeps the fence", e)
		}
	})
}

// Invalid and oversized arguments are refused before anything is sent.
func TestKV_InvalidArguments(t *testing.T) {
	k, ctx := grouptest.Alone(t).KV(), grouptest.Bounded(t)
	big := make([]byte, machine.MaxValue)
	if _, err := k.Put(ctx, strings.Repeat("k", machine.MaxName), big); err != nil {
		t.Fatal(err)
	}
	_, err := k.Put(ctx, "a", append(big, 0))
	grouptest.WantError(t, err, conclave.ErrTooLarge)
	_, err = k.Put(ctx, strings.Repeat("k", machine.MaxName+1), nil)
	grouptest.WantError(t, err, conclave.ErrTooLarge)
	for _, key := range []string{"", "a\x00b", "\xff"} {
		_, err = k.Put(ctx, key, nil)
		grouptest.WantError(t, err, conclave.ErrInvalid)
		_, err = k.Get(ctx, key)
		grouptest.WantError(t, err, conclave.ErrInvalid)
		grouptest.WantError(t, k.Delete(ctx, key), conclave.ErrInvalid)
		if key != "" {
			grouptest.WantError(t, k.DeletePrefix(ctx, key), conclave.ErrInvalid)
		}
	}
	_, err = k.Txn(ctx)
	grouptest.WantError(t, err, conclave.ErrInvalid)
	_, err = k.Txn(ctx, conclave.Op{})
	grouptest.WantError(t, err, conclave.ErrInvalid)
	_, err = k.Txn(ctx, slices.Repeat([]conclave.Op{conclave.OpPut("a", nil)}, machine.MaxOps+1)...)
	grouptest.WantError(t, err, conclave.ErrTooLarge)
	_, err = k.Txn(ctx, conclave.OpPut("a", big), conclave.OpPut("b", big))
	grouptest.WantError(t, err, conclave.ErrTooLarge)
	if keys, err := k.Keys(ctx, "", ""); err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
}
