package consulapi_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
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
	for range 300 {
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
