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

	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestLimits_Answer(t *testing.T) {
	a := serve(t, &consulapi.Options{MaxAnswer: 2000})
	for i := range 20 {
		a.do("PUT", fmt.Sprintf("/v1/kv/a/%d", i), strings.Repeat("x", 30))
	}
	a.do("PUT", "/v1/kv/b", strings.Repeat("x", 10000))
	a.exchanges([]exchange{
		{"GET", "/v1/kv/?recurse", "", 413, "the answer has more than 2000 bytes: list fewer, with a longer prefix or by node"},
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
	send := sender(t, &consulapi.Options{Timeout: 10 * time.Second}) // of small requests as well, on a busy machine
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

// Clients that stop in the middle of a large body keep no others waiting, although nothing has
// authorized them: those that send nothing lose their places.
func TestLimits_StalledBodies(t *testing.T) {
	a := serve(t, nil)
	const part = 17 << 10
	for _, x := range []struct {
		path  string
		n     int
		large string
	}{
		{"/v1/txn", 32, "[" + strings.Repeat(" ", part) + "]"},
		{"/v1/kv/a", 128, strings.Repeat("x", part)},
	} {
		for range x.n {
			c, err := net.Dial("tcp", a.Listener.Addr().String())
			grouptest.Must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			_, err = fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", x.path, 2*part, strings.Repeat(" ", part))
			grouptest.Must(t, err)
		}
		// They may take their places later than this, which then has none to wait for.
		for range 3 {
			if got := a.do("PUT", x.path, x.large); got.status != http.StatusOK {
				t.Errorf("%s: %d %s", x.path, got.status, got.body)
			}
		}
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
	n := grouptest.Alone(t)
	a := serveHandler(t, n, consulapi.Unreplaced(consulapi.Handler(n, &consulapi.Options{MaxBlocking: 1})))
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
	a := serve(t, &consulapi.Options{Timeout: 20 * time.Second}) // less than a body may take to arrive
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

// slowReader sends a request, reads the status of its answer and nothing more.
func (a *agent) slowReader(method, path, body string) {
	a.t.Helper()
	c, err := net.Dial("tcp", a.Listener.Addr().String())
	grouptest.Must(a.t, err)
	a.t.Cleanup(func() { _ = c.Close() })
	grouptest.Must(a.t, c.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	grouptest.Must(a.t, err)
	status := make([]byte, len("HTTP/1.1 200"))
	_, err = io.ReadFull(c, status)
	if grouptest.Must(a.t, err); string(status) != "HTTP/1.1 200" {
		a.t.Fatalf("%q", status)
	}
}

// large puts keys with 500 KiB each.
func (a *agent) large(n int) {
	a.t.Helper()
	for i := range n {
		a.do("PUT", fmt.Sprintf("/v1/kv/a/%d", i), strings.Repeat("x", 500<<10))
	}
}

// Clients that do not read their large answers keep no others waiting, small or as large: what has no
// room is made again once a client that takes nothing is disconnected.
func TestListing_SlowReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("moves tens of megabytes, and TestTxn_SlowReaders has the race detector see the same")
	}
	a := serve(t, &consulapi.Options{MaxAnswer: 32 << 20})
	a.large(30) // 20 MiB as JSON, of 64
	for range 6 {
		a.slowReader("GET", "/v1/kv/a?recurse", "")
	}
	if got := a.do("GET", "/v1/kv/b?recurse"); got.status != http.StatusNotFound {
		t.Error(got.status, got.body)
	}
	if got := a.do("GET", "/v1/kv/a?recurse"); got.status != http.StatusOK || len(got.body) < 20_000_000 {
		t.Error(got.status, len(got.body))
	}
}

// The places of transactions and listings are free while a client reads.
func TestTxn_SlowReaders(t *testing.T) {
	a := serve(t, &consulapi.Options{Timeout: 30 * time.Second}) // less than a client may take to read
	a.large(30)
	ops := make([]string, 10)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"KV":{"Verb":"get","Key":"a/%d"}}`, i)
	}
	gets := "[" + strings.Join(ops, ",") + "]"
	for range 3 {
		a.slowReader("PUT", "/v1/txn", `[{"KV":{"Verb":"get-tree","Key":"a/"}}]`)
	}
	for range 33 {
		a.slowReader("PUT", "/v1/txn", gets)
	}
	for range 3 { // which write as well
		a.slowReader("PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"b","Value":"eA=="}},`+gets[1:])
	}
	a.exchanges([]exchange{
		{"GET", "/v1/kv/none?recurse", "", 404, ""},
		{"GET", "/v1/kv/b?keys", "", 200, `["b"]`},
		{"GET", "/v1/session/list", "", 200, "[]"},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get-or-empty","Key":"none"}}]`, 200, "..."},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"c","Value":"eA=="}}]`, 200, "..."},
	})
	if got := a.do("PUT", "/v1/txn", gets); got.status != http.StatusOK {
		t.Error(got.status, len(got.body))
	}
}

// Clients that do not read a single key take no memory without a bound.
func TestKey_SlowReaders(t *testing.T) {
	a := serve(t, nil)
	a.large(1)
	for range 150 { // 100 MiB as JSON, of 64
		a.slowReader("GET", "/v1/kv/a/0", "")
	}
	if got := a.do("GET", "/v1/kv/a/0"); got.status != http.StatusOK {
		t.Error(got.status, len(got.body))
	}
}

// A connection that is closed behind the first byte of a next request is not noticed as closed.
func TestBlocking_ClosedBehindNextRequest(t *testing.T) {
	a := serve(t, &consulapi.Options{MaxBlocking: 2})
	a.do("PUT", "/v1/kv/a", "x")
	index := a.do("GET", "/v1/kv/a").header.Get("X-Consul-Index")
	path := "/v1/kv/a?index=" + index
	for range 2 {
		c, err := net.Dial("tcp", a.Listener.Addr().String())
		grouptest.Must(t, err)
		_, err = fmt.Fprintf(c, "GET %s&wait=10m HTTP/1.1\r\nHost: localhost\r\n\r\nG", path)
		grouptest.Must(t, err)
		defer c.Close()
		time.Sleep(100 * time.Millisecond) // it is with the handler; if not, the test cannot fail
		grouptest.Must(t, c.Close())
	}
	// Of three that are alive one is answered early, though nothing has changed.
	ended := make(chan answer, 3)
	for range 3 {
		wait := a.begin(t.Context(), path+"&wait=10m")
		go func() {
			got, err := wait()
			if err != nil {
				t.Error(err)
			}
			ended <- got
		}()
	}
	if got := <-ended; got.status != http.StatusOK || got.header.Get("X-Consul-Index") != index {
		t.Errorf("%+v", got)
	}
	a.do("PUT", "/v1/kv/a", "y")
	for range 2 {
		if got := <-ended; got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	end := time.Now().Add(3 * time.Minute)
	for !done() {
		if time.Now().After(end) {
			t.Fatal("not within 3 minutes:", what)
		}
		time.Sleep(10 * time.Millisecond) // the server signals neither
	}
}

// The text of an error has a bound, whatever the client has sent: it needs no authorization, and waits
// for a client that does not read outside the room for answers.
func TestLimits_ErrorText(t *testing.T) {
	a := serve(t, nil)
	digits := strings.Repeat("1", 40_000)
	for _, x := range []struct{ method, path, body string }{
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"a","Flags":` + digits + `}}]`},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"a","Value":"` + digits + `!"}}]`},
		{"PUT", "/v1/session/create", `{"LockDelay":"` + digits + `"}`},
		{"PUT", "/v1/session/create", `{"TTL":"` + digits + `"}`},
		{"PUT", "/v1/session/create", `{"NodeChecks":["` + digits + `"]}`},
		{"PUT", "/v1/session/create", `{"Behavior":"` + digits + `"}`},
		{"PUT", "/v1/session/create", `{"Node":"` + digits + `"}`},
		{"PUT", "/v1/agent/check/register", `{"Name":"n","TTL":"` + digits + `"}`},
		{"PUT", "/v1/agent/check/update/n", `{"Status":"` + digits + `"}`},
		{"PUT", "/v1/kv/a?cas=1&acquire=" + digits[:16_000], ""},
		{"PUT", "/v1/kv/a?acquire=" + digits[:16_000], "x"},
		{"GET", "/v1/kv/a?wait=" + digits[:16_000], ""},
		{"GET", "/v1/catalog/node/" + digits, ""},
		{"GET", "/v1/health/state/" + digits, ""},
		{"GET", "/v1/session/info/" + digits, ""},
	} {
		if got := a.do(x.method, x.path, x.body); len(got.body) > 2<<10 {
			t.Errorf("%s %.40s: %d with %d bytes", x.method, x.path, got.status, len(got.body))
		}
	}
}
