package fencing_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// serve starts a server behind the middleware. Its answer is the tokens in the handler's context.
func serve(t *testing.T, m fencing.Middleware) string {
	t.Helper()
	server := httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens, err := json.Marshal(fencing.TokensFromContext(r.Context()))
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(tokens)
	})))
	t.Cleanup(server.Close)
	return server.URL
}

// get sends a request with the values as its header, and returns status and body.
func get(t *testing.T, url string, values ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header[fencing.Header] = values
	return send(t, http.DefaultClient, r)
}

func send(t *testing.T, client *http.Client, r *http.Request) (int, string) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if refused := resp.StatusCode >= 400; refused != (resp.Header.Get("Content-Type") == "application/problem+json") {
		t.Errorf("status %d with content type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, strings.TrimSpace(string(body))
}

func TestMiddleware_Decides(t *testing.T) {
	required := serve(t, fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true}})
	optional := serve(t, fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard)}})
	named := serve(t, fencing.Middleware{
		Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true},
		Locks:  func(*http.Request) []string { return []string{"a", "b", "a"} },
	})
	free := serve(t, fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true}, Locks: func(*http.Request) []string { return nil }})
	for _, step := range []struct {
		name, url string
		values    []string
		status    int
		contains  string
	}{
		{"first", required, []string{"a=5"}, 200, `[{"Lock":"a","Fence":"5"}]`},
		{"equal", required, []string{"a=5"}, 200, `"5"`},
		{"newer", required, []string{"a=1:1"}, 200, `"1:1"`},
		{"stale", required, []string{"a=6"}, 412, `"lock":"a","presented":"6","largest":"1:1"`},
		{"one of two stale", required, []string{"b=9, a=6"}, 412, `"lock":"a"`},
		{"malformed", required, []string{"a=0"}, 400, `"status":400`},
		{"malformed beside another", required, []string{"a=1:1", "b"}, 400, `malformed-fencing-token`},
		{"missing", required, nil, 428, `missing-fencing-token`},
		{"empty", required, []string{""}, 400, `malformed`},
		{"missing and optional", optional, nil, 200, `null`},
		{"malformed and optional", optional, []string{"x"}, 400, `malformed`},
		{"every lock", named, []string{"b=2, c=3, a=1"}, 200, `[{"Lock":"a","Fence":"1"},{"Lock":"b","Fence":"2"}]`},
		{"one of two missing", named, []string{"c=3, a=1"}, 428, `"lock":"b"`},
		{"ignored locks", named, []string{"b=2, c=1, a=1"}, 200, `"b"`},
		{"no lock", free, nil, 200, `null`},
	} {
		status, body := get(t, step.url, step.values...)
		if status != step.status || !strings.Contains(body, step.contains) {
			t.Errorf("%s: got %d %s, want %d %s", step.name, status, body, step.status, step.contains)
		}
	}
}

func TestMiddleware_VerifiedFenceInContext(t *testing.T) {
	var fence conclave.Fence
	var found bool
	m := fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard)}}
	handler := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fence, found = conclave.FenceFromContext(r.Context())
	}))
	for value, want := range map[string]conclave.Fence{"a=7": 7, "a=7, b=8": 0} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(fencing.Header, value)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if fence != want || found != (want != 0) {
			t.Errorf("%s: got %v, %v, want %v", value, fence, found, want)
		}
	}
}

// broken is a guard that cannot decide.
type broken struct{ conclave.Guard }

func (*broken) CheckContext(ctx context.Context, _ string, _ conclave.Fence) error {
	return errors.Join(errors.New("secret"), ctx.Err())
}

func TestMiddleware_GuardFails(t *testing.T) {
	failed := make(chan error, 1)
	url := serve(t, fencing.Middleware{
		Policy: fencing.Policy{Guard: new(broken)},
		Failed: func(_ *http.Request, err error) { failed <- err },
	})
	if status, body := get(t, url, "a=1"); status != 503 || strings.Contains(body, "secret") {
		t.Errorf("got %d %s", status, body)
	}
	if err := <-failed; err.Error() != "secret" {
		t.Errorf("got %v", err)
	}
}

// A server of gRPC does not survive a panic.
func TestPolicy_WithoutGuard(t *testing.T) {
	var p fencing.Policy
	if _, err := p.VerifyAll(t.Context(), []string{"a=1"}); !errors.Is(err, conclave.ErrInvalid) || fencing.ProblemOf(err).Status != 503 {
		t.Errorf("a token: got %v, want ErrInvalid", err)
	}
	if _, err := p.VerifyAll(t.Context(), nil); err != nil {
		t.Errorf("no token: %v", err)
	}
}

// From one process to another: a name arrives as it is, and the refusal comes back as an error.
func TestTransport_HostileNames(t *testing.T) {
	url := serve(t, fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true}})
	for _, name := range hostile {
		client := &http.Client{Transport: &fencing.Transport{Lock: name}}
		for _, f := range []conclave.Fence{8, 7} {
			r, err := http.NewRequestWithContext(conclave.ContextWithFence(t.Context(), f), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			err = fencing.ErrorOf(resp)
			var tokens []fencing.Token
			if f == 8 && (err != nil || json.NewDecoder(resp.Body).Decode(&tokens) != nil || !slices.Equal(tokens, []fencing.Token{{name, 8}})) {
				t.Errorf("%q: got %v, %v", name, tokens, err)
			}
			var named *conclave.Error
			if f == 7 && (!errors.Is(err, conclave.ErrStaleFence) || !errors.As(err, &named) || named.Name != name) {
				t.Errorf("%q: got %v, want ErrStaleFence", name, err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// closer reports whether a request's body was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_KeepsTheContract(t *testing.T) {
	var sent *http.Request
	transport := &fencing.Transport{Lock: "a", Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r
		return nil, io.ErrUnexpectedEOF
	})}
	request := func(ctx context.Context) (*http.Request, *closer) {
		body := &closer{Reader: strings.NewReader("x")}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/", body)
		if err != nil {
			t.Fatal(err)
		}
		return r, body
	}
	r, _ := request(conclave.ContextWithFence(t.Context(), 7))
	if _, err := transport.RoundTrip(r); !errors.Is(err, io.ErrUnexpectedEOF) || sent.Header.Get(fencing.Header) != "a=7" || len(r.Header) != 0 {
		t.Errorf("%v; sent %v, the caller's is now %v", err, sent.Header, r.Header)
	}
	r, _ = request(t.Context())
	if _, err := transport.RoundTrip(r); !errors.Is(err, io.ErrUnexpectedEOF) || sent != r {
		t.Errorf("without a fence: %v", err)
	}
	sent = nil
	r, body := request(fencing.ContextWithLock(t.Context(), "a"))
	if _, err := transport.RoundTrip(r); !errors.Is(err, fencing.ErrMissing) || sent != nil || !body.closed {
		t.Errorf("a lock without a fence: %v; sent %v, body closed %v", err, sent, body.closed)
	}
	r = &http.Request{Method: http.MethodGet, URL: r.URL} // as another RoundTripper may make it
	if _, err := transport.RoundTrip(r.WithContext(conclave.ContextWithFence(t.Context(), 7))); sent == nil || sent.Header.Get(fencing.Header) != "a=7" {
		t.Errorf("without a header map: %v", err)
	}
	transport.CloseIdleConnections()
}

func TestErrorOf_OtherResponses(t *testing.T) {
	for _, c := range []struct {
		status      int
		media, body string
	}{
		{200, "application/problem+json", `{}`},
		{412, "text/plain", "If-Match"},
		{412, "application/problem+json", `{"type":"about:blank","title":"If-Match"}`},
		{412, "application/problem+json", `not JSON`},
		{412, "application/problem+json", strings.Repeat(" ", 1<<17)},
		{400, "application/problem+json; charset=utf-8", `{"type":1}`},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.media}}, Body: io.NopCloser(strings.NewReader(c.body))}
		err := fencing.ErrorOf(resp)
		body, errRead := io.ReadAll(resp.Body)
		if err != nil || errRead != nil || string(body) != c.body {
			t.Errorf("%d %.40q: got %v, and the body %.40q, %v", c.status, c.body, err, body, errRead)
		}
	}
}

// Many clients at once. An answer never has a smaller fence than one that was received before its request.
func TestMiddleware_ConcurrentHolders(t *testing.T) {
	url := serve(t, fencing.Middleware{Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true}})
	client := &http.Client{Transport: &fencing.Transport{Lock: "a"}}
	defer client.CloseIdleConnections()
	var largest, grants atomic.Uint64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				f := conclave.Fence(10 + grants.Add(1)/4 - uint64(i%4))
				before := largest.Load()
				r, err := http.NewRequestWithContext(conclave.ContextWithFence(t.Context(), f), http.MethodGet, url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				switch err := errors.Join(fencing.ErrorOf(resp), resp.Body.Close()); {
				case err == nil && f < conclave.Fence(before):
					t.Errorf("fence %v was accepted after %v", f, before)
				case err == nil:
					raise(&largest, uint64(f))
				case !errors.Is(err, conclave.ErrStaleFence):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func raise(largest *atomic.Uint64, f uint64) {
	for {
		now := largest.Load()
		if f <= now || largest.CompareAndSwap(now, f) {
			return
		}
	}
}
