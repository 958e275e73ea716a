package conclavehttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Without Authorize only loopback clients are served, which name a loopback host.
func TestConsole_LoopbackOnly(t *testing.T) {
	console := conclavehttp.Console(grouptest.Alone(t), nil)
	for _, c := range []struct {
		remote, host string
		header       string
		status       int
	}{
		{"127.0.0.1:5000", "127.0.0.1:7101", "", 200},
		{"127.8.0.1:5000", "localhost", "", 200},
		{"[::1]:5000", "[::1]:7101", "", 200},
		{"[::1]:5000", "[::1]", "", 200},
		{"[::ffff:127.0.0.1]:5000", "LOCALHOST:80", "", 200},
		{"10.0.0.7:5000", "127.0.0.1:7101", "", 403},
		{"[fe80::1%eth0]:5000", "localhost", "", 403},
		{"", "localhost", "", 403},
		{"@", "localhost", "", 403},
		{"127.0.0.1:5000", "rebound.example:7101", "", 403},
		{"127.0.0.1:5000", "localhost.example", "", 403},
		{"127.0.0.1:5000", "127.0.0.1.example", "", 403},
		{"127.0.0.1:5000", "10.0.0.7:7101", "", 403},
		{"127.0.0.1:5000", "", "", 403},
		{"127.0.0.1:5000", "localhost", "X-Forwarded-For", 403},
		{"127.0.0.1:5000", "localhost", "Forwarded", 403},
		{"127.0.0.1:5000", "localhost", "Via", 403},
	} {
		for _, path := range []string{"/", "/script.js", "/events", "/act"} {
			r := httptest.NewRequest("GET", path, nil)
			status := c.status
			switch {
			case path == "/act":
				r.Method, status = "POST", 403 // read-only, whatever the client
			case path == "/events" && c.status == 200:
				r.Method = "HEAD"
			}
			r.RemoteAddr, r.Host = c.remote, c.host
			if c.header != "" {
				r.Header.Set(c.header, "for=10.0.0.7")
			}
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			console.ServeHTTP(w, r)
			if path == "/act" && c.status == 200 {
				status = 400 // it names no act
			}
			if w.Code != status {
				t.Errorf("%s from %q to %q, %s: %d, want %d: %s", path, c.remote, c.host, c.header, w.Code, status, w.Body)
			}
		}
	}
}

// With Authorize it decides alone, on each request.
func TestConsole_AuthorizesViews(t *testing.T) {
	console := conclavehttp.Console(grouptest.Alone(t), &conclavehttp.ConsoleOptions{
		Authorize: func(r *http.Request, act conclavehttp.Act) (string, error) {
			if act.Kind == conclavehttp.ActView && r.Header.Get("Authorization") == "Bearer viewer" {
				return "viewer", nil
			}
			return "", errors.New("log in first")
		},
	})
	for _, path := range []string{"/", "/script.js", "/events"} {
		for _, token := range []string{"", "Bearer viewer"} {
			r := httptest.NewRequest("HEAD", path, nil) // from elsewhere
			r.Header.Set("Authorization", token)
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			console.ServeHTTP(w, r)
			if want := map[string]int{"": 403, "Bearer viewer": 200}[token]; w.Code != want {
				t.Errorf("%s with %q: %d", path, token, w.Code)
			}
		}
	}
}

// A page of another site cannot use up the streams.
func TestConsole_StreamOfAnotherSite(t *testing.T) {
	site := serve(t, grouptest.Alone(t), nil)
	for _, from := range []string{"cross-site", "same-site"} {
		if w, _ := site.get("events", header("Sec-Fetch-Site", from)); w.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", from, w.Status)
		}
	}
	if w, _ := site.get("", host("rebound.example")); w.StatusCode != http.StatusForbidden {
		t.Errorf("a rebound name: %s", w.Status)
	}
}

func TestConsole_Methods(t *testing.T) {
	site := serve(t, grouptest.Alone(t), nil)
	for _, path := range []string{"", "events", "script.js"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			if w, _ := site.send(method, path, ""); w.StatusCode != http.StatusMethodNotAllowed || w.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %q: %s", method, path, w.Status)
			}
		}
	}
	for _, method := range []string{"GET", "HEAD", "PUT"} {
		if w, _ := site.send(method, "act?act=close-session", ""); w.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s act: %s", method, w.Status)
		}
	}
}

// A proxy may add a line of its own behind what the client has sent.
func TestConsole_ProxyBehindEmptyHeader(t *testing.T) {
	console := conclavehttp.Console(grouptest.Alone(t), nil)
	for _, lines := range []http.Header{
		{"X-Forwarded-For": {"", "203.0.113.9"}}, {"Via": {"", "1.1 proxy"}}, {"X-Forwarded-For": {""}},
		{"X-Forwarded-Proto": {"https"}}, {"X-Forwarded-Server": {"www"}}, {"X-Client-Ip": {"203.0.113.9"}},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
		for name, values := range lines {
			r.Header[name] = values
		}
		w := httptest.NewRecorder()
		console.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%v: %d", lines, w.Code)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
	r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	w := httptest.NewRecorder()
	if console.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("HTTP/1.0: %d", w.Code)
	}
}

// A page of another site cannot use up what the console reads, but a link to it works.
func TestConsole_PageOfAnotherSite(t *testing.T) {
	site := serve(t, grouptest.Alone(t), nil)
	for _, c := range []struct {
		site, mode, dest string
		status           int
	}{
		{"cross-site", "no-cors", "image", 403},
		{"same-site", "cors", "empty", 403},
		{"cross-site", "navigate", "iframe", 403},
		{"cross-site", "navigate", "document", 200},
		{"same-origin", "no-cors", "style", 200},
		{"none", "navigate", "document", 200},
	} {
		w, _ := site.get("", header("Sec-Fetch-Site", c.site), header("Sec-Fetch-Mode", c.mode), header("Sec-Fetch-Dest", c.dest))
		if w.StatusCode != c.status {
			t.Errorf("%+v: %s", c, w.Status)
		}
	}
}
