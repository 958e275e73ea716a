package consultest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func TestKV_PutGet(t *testing.T) {
	a := start(t, 2)
	w, r := a.client(0).KV(), a.client(1).KV()
	if pair, meta, err := r.Get("absent", nil); pair != nil || err != nil || meta.LastIndex == 0 {
		t.Errorf("get of an absent key: %+v, %+v, %v", pair, meta, err)
	}
	for _, want := range []*api.KVPair{
		{Key: "plain", Value: []byte("value")},
		{Key: "empty"},
		{Key: "flags", Value: []byte{0, 255, 10, '"'}, Flags: 1<<64 - 1},
		{Key: "a folder/ümlaut & % ? # + ;/x", Value: []byte("escaped")},
		{Key: "folder/", Value: []byte("a key like others")},
		{Key: "double//slash", Value: []byte("kept")},
		{Key: "dots/../and/./dots", Value: []byte("kept")},
		{Key: "large", Value: bytes.Repeat([]byte("x"), 512<<10)},
	} {
		_, err := w.Put(want, nil)
		must(t, err)
		got, meta, err := r.Get(want.Key, nil)
		must(t, err)
		if got == nil || got.Key != want.Key || !bytes.Equal(got.Value, want.Value) || got.Flags != want.Flags ||
			got.CreateIndex == 0 || got.ModifyIndex != got.CreateIndex || got.LockIndex != 0 || got.Session != "" || meta.LastIndex < got.ModifyIndex {
			t.Errorf("key %q: %.200v", want.Key, got)
		}
		if !meta.KnownLeader {
			t.Errorf("key %q: no known leader: %+v", want.Key, meta)
		}
	}
	if _, err := w.Put(&api.KVPair{Key: "too large", Value: make([]byte, 512<<10+1)}, nil); err == nil || !strings.Contains(err.Error(), "413") {
		t.Errorf("put of a value beyond the limit: %v", err)
	}
}

func TestKV_ConsistencyModes(t *testing.T) {
	a := start(t, 2)
	_, err := a.client(0).KV().Put(&api.KVPair{Key: "k", Value: []byte("v")}, nil)
	must(t, err)
	for name, q := range map[string]*api.QueryOptions{"default": nil, "consistent": {RequireConsistent: true}} {
		if pair, _, err := a.client(1).KV().Get("k", q); err != nil || pair == nil || string(pair.Value) != "v" {
			t.Errorf("%s: %+v, %v", name, pair, err)
		}
	}
	// A stale read follows; its index shows how far.
	q, index := &api.QueryOptions{AllowStale: true, WaitTime: time.Second}, uint64(0)
	for deadline := time.Now().Add(patience); ; {
		pair, meta, err := a.client(1).KV().Get("k", q)
		must(t, err)
		if meta.LastIndex == 0 || meta.LastIndex < index {
			t.Fatalf("index %d after %d", meta.LastIndex, index)
		}
		if pair != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a stale read does not follow")
		}
		index = meta.LastIndex
		q.WaitIndex = index
	}
}

func TestKV_CAS(t *testing.T) {
	a := start(t, 2)
	kv := a.client(0).KV()
	cas := func(index uint64, value string, want bool) {
		t.Helper()
		ok, _, err := kv.CAS(&api.KVPair{Key: "k", Value: []byte(value), ModifyIndex: index, Flags: 7}, nil)
		must(t, err)
		if ok != want {
			t.Errorf("cas at %d: %v, want %v", index, ok, want)
		}
	}
	cas(5, "absent", false)
	cas(0, "first", true)
	cas(0, "second", false)
	index := get(t, a.client(1), "k").ModifyIndex
	cas(index+1, "future", false)
	cas(index, "third", true)
	cas(index, "fourth", false)
	if pair := get(t, a.client(1), "k"); string(pair.Value) != "third" || pair.Flags != 7 || pair.CreateIndex != index {
		t.Errorf("key %+v", pair)
	}
}

func TestKV_ListAndKeys(t *testing.T) {
	a := start(t, 2)
	for _, key := range []string{"app/a", "app/b/1", "app/b/2", "app/c/1/x", "apple", "b"} {
		_, err := a.client(0).KV().Put(&api.KVPair{Key: key, Value: []byte("of " + key)}, nil)
		must(t, err)
	}
	kv := a.client(1).KV()
	pairs, meta, err := kv.List("app/", nil)
	must(t, err)
	var listed []string
	for _, p := range pairs {
		listed = append(listed, p.Key)
		if string(p.Value) != "of "+p.Key {
			t.Errorf("key %+v", p)
		}
	}
	if want := []string{"app/a", "app/b/1", "app/b/2", "app/c/1/x"}; !slices.Equal(listed, want) || meta.LastIndex == 0 {
		t.Errorf("listed %q, want %q, index %d", listed, want, meta.LastIndex)
	}
	for _, tc := range []struct {
		prefix, separator string
		want              []string
	}{
		{"", "", []string{"app/a", "app/b/1", "app/b/2", "app/c/1/x", "apple", "b"}},
		{"", "/", []string{"app/", "apple", "b"}},
		{"app/", "/", []string{"app/a", "app/b/", "app/c/"}},
		{"app", "", []string{"app/a", "app/b/1", "app/b/2", "app/c/1/x", "apple"}},
	} {
		got, _, err := kv.Keys(tc.prefix, tc.separator, nil)
		must(t, err)
		if !slices.Equal(got, tc.want) {
			t.Errorf("keys of %q by %q: %q, want %q", tc.prefix, tc.separator, got, tc.want)
		}
	}
	if pairs, meta, err := kv.List("nothing/", nil); pairs != nil || err != nil || meta.LastIndex == 0 {
		t.Errorf("an empty list: %+v, %+v, %v", pairs, meta, err)
	}
	if keys, meta, err := kv.Keys("nothing/", "/", nil); keys != nil || err != nil || meta.LastIndex == 0 {
		t.Errorf("no keys: %+v, %+v, %v", keys, meta, err)
	}
}

func TestKV_Deletes(t *testing.T) {
	a := start(t, 2)
	kv := a.client(0).KV()
	for _, key := range []string{"one", "two", "tree/a", "tree/b", "treetop"} {
		_, err := kv.Put(&api.KVPair{Key: key}, nil)
		must(t, err)
	}
	for range 2 { // an absent key is no error
		_, err := kv.Delete("one", nil)
		must(t, err)
	}
	two := get(t, a.client(1), "two")
	for _, tc := range []struct {
		index uint64
		want  bool
	}{{two.ModifyIndex + 1, false}, {two.ModifyIndex, true}} {
		if ok, _, err := kv.DeleteCAS(&api.KVPair{Key: "two", ModifyIndex: tc.index}, nil); ok != tc.want || err != nil {
			t.Errorf("delete-cas at %d: %v, %v", tc.index, ok, err)
		}
	}
	_, err := kv.DeleteTree("tree/", nil)
	must(t, err)
	if keys, _, err := a.client(1).KV().Keys("", "", nil); err != nil || !slices.Equal(keys, []string{"treetop"}) {
		t.Errorf("left %q, %v", keys, err)
	}
}

func TestKV_AcquireRelease(t *testing.T) {
	a := start(t, 2)
	x, y := session(t, a.client(0), &api.SessionEntry{}), session(t, a.client(1), &api.SessionEntry{})
	call := func(what string, f func(*api.KVPair, *api.WriteOptions) (bool, *api.WriteMeta, error), s, value string, want bool) {
		t.Helper()
		ok, _, err := f(&api.KVPair{Key: "k", Value: []byte(value), Flags: 3, Session: s}, nil)
		must(t, err)
		if ok != want {
			t.Errorf("%s: %v, want %v", what, ok, want)
		}
	}
	state := func(session string, lockIndex uint64, value string) {
		t.Helper()
		if p := get(t, a.client(1), "k"); p.Session != session || p.LockIndex != lockIndex || string(p.Value) != value || p.Flags != 3 {
			t.Errorf("key %+v, want session %q, lock index %d, value %q", p, session, lockIndex, value)
		}
	}
	first, second := a.client(0).KV(), a.client(1).KV()
	call("acquire", first.Acquire, x, "1", true)
	state(x, 1, "1")
	call("acquire again", second.Acquire, x, "2", true)
	state(x, 1, "2")
	call("acquire by another session", second.Acquire, y, "3", false)
	call("release by another session", second.Release, y, "4", false)
	state(x, 1, "2")
	call("release", second.Release, x, "5", true)
	state("", 1, "5")
	call("release again", first.Release, x, "6", false)
	call("acquire by another session", second.Acquire, y, "7", true)
	state(y, 2, "7")
	if ok, _, err := first.Acquire(&api.KVPair{Key: "k", Session: absent}, nil); ok || err == nil || !strings.Contains(err.Error(), "invalid session") {
		t.Errorf("acquire by no session: %v, %v", ok, err)
	}
	if ok, _, err := first.Acquire(&api.KVPair{Key: "k", Session: "malformed"}, nil); ok || err == nil {
		t.Errorf("acquire by a malformed ID: %v, %v", ok, err)
	}
}
