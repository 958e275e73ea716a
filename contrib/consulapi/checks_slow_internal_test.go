package consulapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// Clients that do not read lists of checks, whose notes and outputs are those of clients, take no
// memory without a bound.
func TestChecks_SlowReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory, and TestTxn_SlowReaders has the race detector see the same")
	}
	h := Handler(grouptest.Alone(t), &Options{Timeout: time.Hour}).(*server)
	long := strings.Repeat(`\u0001`, 4<<10)
	for i := range 256 {
		for _, change := range [][2]string{
			{"register", fmt.Sprintf(`{"Name":"c%d","TTL":"1h","Status":"passing","Notes":"%s"}`, i, long)},
			{fmt.Sprintf("update/c%d", i), `{"Status":"passing","Output":"` + long + `"}`},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, localRequest("PUT", "/v1/agent/check/"+change[0], change[1]))
			if w.Code != http.StatusOK {
				t.Fatal(change[0], w.Code, w.Body)
			}
		}
	}
	before := heap()
	const n = 40
	release := make(chan struct{})
	var clients sync.WaitGroup
	for i := range n {
		path := []string{"/v1/agent/checks", "/v1/health/state/any"}[i%2]
		clients.Go(func() { h.ServeHTTP(&unread{until: release}, localRequest("GET", path, "")) })
	}
	for !h.large.has(n) {
		grouptest.Pass(time.Millisecond)
	}
	grown := heap() - before
	close(release)
	clients.Wait()
	if bound := h.large.limit + 64<<20; grown > bound {
		t.Errorf("%d answers of 12 MiB that wait take %d MiB, want %d at most", n, grown>>20, bound>>20)
	}
}

// has reports whether n answers are being sent or wait for room.
func (s *sending) has(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)+s.waiting == n
}

func localRequest(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
	return r
}

// heap returns the bytes of the heap that are in use, without what pools keep.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// unread is the answer of a client that reads none of it.
type unread struct {
	header http.Header
	until  <-chan struct{}
}

func (u *unread) Header() http.Header {
	if u.header == nil {
		u.header = make(http.Header)
	}
	return u.header
}

func (*unread) WriteHeader(int) {}

func (u *unread) Write(b []byte) (int, error) {
	<-u.until
	return len(b), nil
}
