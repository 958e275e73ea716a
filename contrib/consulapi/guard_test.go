package consulapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Without authorization only this machine's own programs are served.
func TestGuard_LoopbackOnly(t *testing.T) {
	h := consulapi.Handler(grouptest.Alone(t), nil)
	for _, c := range []struct {
		name, remote, host string
		header             [2]string
		status             int
	}{
		{"loopback", "127.0.0.1:1", "localhost:8500", [2]string{}, 200},
		{"IPv6", "[::1]:1", "[::1]", [2]string{}, 200},
		{"same origin", "127.0.0.1:1", "localhost:8500", [2]string{"Origin", "http://localhost:8500"}, 200},
		{"another peer", "192.0.2.1:1", "localhost:8500", [2]string{}, 403},
		{"no peer", "", "localhost:8500", [2]string{}, 403},
		{"another host", "127.0.0.1:1", "example.org:8500", [2]string{}, 403},
		{"no host", "127.0.0.1:1", "", [2]string{}, 403},
		{"a proxy", "127.0.0.1:1", "localhost:8500", [2]string{"X-Forwarded-For", ""}, 403},
		{"another site", "127.0.0.1:1", "localhost:8500", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another origin", "127.0.0.1:1", "localhost:8500", [2]string{"Origin", "http://example.org"}, 403},
		{"another port", "127.0.0.1:1", "localhost:8500", [2]string{"Origin", "http://localhost"}, 403},
		{"a file", "127.0.0.1:1", "localhost:8500", [2]string{"Origin", "null"}, 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/status/leader", nil)
		r.RemoteAddr, r.Host = c.remote, c.host
		if c.header[0] != "" {
			r.Header[c.header[0]] = []string{c.header[1]}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.status)
		}
	}
}

// The clients of a Unix socket are this machine's own, whatever host they name, but for proxies.
func TestGuard_UnixSocket(t *testing.T) {
	h := consulapi.Handler(grouptest.Alone(t), nil)
	local := &net.UnixAddr{Name: "consul.sock", Net: "unix"}
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, local)
	for header, want := range map[string]int{"": 200, "X-Forwarded-For": 403, "Via": 403} {
		r := httptest.NewRequestWithContext(ctx, "GET", "/v1/status/leader", nil)
		r.RemoteAddr, r.Host = "@", "runconsul.sock"
		if header != "" {
			r.Header.Set(header, "")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("header %q: %d %s, want %d", header, w.Code, w.Body, want)
		}
	}
}

// asked is what an Authorize was asked.
type asked struct {
	mu  sync.Mutex
	all []string
}

func (a *asked) authorize(token string, verb consulapi.Verb, resource string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, token+" "+verb.String()+" "+resource)
	if token == "deny" {
		return errors.New("wrong token")
	}
	return nil
}

func (a *asked) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

func TestAuthorize_Resources(t *testing.T) {
	var q asked
	a := serve(t, &consulapi.Options{Authorize: q.authorize})
	own := a.node.Status().Members[0].Name
	for _, x := range []struct {
		method, path, body string
		want               []string
	}{
		{"GET", "/v1/kv/a", "", []string{"read key/a"}},
		{"GET", "/v1/kv/a?index=1&wait=1ms", "", []string{"read key/a", "read key/a"}},
		{"GET", "/v1/kv/a?recurse", "", []string{"read key_prefix/a"}},
		{"GET", "/v1/kv/?keys", "", []string{"read key_prefix/"}},
		{"PUT", "/v1/kv/a", "", []string{"write key/a"}},
		{"DELETE", "/v1/kv/a", "", []string{"write key/a"}},
		{"DELETE", "/v1/kv/a?recurse", "", []string{"write key_prefix/a"}},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"a"}},{"KV":{"Verb":"get-tree","Key":"b"}}]`, []string{"read key/a", "read key_prefix/b"}},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"a"}},{"KV":{"Verb":"check-index","Key":"b","Index":1}}]`, []string{"write key/a", "read key/b"}},
		{"PUT", "/v1/session/create", "", []string{"write session/" + own}},
		{"PUT", "/v1/session/destroy/adf4238a-882b-9ddc-4a9d-5b6758e4159e", "", []string{"write session/" + own}},
		{"PUT", "/v1/session/renew/adf4238a-882b-9ddc-4a9d-5b6758e4159e", "", []string{"write session/" + own}},
		{"GET", "/v1/session/info/adf4238a-882b-9ddc-4a9d-5b6758e4159e", "", []string{"read session/" + own}},
		{"GET", "/v1/session/node/x", "", []string{"read session/x"}},
		{"GET", "/v1/session/list", "", []string{"read session_prefix/"}},
		{"GET", "/v1/status/leader", "", []string{"read status"}},
		{"GET", "/v1/status/peers", "", []string{"read status"}},
		{"GET", "/v1/agent/self", "", []string{"read agent/" + own}},
		{"GET", "/v1/agent/checks", "", []string{"read node/" + own}},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s"}`, []string{"write node/" + own}},
		{"PUT", "/v1/agent/check/pass/c", "", []string{"write node/" + own}},
		{"PUT", "/v1/agent/check/update/c", `{"Status":"passing"}`, []string{"write node/" + own}},
		{"PUT", "/v1/agent/check/deregister/c", "", []string{"write node/" + own}},
		{"GET", "/v1/catalog/nodes", "", []string{"read node_prefix/"}},
		{"GET", "/v1/health/node/x", "", []string{"read node/x"}},
	} {
		for _, token := range []string{"good", "deny"} {
			got, err := a.try(t.Context(), x.method, x.path, http.Header{"X-Consul-Token": {token}}, x.body)
			grouptest.Must(t, err)
			if token == "deny" && (got.status != 403 || got.body != "Permission denied: wrong token") {
				t.Errorf("%s %s: %d %s", x.method, x.path, got.status, got.body)
			}
			all := q.take()
			want := make([]string, len(x.want))
			for i, w := range x.want {
				want[i] = token + " " + w
			}
			if token == "deny" {
				want = want[:1]
			}
			if !slices.Equal(all, want) {
				t.Errorf("%s %s: asked %q, want %q", x.method, x.path, all, want)
			}
		}
	}
	if got := a.do("GET", "/v1/kv/a"); got.status != 404 {
		t.Error("a refused write took effect:", got)
	}
}

func TestAuthorize_Token(t *testing.T) {
	var q asked
	a := serve(t, &consulapi.Options{Authorize: q.authorize})
	for _, c := range []struct {
		query  string
		header http.Header
		want   string
	}{
		{"", nil, ""},
		{"?token=a", http.Header{"X-Consul-Token": {"b"}}, "a"},
		{"", http.Header{"X-Consul-Token": {"b"}, "Authorization": {"Bearer c"}}, "b"},
		{"", http.Header{"Authorization": {"bearer c"}}, "c"},
		{"", http.Header{"Authorization": {"Basic c"}}, ""},
	} {
		_, err := a.try(t.Context(), "GET", "/v1/status/leader"+c.query, c.header)
		grouptest.Must(t, err)
		if all := q.take(); len(all) != 1 || !strings.HasPrefix(all[0], c.want+" read") {
			t.Errorf("%+v: %q", c, all)
		}
	}
	got, err := a.try(t.Context(), "GET", "/v1/status/leader", http.Header{"Sec-Fetch-Site": {"cross-site"}})
	if grouptest.Must(t, err); got.status != 403 || len(q.take()) != 0 {
		t.Error("another site:", got)
	}
}
