package conclavehttp_test

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // most of these tests wait for bounds that are seconds; the flag exists
	goleak.VerifyTestMain(m)
}

func get(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

func TestHealth(t *testing.T) {
	n := grouptest.Alone(t)
	closed := grouptest.Alone(t)
	grouptest.Must(t, closed.Close(context.Background()))
	const live, ready = "[+]node ok\n[+]loop ok\n", "[+]shutdown ok\n[+]member ok\n[+]leader ok\n[+]caught-up ok\n[+]progress ok\n[+]resources ok\n[+]disk ok\n[+]groups ok\n"
	const stopped = "[-]node failed: conclave: run: node is closed\n[-]loop failed: the node has stopped\n"
	for name, c := range map[string]struct {
		node   *conclave.Node
		target string
		status int
		body   string
	}{
		"live":             {n, "/livez", 200, "ok"},
		"ready":            {n, "/readyz", 200, "ok"},
		"live, verbose":    {n, "/livez?verbose", 200, live + "livez check passed\n"},
		"ready, verbose":   {n, "/readyz?verbose=1", 200, live + ready + "readyz check passed\n"},
		"not open":         {nil, "/livez", 200, "ok"},
		"not open, ready":  {nil, "/readyz", 503, "[-]node failed: the node is not open yet: it waits for its group; its log has the reason\nreadyz check failed\n"},
		"closed":           {closed, "/livez", 503, stopped + "livez check failed\n"},
		"closed, excluded": {closed, "/livez?exclude=node&exclude=loop", 200, "ok"},
		"excluded":         {closed, "/livez?exclude=node", 503, "[+]node excluded: ok\n[-]loop failed: the node has stopped\nlivez check failed\n"},
		"exclude unknown": {n, "/livez?verbose&exclude=x&exclude=a%0Ab&exclude=x", 200,
			live + "warn: some health checks cannot be excluded: no matches for \"a\\nb\",\"x\"\nlivez check passed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(conclavehttp.Health(c.node), "GET", c.target)
			if w.Code != c.status || w.Body.String() != c.body {
				t.Fatalf("%d %q; want %d %q", w.Code, w.Body, c.status, c.body)
			}
			for key, want := range map[string]string{
				"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			} {
				if got := w.Header().Get(key); got != want {
					t.Errorf("%s: %q; want %q", key, got, want)
				}
			}
		})
	}
}

func TestHealth_Refuses(t *testing.T) {
	h := conclavehttp.Health(nil)
	for _, path := range []string{"/", "/livez/", "/healthz", "/readyz/leader", "//livez"} {
		if w := get(h, "GET", (&url.URL{Path: path}).RequestURI()); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if w := get(h, method, "/livez"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, %v", method, w.Code, w.Header())
		}
	}
}

// A server sends no body for HEAD, and the length that GET has.
func TestHealth_Prefix(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/conclave", conclavehttp.Health(nil)))
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	response, err := server.Client().Head(server.URL + "/conclave/livez")
	grouptest.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength != int64(len("ok")) {
		t.Fatalf("%+v", response)
	}
}

// No request gets anything but a complete answer, and no parameter makes a node that has
// stopped live unless it excludes a check.
func FuzzHealth(f *testing.F) {
	f.Add("GET", "/livez", "verbose")
	f.Add("HEAD", "/readyz", "exclude=leader&exclude=%00")
	f.Add("POST", "/readyz/", "exclude=%zz;verbose=\n")
	closed := grouptest.Alone(f)
	grouptest.Must(f, closed.Close(context.Background()))
	h := conclavehttp.Health(closed)
	f.Fuzz(func(t *testing.T, method, path, query string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}})
		body := w.Body.String()
		known := path == "/livez" || path == "/readyz"
		allowed := method == "GET" || method == "HEAD"
		switch {
		case !known:
			if w.Code != http.StatusNotFound {
				t.Fatalf("%d %q", w.Code, body)
			}
		case !allowed:
			if w.Code != http.StatusMethodNotAllowed {
				t.Fatalf("%d %q", w.Code, body)
			}
		case w.Code == http.StatusOK:
			if !strings.Contains(query, "exclude") {
				t.Fatalf("%q: %q", query, body)
			}
		case w.Code != http.StatusServiceUnavailable || !strings.HasSuffix(body, "check failed\n"):
			t.Fatalf("%d %q", w.Code, body)
		default:
			for line := range strings.Lines(body) {
				if !strings.HasPrefix(line, "[+]") && !strings.HasPrefix(line, "[-]") && !strings.HasPrefix(line, "[!]") && !strings.HasPrefix(line, "warn: ") && !strings.HasSuffix(line, "check failed\n") {
					t.Fatalf("line %q of %q", line, body)
				}
			}
		}
	})
}

// An answer has a bound, whatever the request excludes.
func TestHealth_LongExclusions(t *testing.T) {
	for name, query := range map[string]string{
		"a long name": "exclude=" + strings.Repeat("%00", 100_000),
		"many names":  strings.Repeat("exclude=x&", 10) + "exclude=" + strings.Join(strings.Split(strings.Repeat("y", 50_000), ""), "&exclude=y"),
	} {
		w := httptest.NewRecorder()
		conclavehttp.Health(nil).ServeHTTP(w, httptest.NewRequest("GET", "/readyz?"+query, nil))
		if w.Code != http.StatusServiceUnavailable || w.Body.Len() > 8<<10 {
			t.Errorf("%s: %d with %d bytes", name, w.Code, w.Body.Len())
		}
	}
}
