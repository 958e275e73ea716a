package consultest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/hashicorp/consul/api"
)

// fault is what a relay does with a request.
type fault int

const (
	pass      fault = iota
	cutBefore       // the connection breaks before the handler gets the request
	cutAfter        // the connection breaks after the handler has answered
	twice           // the handler gets the request two times, one after the other, and the client the first answer
)

// relay is a bad network between a client and a handler. It applies a fault to the next write, once.
type relay struct {
	t       *testing.T
	handler http.Handler

	mu      sync.Mutex
	next    fault
	between func()     // runs between the two times of twice
	answers []response // of the handler, to the write with the fault
}

type response struct {
	status int
	body   string
}

// through returns a client that reaches a member through a relay.
func through(t *testing.T, a *agents, i int) (*api.Client, *relay) {
	t.Helper()
	r := &relay{t: t, handler: a.servers[i].Config.Handler}
	return dial(t, a.serve(r).URL), r
}

// arm applies a fault to the next write.
func (r *relay) arm(f fault, between func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.between, r.answers = f, between, nil
}

// answered returns what the handler has answered since arm.
func (r *relay) answered() []response {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f, between := pass, func() {}
	if req.Method != http.MethodGet {
		r.mu.Lock()
		f, r.next = r.next, pass
		if r.between != nil {
			between = r.between
		}
		r.mu.Unlock()
	}
	if f == pass {
		r.handler.ServeHTTP(w, req)
		return
	}
	if f == cutBefore {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Errorf("relay: %v", err)
	}
	first := r.handle(req, body)
	if f == cutAfter {
		panic(http.ErrAbortHandler)
	}
	between()
	r.handle(req, body)
	maps.Copy(w.Header(), first.Header())
	w.WriteHeader(first.Code)
	_, _ = w.Write(first.Body.Bytes()) // a client that is gone is its test's failure
}

// handle passes a request to the handler, and records its answer.
func (r *relay) handle(req *http.Request, body []byte) *httptest.ResponseRecorder {
	w, copied := httptest.NewRecorder(), req.Clone(req.Context())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	r.handler.ServeHTTP(w, copied)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, response{w.Code, string(bytes.TrimSpace(w.Body.Bytes()))})
	return w
}
