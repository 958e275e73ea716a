package consultest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func TestBlocking_ReturnsAtWaitTime(t *testing.T) {
	a := start(t, 2)
	_, err := a.client(0).KV().Put(&api.KVPair{Key: "k", Value: []byte("v")}, nil)
	must(t, err)
	const wait = 300 * time.Millisecond
	kv := a.client(1).KV()
	reads := map[string]func(*api.QueryOptions) (*api.QueryMeta, error){
		"key":    func(q *api.QueryOptions) (*api.QueryMeta, error) { _, m, err := kv.Get("k", q); return m, err },
		"absent": func(q *api.QueryOptions) (*api.QueryMeta, error) { _, m, err := kv.Get("absent", q); return m, err },
		"list":   func(q *api.QueryOptions) (*api.QueryMeta, error) { _, m, err := kv.List("k", q); return m, err },
		"keys":   func(q *api.QueryOptions) (*api.QueryMeta, error) { _, m, err := kv.Keys("", "/", q); return m, err },
		"nothing": func(q *api.QueryOptions) (*api.QueryMeta, error) {
			_, m, err := kv.List("nothing/", q)
			return m, err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			now, err := read(nil)
			must(t, err)
			began := time.Now()
			later, err := read(&api.QueryOptions{WaitIndex: now.LastIndex, WaitTime: wait})
			must(t, err)
			if waited := time.Since(began); waited < wait {
				t.Errorf("returned after %v without a change, want at least %v", waited, wait)
			}
			if now.LastIndex == 0 || later.LastIndex < now.LastIndex {
				t.Errorf("index %d after %d", later.LastIndex, now.LastIndex)
			}
		})
	}
}

// Each change of what is read ends the query long before its wait time.
func TestBlocking_ReturnsAtChange(t *testing.T) {
	a := start(t, 3)
	w := a.client(0)
	id := session(t, w, &api.SessionEntry{LockDelay: time.Millisecond})
	kv := w.KV()
	steps := []struct {
		name string
		do   func() error
	}{
		{"put", func() error { _, err := kv.Put(&api.KVPair{Key: "w/k", Value: []byte("1")}, nil); return err }},
		{"put again", func() error { _, err := kv.Put(&api.KVPair{Key: "w/k", Value: []byte("2")}, nil); return err }},
		{"acquire", func() error { _, _, err := kv.Acquire(&api.KVPair{Key: "w/k", Session: id}, nil); return err }},
		{"session end", func() error { _, err := w.Session().Destroy(id, nil); return err }},
		{"delete", func() error { _, err := kv.Delete("w/k", nil); return err }},
		{"put after delete", func() error { _, err := kv.Put(&api.KVPair{Key: "w/k", Value: []byte("3")}, nil); return err }},
		{"delete tree", func() error { _, err := kv.DeleteTree("w/", nil); return err }},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			var waiting sync.WaitGroup
			for i := range 3 {
				r := a.client(i).KV()
				_, now, err := r.Get("w/k", nil)
				must(t, err)
				_, list, err := r.List("w/", nil)
				must(t, err)
				waiting.Go(func() {
					_, m, err := r.Get("w/k", (&api.QueryOptions{WaitIndex: now.LastIndex, WaitTime: 2 * patience}).WithContext(bounded(t)))
					returned(t, "get", now, m, err)
				})
				waiting.Go(func() {
					_, m, err := r.List("w/", (&api.QueryOptions{WaitIndex: list.LastIndex, WaitTime: 2 * patience}).WithContext(bounded(t)))
					returned(t, "list", list, m, err)
				})
			}
			must(t, step.do())
			waiting.Wait()
		})
	}
}

// returned checks the index of a query that a change has ended.
func returned(t testing.TB, what string, before, after *api.QueryMeta, err error) {
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if after.LastIndex <= before.LastIndex {
		t.Errorf("%s: index %d after %d", what, after.LastIndex, before.LastIndex)
	}
}

// A reader that follows the index sees the last of all writes, and its index never goes back.
func TestBlocking_FollowsWriters(t *testing.T) {
	const writes = 40
	a := start(t, 3)
	var running sync.WaitGroup
	for i := range 3 {
		running.Go(func() {
			for n := range writes {
				pair := &api.KVPair{Key: fmt.Sprintf("f/%d", i), Value: fmt.Append(nil, n+1)}
				if _, err := a.client(i).KV().Put(pair, nil); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
		running.Go(func() { follow(t, a.client(i), fmt.Sprint(writes)) })
	}
	running.Wait()
}

// follow reads until all three keys have the last value.
func follow(t testing.TB, c *api.Client, last string) {
	q := (&api.QueryOptions{WaitTime: patience}).WithContext(bounded(t))
	for {
		pairs, meta, err := c.KV().List("f/", q)
		if err != nil {
			t.Errorf("list: %v", err)
			return
		}
		if meta.LastIndex == 0 || meta.LastIndex < q.WaitIndex {
			t.Errorf("index %d after %d", meta.LastIndex, q.WaitIndex)
			return
		}
		done := 0
		for _, p := range pairs {
			if string(p.Value) == last {
				done++
			}
		}
		if done == 3 {
			return
		}
		q.WaitIndex = meta.LastIndex
	}
}

// An index of the future, as after a restored backup, blocks no longer than the wait time.
func TestBlocking_IndexOfTheFuture(t *testing.T) {
	a := start(t, 1)
	_, err := a.client(0).KV().Put(&api.KVPair{Key: "k"}, nil)
	must(t, err)
	q := (&api.QueryOptions{WaitIndex: 1 << 40, WaitTime: 100 * time.Millisecond}).WithContext(bounded(t))
	if pair, meta, err := a.client(0).KV().Get("k", q); err != nil || pair == nil || meta.LastIndex == 0 || meta.LastIndex >= 1<<40 {
		t.Errorf("get: %+v, %+v, %v", pair, meta, err)
	}
}
