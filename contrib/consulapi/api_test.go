package consulapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// agent is a server in front of a group of one.
type agent struct {
	t    *testing.T
	node *conclave.Node
	*httptest.Server
}

func serve(t *testing.T, opts *consulapi.Options) *agent {
	t.Helper()
	return serveNode(t, grouptest.Alone(t), opts)
}

func serveNode(t *testing.T, node *conclave.Node, opts *consulapi.Options) *agent {
	t.Helper()
	return serveHandler(t, node, consulapi.Handler(node, opts))
}

func serveHandler(t *testing.T, node *conclave.Node, h http.Handler) *agent {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &agent{t, node, s}
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request: a method, a path with its query, and a body if there is one.
func (a *agent) do(method, path string, body ...string) answer {
	a.t.Helper()
	got, err := a.try(a.t.Context(), method, path, nil, body...)
	grouptest.Must(a.t, err)
	return got
}

func (a *agent) try(ctx context.Context, method, path string, header http.Header, body ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.URL+path, strings.NewReader(strings.Join(body, "")))
	if err != nil {
		return answer{}, err
	}
	for name, values := range header {
		r.Header[name] = values
		if name == "Host" {
			r.Host = values[0]
		}
	}
	w, err := a.Client().Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	return answer{w.StatusCode, w.Header, string(text)}, err
}

// exchange is a request and what its answer must be. A want that ends with "..." is a prefix.
type exchange struct {
	method, path, body string
	status             int
	want               string
}

func (a *agent) exchanges(all []exchange) {
	a.t.Helper()
	for _, x := range all {
		got := a.do(x.method, x.path, x.body)
		prefix, cut := strings.CutSuffix(x.want, "...")
		if got.status != x.status || cut && !strings.HasPrefix(got.body, prefix) || !cut && got.body != x.want {
			a.t.Errorf("%s %s %s: %d %q, want %d %q", x.method, x.path, x.body, got.status, got.body, x.status, x.want)
		}
	}
}

func decode[T any](t *testing.T, got answer) (v T) {
	t.Helper()
	if got.status != http.StatusOK && got.status != http.StatusConflict || got.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s %q", got.status, got.header.Get("Content-Type"), got.body)
	}
	if err := json.Unmarshal([]byte(got.body), &v); err != nil {
		t.Fatalf("%v: %q", err, got.body)
	}
	return v
}
