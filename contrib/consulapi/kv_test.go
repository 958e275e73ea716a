package consulapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/grouptest"
)

type pair struct {
	Key, Session                               string
	Value                                      []byte
	Flags, LockIndex, CreateIndex, ModifyIndex uint64
}

func TestKV_Answers(t *testing.T) {
	a := serve(t, nil)
	a.exchanges([]exchange{
		{"GET", "/v1/kv/none", "", 404, ""},
		{"GET", "/v1/kv/none?recurse", "", 404, ""},
		{"GET", "/v1/kv/none?keys", "", 404, ""},
		{"GET", "/v1/kv/?keys", "", 200, "[]"},
		{"GET", "/v1/kv/?keys=true&recurse=true", "", 200, "[]"}, // as Vert.x asks: a list of names like any other
		{"GET", "/v1/kv/", "", 400, "Missing key name"},
		{"PUT", "/v1/kv/", "x", 400, "Missing key name"},
		{"DELETE", "/v1/kv/", "", 400, "Missing key name"},
		{"PUT", "/v1/kv/a/b", "x", 200, "true"},
		{"PUT", "/v1/kv/a/c?flags=18446744073709551615", "", 200, "true"},
		{"PUT", "/v1/kv/a//../d", "<", 200, "true"},
		{"GET", "/v1/kv/a/b?raw", "", 200, "x"},
		{"GET", "/v1/kv/a//../d?raw", "", 200, "<"},
		{"GET", "/v1/kv/?keys", "", 200, `["a//../d","a/b","a/c"]`},
		{"GET", "/v1/kv/a?keys&separator=/", "", 200, `["a/"]`},
		{"GET", "/v1/kv/a/?keys&seperator=/", "", 200, `["a//","a/b","a/c"]`},
		{"GET", "/v1/kv/a/?keys&pretty", "", 200, "[\n    \"a//../d\",\n    \"a/b\",\n    \"a/c\"\n]\n"},
		{"PUT", "/v1/kv/a/b?cas=0", "y", 200, "false"},
		{"PUT", "/v1/kv/a/e?cas=0", "y", 200, "true"},
		{"PUT", "/v1/kv/a/e?cas=x", "y", 400, `query parameter "cas": want a number, got "x"`},
		{"PUT", "/v1/kv/a/e?cas=1&acquire=x", "y", 400, "Conflicting flags: acquire=x&cas=1\n"},
		{"PUT", "/v1/kv/a/e?release=y&acquire=x", "y", 400, "Conflicting flags: acquire=x&release=y\n"},
		{"PUT", "/v1/kv/a/e?acquire=x", "y", 500, `invalid session "x"`},
		{"PUT", "/v1/kv/a/e?acquire=adf4238a-882b-9ddc-4a9d-5b6758e4159e", "y", 500, `invalid session "adf4238a-882b-9ddc-4a9d-5b6758e4159e"`},
		{"PUT", "/v1/kv/a/e?release=adf4238a-882b-9ddc-4a9d-5b6758e4159e", "y", 200, "false"},
		{"DELETE", "/v1/kv/a/e?cas=1", "", 200, "false"},
		{"DELETE", "/v1/kv/none?cas=1", "", 200, "true"},
		{"DELETE", "/v1/kv/a/e?cas=1&recurse", "", 400, "Conflicting flags: cas=1&recurse=\n"},
		{"DELETE", "/v1/kv/a/b", "", 200, "true"},
		{"DELETE", "/v1/kv/a/b", "", 200, "true"},
		{"DELETE", "/v1/kv/a/?recurse=false", "", 400, "query parameter..."},
		{"DELETE", "/v1/kv/a/?recurse", "", 200, "true"},
		{"GET", "/v1/kv/?recurse", "", 404, ""},
		{"POST", "/v1/kv/x", "", 405, "method not allowed"},
		{"PUT", "/v1/kv/x?ns=y", "", 400, `query parameter "ns": want "default", got "y": there are no others`},
		{"GET", "/v1/kv/x?dc=dc2", "", 500, "No path to datacenter"},
		{"GET", "/v1/kv/x?dc=dc1", "", 404, ""},
		{"GET", "/v1/kv/x?stale&consistent", "", 400, "Cannot specify ?stale with ?consistent, conflicting semantics."},
		{"GET", "/v1/kv/x?max_stale=1s&consistent", "", 400, "Cannot specify ?stale with ?consistent, conflicting semantics."},
		{"GET", "/v1/kv/x?max_stale=soon", "", 400, `Invalid max_stale value "soon"`},
		{"GET", "/v1/kv?keys", "", 200, "[]"},
		{"GET", "/v1/kvx", "", 404, "..."},
		{"GET", "/v1/kv/x?index=-1", "", 400, "Invalid index"},
		{"GET", "/v1/kv/x?wait=soon", "", 400, "Invalid wait time"},
		{"GET", "/v1/kv/%ff", "", 400, "..."},
		{"GET", "/v1/kv/" + strings.Repeat("x", 513), "", 413, "..."},
		{"PUT", "/v1/kv/x", strings.Repeat("x", 512<<10+1), 413, "Request body(524289 bytes) too large, max size: 524288 bytes."},
		{"PUT", "/v1/kv/x", strings.Repeat("x", 512<<10), 200, "true"},
		{"GET", "/v1/acl/tokens", "", 404, "..."},
	})
}

// What a client writes it reads, whatever bytes a key has.
func TestKV_Entry(t *testing.T) {
	a := serve(t, nil)
	for _, key := range []string{"a b", "a%2fb", "?", "#x", "/", "//", "./..", "ü", "\x01"} {
		path := "/v1/kv/" + url.PathEscape(key)
		if got := a.do("PUT", path+"?flags=7", "v:"+key); got.body != "true" {
			t.Fatal(key, got)
		}
		got := a.do("GET", path)
		p := decode[[]pair](t, got)[0]
		if p.Key != key || string(p.Value) != "v:"+key || p.Flags != 7 || p.CreateIndex == 0 || p.ModifyIndex != p.CreateIndex {
			t.Errorf("%q: %+v", key, p)
		}
		if index := got.header.Get("X-Consul-Index"); index != fmt.Sprint(p.ModifyIndex) {
			t.Errorf("%q: index %s", key, index)
		}
		if a.do("PUT", path+"?cas="+fmt.Sprint(p.ModifyIndex), "w").body != "true" || a.do("PUT", path+"?cas="+fmt.Sprint(p.ModifyIndex), "x").body != "false" {
			t.Errorf("%q: compare and swap", key)
		}
	}
}

func TestKV_Headers(t *testing.T) {
	a := serve(t, nil)
	a.do("PUT", "/v1/kv/x", "<script>")
	for path, want := range map[string]string{
		"/v1/kv/x": "consistent", "/v1/kv/x?consistent": "consistent", "/v1/kv/x?stale": "stale", "/v1/kv/x?max_stale=1h": "stale", "/v1/kv/x?stale&max_stale=0s": "stale",
		"/v1/kv/none": "consistent", "/v1/kv/?recurse": "consistent",
	} {
		h := a.do("GET", path).header
		if h.Get("X-Consul-KnownLeader") != "true" || h.Get("X-Consul-LastContact") != "0" || h.Get("X-Consul-Effective-Consistency") != want ||
			h.Get("X-Consul-Index") == "0" {
			t.Errorf("%s: %v", path, h)
		}
	}
	h := a.do("GET", "/v1/kv/x?raw").header
	if h.Get("Content-Type") != "text/plain" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") != "sandbox" {
		t.Error(h)
	}
	if got := a.do("POST", "/v1/kv/x"); got.header.Get("Allow") != "DELETE, GET, OPTIONS, PUT" {
		t.Error(got)
	}
	grouptest.Must(t, a.node.Close(t.Context()))
	if got := a.do("GET", "/v1/kv/x"); got.status != 500 {
		t.Error(got)
	}
}
