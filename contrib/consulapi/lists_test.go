package consulapi_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A blocking query of a list is answered when the list changes, with a larger index, and after its wait
// with the same one.
func TestLists_Block(t *testing.T) {
	a := serve(t, nil)
	own := a.node.Status().Name
	for path, content := range map[string]string{
		"/v1/session/list":          `"Name":"new"`,
		"/v1/session/node/" + own:   `"Name":"new"`,
		"/v1/health/node/" + own:    `"serfHealth"`,
		"/v1/health/state/any":      `"serfHealth"`,
		"/v1/health/checks/none":    "[]",
		"/v1/catalog/nodes":         own,
		"/v1/catalog/node/" + own:   own,
		"/v1/catalog/services":      "{}",
		"/v1/event/list":            "[]",
		"/v1/session/list?stale":    `"Name":"new"`,
		"/v1/catalog/nodes?pretty=": own,
	} {
		sign := "?"
		if strings.Contains(path, "?") {
			sign = "&"
		}
		first := a.do("GET", path)
		index := first.header.Get("X-Consul-Index")
		timed := a.do("GET", path+sign+"wait=20ms&index="+index)
		if timed.status != 200 || timed.body != first.body || timed.header.Get("X-Consul-Index") != index {
			t.Errorf("%s: after the wait %+v, before it %+v", path, timed, first)
		}
		pending := a.begin(t.Context(), path+sign+"index="+index)
		id := a.create(`{"Name":"new"}`)
		got, err := pending()
		if err != nil || got.status != 200 || !strings.Contains(got.body, content) || larger(got.header.Get("X-Consul-Index"), index) <= 0 {
			t.Errorf("%s: %+v, %v; the index was %s", path, got, err, index)
		}
		if again := a.do("GET", path+sign+"index="+index); again.status != 200 { // it has passed: at once
			t.Errorf("%s: %+v", path, again)
		}
		a.do("PUT", "/v1/session/destroy/"+id)
	}
}

// larger compares two numbers that are written without leading zeros.
func larger(x, y string) int {
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(x, y)
}

// A blocking query of one session is not answered when another session begins or ends, and it is when its own ends.
func TestLists_OneSession(t *testing.T) {
	a := serve(t, nil)
	id := a.create(`{"Name":"wanted"}`)
	path := "/v1/session/info/" + id
	index := a.do("GET", path).header.Get("X-Consul-Index")
	pending := a.begin(t.Context(), path+"?index="+index)
	for range 20 {
		other := a.create("{}")
		a.do("PUT", "/v1/session/destroy/"+other)
		// The index has passed, and the session is as it was: it blocks.
		if got := a.do("GET", path+"?wait=1ms&index="+index); !strings.Contains(got.body, id) {
			t.Fatal(got)
		}
	}
	a.do("PUT", "/v1/session/destroy/"+id)
	got, err := pending()
	if err != nil || got.status != 200 || got.body != "[]" {
		t.Errorf("%+v, %v", got, err)
	}
	if got := a.do("GET", path+"?index="+index); got.status != 200 || got.body != "[]" {
		t.Errorf("of a session that has ended since: %+v", got)
	}
	late := a.create("{}")
	if got := a.do("GET", "/v1/session/info/"+late+"?index="+index); !strings.Contains(got.body, late) {
		t.Errorf("of a session that was created since: %+v", got)
	}
}

// A token that is revoked meanwhile ends no query with an answer.
func TestLists_Revoked(t *testing.T) {
	var revoked atomic.Bool
	a := serve(t, &consulapi.Options{Authorize: func(string, consulapi.Verb, string) error {
		if revoked.Load() {
			return errors.New("revoked")
		}
		return nil
	}})
	id := a.create(`{"Name":"secret"}`)
	for _, path := range []string{"/v1/session/list", "/v1/session/info/" + id, "/v1/catalog/nodes", "/v1/health/state/any"} {
		revoked.Store(false)
		index := a.do("GET", path).header.Get("X-Consul-Index")
		if got := a.do("GET", path+"?wait=1ms&index="+index); got.status != 200 {
			t.Fatal(got)
		}
		pending := a.begin(t.Context(), path+"?wait=2s&index="+index)
		revoked.Store(true)
		if got, err := pending(); err != nil || got.status != 403 || strings.Contains(got.body, "secret") {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
}

// The queries of lists take places like those of keys, and end with the node.
func TestLists_End(t *testing.T) {
	n := grouptest.Alone(t)
	a := serveHandler(t, n, consulapi.Unreplaced(consulapi.Handler(n, &consulapi.Options{MaxBlocking: 1})))
	index := a.do("GET", "/v1/catalog/nodes").header.Get("X-Consul-Index")
	pending := a.begin(t.Context(), "/v1/catalog/nodes?index="+index)
	a.until("/v1/session/list?wait=1ms&index="+index, 429)
	grouptest.Must(t, a.node.Close(t.Context()))
	if got, err := pending(); err != nil || got.status != 500 && got.status != 200 {
		t.Error(got, err)
	}
	a.Server.Close() // blocks until all handlers have returned
}
