package consulapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// consulsFailures are the requests that Consul answers with status 500, as its clients expect.
var consulsFailures = []string{
	"No path to datacenter", "invalid session", "Check is in critical state", "Invalid Behavior setting", "Session TTL '", "Invalid Session TTL",
}

// fuzzed sends a request of any bytes, and requires a complete answer with a status that
// the handler documents.
func fuzzed(t *testing.T, h http.Handler, method, path, query, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := &http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query}, Header: make(http.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "localhost", RemoteAddr: "127.0.0.1:1",
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(t.Context()))
	text := w.Body.String()
	switch {
	case w.Code == http.StatusInternalServerError:
		if !slices.ContainsFunc(consulsFailures, func(beginning string) bool { return strings.HasPrefix(text, beginning) }) {
			t.Fatalf("%s %q %q %q: %d %q", method, path, query, body, w.Code, text)
		}
	case !slices.Contains([]int{200, 400, 404, 405, 409, 413, 429}, w.Code):
		t.Fatalf("%s %q %q %q: %d %q", method, path, query, body, w.Code, text)
	case w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()):
		t.Fatalf("%s %q %q %q: malformed %q", method, path, query, body, text)
	}
	return w
}

// blocks reports a blocking query, for which a fuzz test has no time.
func blocks(query string) bool {
	values, _ := url.ParseQuery(query)
	return values.Has("index")
}

func FuzzKV(f *testing.F) {
	f.Add("GET", "a/b", "recurse&keys&separator=/", "")
	f.Add("PUT", "a//../\x00", "flags=1&cas=0", "value")
	f.Add("PUT", "a", "acquire=adf4238a-882b-9ddc-4a9d-5b6758e4159e", "")
	f.Add("DELETE", "\xff", "recurse=false&token=%zz", "x")
	f.Add("HEAD", "", "stale&dc=dc2&pretty;", "")
	h := consulapi.Handler(grouptest.Alone(f), nil)
	f.Fuzz(func(t *testing.T, method, key, query, body string) {
		if blocks(query) {
			t.Skip()
		}
		w := fuzzed(t, h, method, "/v1/kv/"+key, query, body)
		if method != "PUT" || w.Code != http.StatusOK || w.Body.String() != "true" {
			return
		}
		if values, _ := url.ParseQuery(query); values.Has("pretty") {
			return
		}
		got := fuzzed(t, h, "GET", "/v1/kv/"+key, "raw", "")
		if got.Code != http.StatusOK || !bytes.Equal(got.Body.Bytes(), []byte(body)) {
			t.Fatalf("put %q at %q, got %d %q", body, key, got.Code, got.Body)
		}
	})
}

func FuzzTxn(f *testing.F) {
	f.Add("", `[{"KV":{"Verb":"set","Key":"a","Value":"eA=="}},{"KV":{"Verb":"get","Key":"a"}}]`)
	f.Add("pretty", `[{"KV":{"Verb":"get-tree","Key":""}},{"KV":{"Verb":"check-index","Key":"a","Index":18446744073709551615}}]`)
	f.Add("stale", `[{"kv":{"verb":"lock","key":"a","session":"x"},"KV":null}]`)
	f.Add("", `[{"KV":{"Verb":"delete-cas","Key":"a"}},null,[],{"KV":[]}] {}`)
	f.Add("", `[{"KV":{"Verb":"check-session","Key":"a"}},{"KV":{"Verb":"delete-tree","Key":"\u0000"}},{"KV":{"Verb":"get-or-empty","Key":"a"}}]`)
	h := consulapi.Handler(grouptest.Alone(f), nil)
	f.Fuzz(func(t *testing.T, query, body string) {
		if blocks(query) {
			t.Skip()
		}
		w := fuzzed(t, h, "PUT", "/v1/txn", query, body)
		var answer struct {
			Results []any
			Errors  []any
		}
		if w.Code != http.StatusOK && w.Code != http.StatusConflict {
			return
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || (len(answer.Errors) > 0) != (w.Code == http.StatusConflict) {
			t.Fatalf("%d %q", w.Code, w.Body)
		}
	})
}

func FuzzSession(f *testing.F) {
	f.Add("PUT", "create", "", `{"Name":"n","TTL":"10s","LockDelay":"15s","Behavior":"delete","Checks":[]}`)
	f.Add("PUT", "create", "pretty", `{"LockDelay":1e300,"NodeChecks":["serfHealth","none"]}`)
	f.Add("PUT", "create", "", `{"Behavior":"deletes"}`)
	f.Add("PUT", "create", "", `{"TTL":"10"}`)
	f.Add("PUT", "create", "", `{"TTL":"1ms"}`)
	f.Add("PUT", "renew/adf4238a-882b-9ddc-4a9d-5b6758e4159e", "", "")
	f.Add("PUT", "destroy/", "", "{")
	f.Add("GET", "info/ADF4238A-882B-9DDC-4A9D-5B6758E4159E", "stale", "")
	f.Add("GET", "node/\xff", "index=0", "")
	f.Add("GET", "list", "wait=1s", "")
	h := consulapi.Handler(grouptest.Alone(f), nil)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		w := fuzzed(t, h, method, "/v1/session/"+path, query, body)
		var created struct{ ID string }
		if path == "create" && w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), &created) == nil {
			fuzzed(t, h, "PUT", "/v1/session/destroy/"+created.ID, "", "")
		}
	})
}

func FuzzAgent(f *testing.F) {
	f.Add("PUT", "agent/check/register", "", `{"ID":"c","Name":"n","TTL":"10s","Status":"passing","Notes":"x"}`)
	f.Add("PUT", "agent/check/register", "", `{"Name":"n","TTL":"-1s","HTTP":null,"Args":[""]}`)
	f.Add("PUT", "agent/check/pass/c", "note=%ff", "")
	f.Add("PUT", "agent/check/update/c", "", `{"Status":"critical","Output":"\ud800"}`)
	f.Add("PUT", "agent/check/deregister/c", "", "")
	f.Add("GET", "agent/checks", "pretty", "")
	f.Add("GET", "catalog/nodes", "near=_agent", "")
	f.Add("GET", "health/node/\x00", "filter=x", "")
	f.Add("GET", "status/leader/", "", "")
	h := consulapi.Handler(grouptest.Alone(f), nil)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		fuzzed(t, h, method, "/v1/"+path, query, body)
		fuzzed(t, h, "GET", "/v1/agent/checks", "", "")
	})
}
