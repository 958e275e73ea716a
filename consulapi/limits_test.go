package consulapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

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

// Bodies that do not arrive keep no memory without a bound, and transactions, whose
// authorization is in the body, take no place of other writes.
func TestLimits_Bodies(t *testing.T) {
	h := consulapi.Handler(grouptest.Alone(t), nil)
	send := func(path string, body io.Reader) int {
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "http://localhost"+path, body)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	var all sync.WaitGroup
	slow, end := io.Pipe()
	var began sync.WaitGroup
	began.Add(32)
	for range 32 {
		all.Go(func() {
			body := &announced{Reader: slow, read: sync.OnceFunc(began.Done)}
			if status := send("/v1/txn", body); status != http.StatusBadRequest {
				t.Error(status)
			}
		})
	}
	began.Wait()
	if status := send("/v1/txn", strings.NewReader("[]")); status != http.StatusTooManyRequests {
		t.Error("one more transaction:", status)
	}
	if status := send("/v1/kv/a", strings.NewReader("x")); status != http.StatusOK {
		t.Error("another write:", status)
	}
	grouptest.Must(t, end.Close())
	all.Wait()
	if status := send("/v1/txn", strings.NewReader("[]")); status != http.StatusOK {
		t.Error("afterwards:", status)
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
