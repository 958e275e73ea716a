package consulapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// endless is a body without an end, of which it counts what is read.
type endless struct{ read int64 }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	e.read += int64(len(b))
	return len(b), nil
}

func (e *endless) Close() error { return nil }

// bodyBounds are the bounds of the bodies that are used, in bytes. All others are skipped, within
// smallBody.
func bodyBounds() map[string]int64 {
	return map[string]int64{
		"PUT /v1/kv/":                  maxValue,
		"PUT /v1/txn":                  maxTxn,
		"PUT /v1/session/create":       maxSessionBody,
		"PUT /v1/agent/check/register": maxCheckBody,
		"PUT /v1/agent/check/update/":  maxCheckBody,
	}
}

// Of every route and method the body and the query have a bound, and what is one beyond it is
// refused: when its length is announced, before a byte is read.
func TestRoutes_BoundedByBytes(t *testing.T) {
	h, stated := Handler(grouptest.Alone(t), nil), bodyBounds()
	send := func(method, target string, length int64) (status int, read int64) {
		body := new(endless)
		r := httptest.NewRequest(method, target, body)
		r.ContentLength, r.RemoteAddr, r.Host = length, "127.0.0.1:5000", "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, body.read
	}
	for _, route := range routes() {
		for method, a := range route.methods {
			name := method + " " + route.path
			bound, uses := stated[name]
			delete(stated, name)
			switch {
			case a.body && !uses:
				t.Errorf("%s uses a body, of which no bound is stated", name)
				continue
			case !a.body && uses:
				t.Errorf("%s has a bound, but uses no body", name)
				continue
			case !a.body:
				bound = smallBody - 1
			}
			target := route.path
			if route.prefix {
				target += "x"
			}
			const slack = 4 << 10 // read together with what decides
			if status, read := send(method, target, -1); status != http.StatusRequestEntityTooLarge || read > bound+slack {
				t.Errorf("%s without a length: %d, and %d bytes were read of at most %d", name, status, read, bound)
			}
			if status, read := send(method, target, bound+1); status != http.StatusRequestEntityTooLarge || read > 0 {
				t.Errorf("%s announces %d bytes: %d, and %d were read", name, bound+1, status, read)
			}
			if status, read := send(method, target+"?token="+strings.Repeat("x", maxQuery), 1); status != http.StatusRequestEntityTooLarge || read > 0 {
				t.Errorf("%s with a long query: %d, and %d bytes were read", name, status, read)
			}
		}
	}
	for name := range stated {
		t.Errorf("there is a bound for %s, which is not served", name)
	}
}

// A transaction that reads many bytes, which are copied, keeps one of the places of listings until it
// has made its answer. Others need none.
func TestTxn_PlaceForManyBytes(t *testing.T) {
	node := grouptest.Alone(t)
	h, impatient := Handler(node, &Options{Timeout: time.Minute}).(*server), Handler(node, &Options{Timeout: 2 * time.Second}).(*server)
	impatient.listings = h.listings
	for i := range 3 {
		_, err := node.KV().Put(t.Context(), fmt.Sprint(i), make([]byte, maxValue))
		grouptest.Must(t, err)
	}
	txn := func(h http.Handler, verbs ...string) int {
		var ops []string
		for _, verb := range verbs {
			for i := range 3 {
				ops = append(ops, fmt.Sprintf(`{"KV":{"Verb":%q,"Key":"%d"}}`, verb, i))
			}
		}
		r := httptest.NewRequest(http.MethodPut, "/v1/txn", strings.NewReader("["+strings.Join(ops, ",")+"]"))
		r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, want := range map[int]int{0: http.StatusOK, maxListings: http.StatusTooManyRequests} {
		for range i {
			h.listings <- struct{}{}
		}
		reader := h
		if want != http.StatusOK {
			reader = impatient // only what is refused waits for all of the timeout
		}
		for name, status := range map[string]int{"reads": txn(reader, "get"), "reads and writes": txn(reader, "get", "delete")} {
			if status != want {
				t.Errorf("%s while %d listings are collected: %d, want %d", name, i, status, want)
			}
		}
		if status := txn(h, "delete"); status != http.StatusOK {
			t.Errorf("writes while %d listings are collected: %d", i, status)
		}
		for range i {
			<-h.listings
		}
		for i := range 3 {
			_, err := node.KV().Put(t.Context(), fmt.Sprint(i), make([]byte, maxValue))
			grouptest.Must(t, err)
		}
	}
	if len(h.listings) != 0 {
		t.Errorf("%d places are kept", len(h.listings))
	}
}

// panicking is a body of the application's that panics behind its first bytes.
type panicking struct{ left int }

func (p *panicking) Read(b []byte) (int, error) {
	if p.left == 0 {
		panic("a body")
	}
	n := min(p.left, len(b))
	p.left -= n
	return n, nil
}

// A body that panics or ends early keeps no place.
func TestBody_PlaceAfterPanic(t *testing.T) {
	h := Handler(grouptest.Alone(t), nil).(*server)
	send := func(path string, body io.Reader) {
		defer func() { _ = recover() }()
		r := httptest.NewRequest(http.MethodPut, path, body)
		r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, path := range []string{"/v1/kv/a", "/v1/txn", "/v1/session/create"} {
		send(path, &panicking{left: smallBody})
		send(path, iotest.TimeoutReader(&panicking{left: 2 * smallBody}))
		send(path, new(endless))
	}
	if h.bodies.used+h.txns.used > 0 {
		t.Errorf("%d places are kept", h.bodies.used+h.txns.used)
	}
}
