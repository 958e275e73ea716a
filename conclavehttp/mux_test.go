package conclavehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A program listens before it calls Open, and may open another node later.
func TestMux(t *testing.T) {
	var node atomic.Pointer[conclave.Node]
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) })
	h := conclavehttp.Mux(node.Load, &conclavehttp.MuxOptions{Metrics: metrics})
	want := func(target string, status int, body string) {
		t.Helper()
		r := get(h, "GET", "http://127.0.0.1"+target)
		if r.Code != status || !strings.Contains(r.Body.String(), body) {
			t.Errorf("%s: %d %q, want %d %q", target, r.Code, r.Body, status, body)
		}
	}
	want("/livez", 200, "ok")
	want("/readyz", 503, "not open yet")
	want("/console/", 503, "not open yet")
	want("/metrics", 200, "metrics")
	want("/other", 404, "")
	if r := get(h, "GET", "/"); r.Code != 302 || r.Header().Get("Location") != "/console/" {
		t.Errorf("/: %d to %q", r.Code, r.Header().Get("Location"))
	}
	first, second := grouptest.Alone(t), grouptest.Alone(t)
	for _, n := range []*conclave.Node{first, second} {
		node.Store(n)
		want("/readyz", 200, "ok")
		want("/console/", 403, "loopback") // a recorder's client is not on this machine
		r := httptest.NewRequest("GET", "http://127.0.0.1/console/", nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), n.Status().ID.String()) {
			t.Errorf("the console of %v: %d\n%s", n.Status().ID, w.Code, w.Body)
		}
	}
	grouptest.Must(t, second.Close(context.Background()))
	want("/livez", 503, "node failed")
	h.Close()
	want("/console/", 503, "closed")
	want("/metrics", 200, "metrics")
	if r := get(conclavehttp.Mux(node.Load, nil), "GET", "/metrics"); r.Code != 404 {
		t.Errorf("without metrics: %d", r.Code)
	}
}
