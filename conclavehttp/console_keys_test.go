package conclavehttp_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func put(t *testing.T, n *conclave.Node, key string, value []byte) {
	t.Helper()
	_, err := n.KV().Put(t.Context(), key, value)
	grouptest.Must(t, err)
}

// listing returns the listing of a page.
func listing(body string) string {
	_, listing, _ := strings.Cut(body, `<div id="listing">`)
	listing, _, _ = strings.Cut(listing, "</section>")
	return listing
}

// Keys are the application's data: without the option no path of the console has one of them.
func TestConsole_KeysAreOff(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	put(t, n, "password/root", []byte("correct horse"))
	for _, opts := range []*conclavehttp.ConsoleOptions{nil, {Authorize: func(*http.Request, conclavehttp.Act) (string, error) { return "olga", nil }}} {
		site := serve(t, n, opts)
		for _, path := range []string{"?show=keys", "events?show=keys", "?show=keys&of=" + n.Status().ID.String(), "?show=keys&prefix=password%2F"} {
			w, body := site.get(path)
			if w.StatusCode != http.StatusBadRequest || strings.Contains(body, "horse") {
				t.Errorf("%s: %s, %s", path, w.Status, body)
			}
		}
		wantNot(t, site.page()+site.page("of", n.Status().ID.String()), "show=keys", "password", "horse")
	}
}

// What may not view the page gets no key.
func TestConsole_KeysAreAuthorized(t *testing.T) {
	n := grouptest.Alone(t)
	put(t, n, "password/root", []byte("correct horse"))
	var asked []conclavehttp.ActKind
	site := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true, Authorize: func(r *http.Request, a conclavehttp.Act) (string, error) {
		asked = append(asked, a.Kind)
		return "", errors.New("log in first")
	}})
	for _, path := range []string{"?show=keys", "events?show=keys", "?show=keys&prefix=password%2F"} {
		if w, body := site.get(path); w.StatusCode != http.StatusForbidden || strings.Contains(body, "horse") {
			t.Errorf("%s: %s, %s", path, w.Status, body)
		}
	}
	if fmt.Sprint(asked) != "[view view view]" {
		t.Errorf("asked for %v", asked)
	}
	if w, _ := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true}).get("?show=keys", host("evil.example")); w.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign name: %s", w.Status)
	}
}

// Folders lead to what is in them; values are cut, and what is no text is shown as bytes.
func TestConsole_Keys(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	for i := range 120 {
		put(t, n, fmt.Sprintf("app/many/%03d", i), []byte("v"))
	}
	put(t, n, "app/config.json", []byte(`{"a": "<b>"}`))
	put(t, n, "app/empty", nil)
	put(t, n, "app/key.der", append([]byte{0x30, 0x82, 0, 0xff}, make([]byte, 500)...))
	put(t, n, "app/long", []byte(strings.Repeat("long ", 100)))
	s := grouptest.MustSession(t, n, grouptest.Lasting())
	_, err := n.KV().Acquire(t.Context(), "app/locked", []byte("by me"), s.ID())
	grouptest.Must(t, err)
	site := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true})
	top := listing(site.page("show", "keys"))
	want(t, top, `href="?prefix=app%2F&amp;show=keys#state"`)
	wantNot(t, top, "config.json")
	app := listing(site.page("show", "keys", "prefix", "app/"))
	want(t, app, "all keys", "app/many/", `{&#34;a&#34;: &#34;&lt;b&gt;&#34;}`, ">12<", "empty</span>", "<em>binary</em>", "30 82 00 ff 00", ">504<", "of="+s.ID().String(),
		strings.Repeat("long ", 39)+`long\x20</bdi></code>…`)
	wantNot(t, app, "app/many/000", "<b>\"")
	want(t, listing(site.page("show", "keys", "prefix", "app/many/")), `href="?prefix=app%2F&amp;show=keys#state"`, "app/many/049", "next page")
	last := listing(site.page("show", "keys", "prefix", "app/many/", "after", "app/many/099"))
	want(t, last, "app/many/100", "app/many/119", "first page")
	wantNot(t, last, "app/many/099", "next page")
	of := listing(site.page("show", "keys", "of", s.ID().String()))
	want(t, of, "app/locked", "by me")
	wantNot(t, of, "config.json")
	site.events("?show=keys&prefix=app/").await("listing", "config.json")
	want(t, listing(site.page("show", "keys", "prefix", strings.Repeat("x", 600))), "limit is 512")
}

// However large values are, a page is small.
func TestConsole_KeysBoundedByBytes(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	for i := range 60 {
		put(t, n, fmt.Sprintf("%03d%s", i, strings.Repeat("\u202e", 160)), bytes.Repeat([]byte{0x1b}, 64<<10))
	}
	site := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true})
	const rows, escaped = 50, 6 * (512 + 200) // a byte is six at most
	if size := len(listing(site.page("show", "keys"))); size > rows*(escaped+2000) {
		t.Errorf("%d bytes", size)
	}
}
