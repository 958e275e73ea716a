package consulapi_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// begin starts a request in the background, and repeats it while others have all places.
func (a *agent) begin(ctx context.Context, path string) (wait func() (answer, error)) {
	done := make(chan struct{})
	var got answer
	var err error
	go func() {
		defer close(done)
		for got.status = 429; err == nil && got.status == 429; {
			got, err = a.try(ctx, "GET", path, nil)
		}
	}()
	return func() (answer, error) {
		<-done
		return got, err
	}
}

// until repeats a request that waits a little until it has that status.
func (a *agent) until(path string, status int) {
	a.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); a.do("GET", path).status != status; {
		if time.Now().After(deadline) {
			a.t.Fatalf("%s is never %d", path, status)
		}
	}
}

func TestBlocking_AnswersAtAChange(t *testing.T) {
	a := serve(t, nil)
	a.do("PUT", "/v1/kv/a/b", "1")
	index := a.do("GET", "/v1/kv/a/b").header.Get("X-Consul-Index")
	waits := make(map[string]func() (answer, error))
	for _, path := range []string{"a/b?raw", "a/b?raw&stale", "a/?recurse", "a/?keys", "?keys&separator=/", "a/b?consistent"} {
		sign := "?"
		for _, r := range path {
			if r == '?' {
				sign = "&"
			}
		}
		waits[path] = a.begin(t.Context(), "/v1/kv/"+path+sign+"index="+index)
	}
	other := a.begin(t.Context(), "/v1/kv/a?index="+index+"&wait=50ms")
	if got, err := other(); err != nil || got.status != 404 {
		t.Error("timed out:", got, err)
	}
	a.do("PUT", "/v1/kv/other", "")
	a.do("PUT", "/v1/kv/a/b", "2")
	for path, wait := range waits {
		got, err := wait()
		if err != nil || got.status != 200 || got.header.Get("X-Consul-Index") <= index && len(got.header.Get("X-Consul-Index")) == len(index) {
			t.Errorf("%s: %+v %v", path, got, err)
		}
		if (path == "a/b?raw" || path == "a/b?raw&stale") && got.body != "2" {
			t.Errorf("%s: %q", path, got.body)
		}
	}
	deletion := a.begin(t.Context(), "/v1/kv/a/b?index="+a.do("GET", "/v1/kv/a/b").header.Get("X-Consul-Index"))
	a.do("DELETE", "/v1/kv/a/b")
	if got, err := deletion(); err != nil || got.status != 404 {
		t.Error("deleted:", got, err)
	}
}

func TestBlocking_Index(t *testing.T) {
	a := serve(t, nil)
	if got := a.do("GET", "/v1/kv/a"); got.header.Get("X-Consul-Index") != "1" {
		t.Error("of an empty store:", got)
	}
	if got := a.do("GET", "/v1/kv/a?index=1&wait=20ms"); got.status != 404 {
		t.Error(got)
	}
	began := time.Now()
	if got := a.do("GET", "/v1/kv/a?index=18446744073709551615"); got.status != 404 || time.Since(began) > 30*time.Second {
		t.Error("of the future:", got)
	}
	for _, path := range []string{"/v1/agent/checks", "/v1/agent/self", "/v1/agent/members", "/v1/status/leader", "/v1/status/peers"} {
		if got := a.do("GET", path+"?index=1"); got.status != 200 {
			t.Error(path, got)
		}
	}
}

func TestBlocking_Ends(t *testing.T) {
	n := grouptest.Alone(t)
	a := serveHandler(t, n, consulapi.Unreplaced(consulapi.Handler(n, &consulapi.Options{MaxBlocking: 2})))
	a.do("PUT", "/v1/kv/a", "1")
	path := "/v1/kv/a?index=" + a.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
	ctx, cancel := context.WithCancel(t.Context())
	gone, stopped := a.begin(ctx, path), a.begin(t.Context(), path)
	a.until(path+"&wait=1ms", 429)
	cancel()
	if _, err := gone(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.until(path+"&wait=1ms", 200)
	grouptest.Must(t, a.node.Close(t.Context()))
	if got, err := stopped(); err != nil || got.status != 500 {
		t.Error(got, err)
	}
	a.Server.Close() // blocks until all handlers have returned
}

// A thousand queries wait, and others are answered as before.
func TestBlocking_Thousand(t *testing.T) {
	a := serve(t, &consulapi.Options{Timeout: time.Minute}) // all read at once after the last write
	a.do("PUT", "/v1/kv/a", "1")
	index := a.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 1000 {
		all.Go(func() {
			got, err := a.try(ctx, "GET", "/v1/kv/a?raw&index="+index, nil)
			if err != nil || got.body != "2" {
				t.Error(got, err)
			}
		})
	}
	for i := range 50 {
		if got := a.do("PUT", fmt.Sprintf("/v1/kv/other%d", i), "x"); got.body != "true" {
			t.Fatal(got)
		}
	}
	a.do("PUT", "/v1/kv/a", "2")
	all.Wait()
}

// The state that answers a blocking query is that of its end, so ?max_stale bounds it then: not only when the wait begins.
func TestBlocking_MaxStaleAtItsEnd(t *testing.T) {
	g := grouptest.Start(t, 3)
	patient := serveNode(t, g.Nodes[0], &consulapi.Options{Timeout: time.Minute})
	patient.exchanges([]exchange{{"PUT", "/v1/kv/a", "1", 200, "true"}})
	index := patient.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
	a := serveNode(t, g.Nodes[0], &consulapi.Options{Timeout: time.Second})
	bounded := a.begin(t.Context(), "/v1/kv/a?max_stale=1h&wait=10s&index="+index)
	stale := a.begin(t.Context(), "/v1/kv/a?stale&wait=10s&index="+index)
	grouptest.Pass(time.Second)
	g.Kill(1, 2)
	if got, err := stale(); err != nil || got.status != 200 || got.header.Get("X-Consul-KnownLeader") != "false" {
		t.Error(got, err)
	}
	if got, err := bounded(); err != nil || got.status != 500 {
		t.Errorf("no leader is known at the end of the wait: %v, %v", got, err)
	}
}
