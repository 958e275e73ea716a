package consulapi_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// The index of an answer is never smaller than that of a change in it, whatever other clients
// write meanwhile: the next blocking query does not return the same change again.
func TestIndex_CoversTheAnswer(t *testing.T) {
	a := serve(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := a.node.KV().Put(t.Context(), fmt.Sprint("k", w), []byte(strconv.Itoa(i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer stop()
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		for _, path := range []string{"/v1/kv/k0", "/v1/kv/k?recurse"} {
			got := a.do("GET", path)
			if got.status == 404 {
				continue // before the first write
			}
			index, err := strconv.ParseUint(got.header.Get("X-Consul-Index"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range decode[[]struct{ ModifyIndex uint64 }](t, got) {
				if e.ModifyIndex > index {
					t.Fatalf("%s: index %d, and a key was changed at %d", path, index, e.ModifyIndex)
				}
			}
		}
	}
}

// A change that the node no longer remembers, since it has been started again, ends a query at once.
func TestIndex_FromBeforeTheStart(t *testing.T) {
	cfg := &conclave.Config{Dir: t.TempDir()}
	var index string
	for life := range 2 {
		node, err := conclave.Open(t.Context(), cfg)
		grouptest.Must(t, err)
		a := serveNode(t, node, nil)
		if life == 0 {
			a.do("PUT", "/v1/kv/a", "1")
			index = a.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
			a.do("PUT", "/v1/kv/a", "2")
		} else if got := a.do("GET", "/v1/kv/a?raw&wait=1m&index="+index); got.body != "2" {
			t.Error(got)
		}
		grouptest.Must(t, node.Close(t.Context()))
	}
}

// A client may wait with the ModifyIndex of a key, which is older than all that the node buffers once it has been
// started again, or after many changes of other keys. The query waits for the key all the same.
func TestIndex_ModifyIndexOfOldKey(t *testing.T) {
	cfg := &conclave.Config{Dir: t.TempDir()}
	node, err := conclave.Open(t.Context(), cfg)
	grouptest.Must(t, err)
	e, err := node.KV().Put(t.Context(), "leader", []byte("1"))
	grouptest.Must(t, err)
	_, err = node.KV().Put(t.Context(), "other", nil)
	grouptest.Must(t, err)
	grouptest.Must(t, node.Close(t.Context()))

	node, err = conclave.Open(t.Context(), cfg)
	grouptest.Must(t, err)
	defer node.Close(t.Context())
	a := serveNode(t, node, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		answer
		err error
	}
	answered := make(chan result, 3)
	for _, query := range []string{"", "&stale", "&consistent"} {
		wait := a.begin(ctx, fmt.Sprintf("/v1/kv/leader?raw&index=%d%s", e.ModifyIndex, query))
		go func() {
			got, err := wait()
			answered <- result{got, err}
		}()
	}
	// The queries are under way for all that these take: one that did not wait would be answered before the last. They
	// share syncs of the disk, which may be slow.
	var writers sync.WaitGroup
	for i := range 200 {
		writers.Go(func() {
			if _, err := node.KV().Put(t.Context(), "other", []byte{byte(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	select {
	case got := <-answered:
		t.Fatal("a query did not wait:", got.answer, got.err)
	default:
	}
	_, err = node.KV().Put(t.Context(), "leader", []byte("2"))
	grouptest.Must(t, err)
	for range 3 {
		if got := <-answered; got.err != nil || got.status != 200 || got.body != "2" {
			t.Error(got.answer, got.err)
		}
	}
}
