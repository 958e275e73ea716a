package fencing_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// A server that runs while its process leads, as in Election.Run, has the process's own fence in the
// base context of its requests. A client that sends none must not act under it.
func TestMiddleware_FenceOfTheServerItself(t *testing.T) {
	own := conclave.ContextWithFence(t.Context(), 99)
	held := fencing.ContextWithToken(own, fencing.Token{Lock: "a", Fence: 99})
	reads := func(*http.Request) []string { return nil }
	for _, c := range []struct {
		name   string
		base   context.Context
		locks  func(*http.Request) []string
		header string
		want   conclave.Fence // of lock a
	}{
		{"no token", own, nil, "", 0},
		{"a token", own, nil, "a=7", 7},
		{"two tokens", own, nil, "a=7, b=8", 7},
		{"a token for another lock", own, nil, "b=8", 0},
		{"a request that needs none", own, reads, "a=7", 0},
		{"no token, the server has one", held, nil, "", 0},
	} {
		var ctx context.Context
		m := fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard)}, Locks: c.locks}
		handler := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }))
		r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(c.base)
		if c.header != "" {
			r.Header.Set(fencing.Header, c.header)
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if f, err := fencing.FenceFromContext(ctx, "a"); f != c.want || errors.Is(err, fencing.ErrMissing) != (c.want == 0) {
			t.Errorf("%s: fence %v, %v, want %v", c.name, f, err, c.want)
		}
		if f, ok := conclave.FenceFromContext(ctx); ok && f == 99 {
			t.Errorf("%s: the context has the server's own fence", c.name)
		}
		if value, err := fencing.Outgoing(ctx, "x"); value == "x=99" || value == "" && !errors.Is(err, fencing.ErrMissing) {
			t.Errorf("%s: a request of the handler has %q, %v", c.name, value, err)
		}
	}
}
