package consulapi_test

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// Clients that do not read lists of checks, whose notes and outputs are those of clients, take no
// memory without a bound.
func TestChecks_SlowReaders(t *testing.T) {
	a := serve(t, nil)
	long := strings.Repeat(`\u0001`, 4<<10)
	for i := range 256 {
		a.exchanges([]exchange{
			{"PUT", "/v1/agent/check/register", fmt.Sprintf(`{"Name":"c%d","TTL":"1h","Status":"passing","Notes":"%s"}`, i, long), 200, ""},
			{"PUT", fmt.Sprintf("/v1/agent/check/update/c%d", i), `{"Status":"passing","Output":"` + long + `"}`, 200, ""},
		})
	}
	size := len(a.do("GET", "/v1/agent/checks").body)
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 30
	for range n {
		c, err := net.Dial("tcp", a.Listener.Addr().String())
		grouptest.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		grouptest.Must(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = fmt.Fprint(c, "GET /v1/agent/checks HTTP/1.1\r\nHost: localhost\r\n\r\n")
		grouptest.Must(t, err)
	}
	if got := a.do("GET", "/v1/health/state/any"); got.status != http.StatusOK { // in turn
		t.Error(got.status)
	}
	runtime.GC()
	runtime.ReadMemStats(&now)
	if grown := int(now.HeapAlloc) - int(before.HeapAlloc); grown > 256<<20 {
		t.Errorf("%d answers of %d MiB that wait take %d MiB", n, size>>20, grown>>20)
	}
}
