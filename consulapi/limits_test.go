package consulapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestLimits_Answer(t *testing.T) {
	a := serve(t, &consulapi.Options{MaxAnswer: 2000})
	for i := range 20 {
		a.do("PUT", fmt.Sprintf("/v1/kv/a/%d", i), strings.Repeat("x", 30))
	}
	a.do("PUT", "/v1/kv/b", strings.Repeat("x", 10000))
	a.exchanges([]exchange{
		{"GET", "/v1/kv/?recurse", "", 413, "the answer has more than 2000 bytes: ask for a longer prefix"},
		{"GET", "/v1/kv/a/1?recurse", "", 200, "[..."},
		{"GET", "/v1/kv/?keys", "", 200, "[..."},
		{"GET", "/v1/kv/b?raw", "", 200, strings.Repeat("x", 10000)},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get-tree","Key":""}}]`, 413, "the answer has more than 2000 bytes..."},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"b"}},{"KV":{"Verb":"get","Key":"b"}}]`, 413, "the answer has more than 2000 bytes..."},
		{"GET", "/v1/kv/a?" + strings.Repeat("x", 16<<10+1), "", 413, "query of 16385 bytes..."},
	})
}

// Clients of the API and the program of the node use up none of each other's checks.
func TestLimits_Checks(t *testing.T) {
	node := grouptest.Alone(t)
	a := serveNode(t, node, nil)
	register := func(name string) int {
		return a.do("PUT", "/v1/agent/check/register", `{"Name": "`+name+`", "TTL": "1h"}`).status
	}
	for i := range 256 {
		if status := register(fmt.Sprint("c", i)); status != http.StatusOK {
			t.Fatal(i, status)
		}
	}
	if status := register("more"); status != http.StatusTooManyRequests {
		t.Error("one more check of a client:", status)
	}
	grouptest.MustCheck(t, node, "own", 0)
	a.do("PUT", "/v1/agent/check/deregister/c7")
	if status := register("more"); status != http.StatusOK {
		t.Error("after another was deregistered:", status)
	}
}

// Bodies that do not arrive keep no memory without a bound, and large transactions, whose
// authorization is in the body, take no place of small ones and of other writes.
func TestLimits_Bodies(t *testing.T) {
	send := sender(t, &consulapi.Options{Timeout: time.Second})
	var all sync.WaitGroup
	slow, end := io.Pipe()
	var began sync.WaitGroup
	began.Add(32)
	for range 32 {
		all.Go(func() {
			body := &announced{Reader: slow, read: sync.OnceFunc(began.Done)}
			if status := send("/v1/txn", io.MultiReader(strings.NewReader(strings.Repeat(" ", 16<<10)), body)); status != http.StatusBadRequest {
				t.Error(status)
			}
		})
	}
	began.Wait()
	if status := send("/v1/txn", strings.NewReader("[]"+strings.Repeat(" ", 16<<10))); status != http.StatusTooManyRequests {
		t.Error("one more large transaction:", status)
	}
	if status := send("/v1/txn", strings.NewReader("[]")); status != http.StatusOK {
		t.Error("a small transaction:", status)
	}
	if status := send("/v1/kv/a", strings.NewReader("x")); status != http.StatusOK {
		t.Error("another write:", status)
	}
	grouptest.Must(t, end.Close())
	all.Wait()
	if status := send("/v1/txn", strings.NewReader("[]"+strings.Repeat(" ", 16<<10))); status != http.StatusOK {
		t.Error("afterwards:", status)
	}
}

// Clients of Consul do not retry 429, so a burst of small writes waits instead.
func TestLimits_BurstOfSmallBodies(t *testing.T) {
	send := sender(t, nil)
	var all, began sync.WaitGroup
	const n = 300
	began.Add(n)
	slow, end := io.Pipe()
	for i := range n {
		all.Go(func() {
			body := io.MultiReader(strings.NewReader("x"), &announced{Reader: slow, read: sync.OnceFunc(began.Done)})
			if status := send(fmt.Sprintf("/v1/kv/a/%d", i), body); status != http.StatusOK {
				began.Done() // it was refused before its body was read
				t.Error(status)
			}
		})
	}
	began.Wait()
	grouptest.Must(t, end.Close())
	all.Wait()
}

// sender returns a function that sends the handler of a group of one a PUT.
func sender(t *testing.T, opts *consulapi.Options) func(path string, body io.Reader) (status int) {
	h := consulapi.Handler(grouptest.Alone(t), opts)
	return func(path string, body io.Reader) int {
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "http://localhost"+path, body)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
}

// A transaction is decoded before it is authorized, so that takes no multiple of its body.
func TestLimits_MemoryOfTransaction(t *testing.T) {
	send := sender(t, nil)
	var names strings.Builder
	for i := range 140_000 {
		fmt.Fprintf(&names, `"%x":0,`, i)
	}
	for name, body := range map[string]string{
		"operations":    "[" + strings.Repeat("0,", 1<<20-2) + "0]",
		"fields":        `[{"KV":{` + names.String() + `"z":0}}]`,
		"unknown value": `[{"Foo":[` + strings.Repeat(`[],`, 600_000) + `[]]}]`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if status := send("/v1/txn", strings.NewReader(body)); status < 400 {
			t.Error(name, status)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 40 {
			t.Errorf("%s: %d MiB for a body of 2 MiB", name, n)
		}
	}
}

// announced reports its first Read.
type announced struct {
	io.Reader
	read func()
}

func (a *announced) Read(p []byte) (int, error) {
	a.read()
	return a.Reader.Read(p)
}

// The server does not notice that a client is gone whose body is unread.
func TestBlocking_ClientWithBodyGone(t *testing.T) {
	a := serve(t, &consulapi.Options{MaxBlocking: 1})
	a.do("PUT", "/v1/kv/a", "x")
	index := a.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
	c, err := net.Dial("tcp", a.Listener.Addr().String())
	grouptest.Must(t, err)
	send := func() error {
		_, err := fmt.Fprintf(c, "GET /v1/kv/a?wait=1m&index=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", index)
		return err
	}
	grouptest.Must(t, send())
	go func() { // again, if one of the other queries had the only place
		for r := bufio.NewReader(c); ; {
			got, err := http.ReadResponse(r, nil)
			if err != nil || got.StatusCode != http.StatusTooManyRequests {
				return
			}
			_, _ = io.Copy(io.Discard, got.Body)
			if got.Body.Close() != nil || send() != nil {
				return
			}
		}
	}()
	other := func() int { return a.do("GET", "/v1/kv/a?wait=1ms&index="+index).status }
	eventually(t, "the query waits", func() bool { return other() == http.StatusTooManyRequests })
	grouptest.Must(t, c.Close())
	eventually(t, "the query has ended", func() bool { return other() == http.StatusOK })
}

// A listing whose request has a body that does not arrive keeps no place for listings.
func TestListing_UnsentBody(t *testing.T) {
	a := serve(t, &consulapi.Options{Timeout: 2 * time.Second})
	for i := range 4 {
		a.do("PUT", fmt.Sprintf("/v1/kv/a/%d", i), strings.Repeat("x", 400<<10))
	}
	for range 2 {
		c, err := net.Dial("tcp", a.Listener.Addr().String())
		grouptest.Must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "GET /v1/kv/?recurse HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
		grouptest.Must(t, err)
	}
	time.Sleep(300 * time.Millisecond) // they are with the handler; if not, the test cannot fail
	if got := a.do("GET", "/v1/kv/?recurse"); got.status != http.StatusOK {
		t.Error(got.status, got.body)
	}
}

// Clients that do not read a large listing keep small ones waiting no longer than their own.
func TestListing_SlowReaders(t *testing.T) {
	a := serve(t, &consulapi.Options{Timeout: 5 * time.Second})
	for i := range 30 {
		a.do("PUT", fmt.Sprintf("/v1/kv/a/%d", i), strings.Repeat("x", 500<<10))
	}
	for range 2 {
		c, err := net.Dial("tcp", a.Listener.Addr().String())
		grouptest.Must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "GET /v1/kv/a?recurse HTTP/1.1\r\nHost: localhost\r\n\r\n")
		grouptest.Must(t, err)
		status := make([]byte, len("HTTP/1.1 200")) // then it has its place, and reads no more
		_, err = io.ReadFull(c, status)
		if grouptest.Must(t, err); string(status) != "HTTP/1.1 200" {
			t.Fatalf("%q", status)
		}
	}
	if got := a.do("GET", "/v1/kv/a?recurse"); got.status != http.StatusTooManyRequests {
		t.Error("two clients do not read, and a third one gets as large an answer:", got.status)
	}
	if got := a.do("GET", "/v1/kv/b?recurse"); got.status != http.StatusNotFound {
		t.Error(got.status, got.body)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(end) {
			t.Fatal("not within 20 s:", what)
		}
		time.Sleep(10 * time.Millisecond) // the server signals neither
	}
}
