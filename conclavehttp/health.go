package conclavehttp

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/conclave-go/conclave"
)

// Health returns a handler for the probes of Kubernetes and of load balancers. It serves
// two paths, in the manner of the Kubernetes API server:
//
//   - /livez: 200 while [conclave.Health] is Live. If it is not, restart the process.
//   - /readyz: 200 while it is Ready. If it is not, send the process no traffic.
//
// The body is "ok". With the parameter verbose, and with the status 503 always, it has a line
// for each check. A check that only warns, [conclave.HealthCheck.Warning], has a line there
// and never fails the probe. Each parameter exclude=NAME leaves a check out of the decision. Methods
// other than GET and HEAD are answered with 405, other paths with 404; [http.StripPrefix]
// mounts the handler elsewhere.
//
// A nil node is one that Open has not returned yet: live, and not ready. A program that
// listens for probes before it calls Open uses [HealthFunc].
//
// The text of a failed check names members, addresses and files. Serve it to operators and
// probes only.
func Health(node *conclave.Node) http.Handler {
	return HealthFunc(func() *conclave.Node { return node })
}

// HealthFunc is [Health] for the node that the function returns at each request: nil as long as
// Open has not returned. The function is called concurrently and must not block.
//
//	var node atomic.Pointer[conclave.Node] // stored when Open has returned
//	mux.Handle("/readyz", conclavehttp.HealthFunc(node.Load))
func HealthFunc(node func() *conclave.Node) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		live := r.URL.Path == "/livez"
		if !live && r.URL.Path != "/readyz" {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		status, body := answer(r.URL, checks(node(), live))
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write(body) // fails only if the client has disconnected
	})
}

// opening returns the condition of a node before Open has returned. A restart would only
// make it wait again.
func opening() []conclave.HealthCheck {
	return []conclave.HealthCheck{
		{Name: "node", Text: "the node is not open yet: it waits for its group; its log has the reason"},
	}
}

// checks returns the checks that decide.
func checks(node *conclave.Node, live bool) []conclave.HealthCheck {
	list := opening()
	if node != nil {
		list = node.Health().Reasons
	}
	if !live {
		return list
	}
	return slices.DeleteFunc(list, func(c conclave.HealthCheck) bool { return !c.Live })
}

// answer returns the status and the body for a request. The format is that of the
// Kubernetes API server, except that it states the reason of a failure.
func answer(u *url.URL, checks []conclave.HealthCheck) (status int, body []byte) {
	query := u.Query()
	unknown := slices.Compact(slices.Sorted(slices.Values(query["exclude"])))
	var b bytes.Buffer
	passed := true
	for _, c := range checks {
		before := len(unknown)
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == c.Name })
		switch {
		case len(unknown) < before:
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.Name)
		case c.OK:
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		case c.Warning:
			fmt.Fprintf(&b, "[!]%s warning: %s\n", c.Name, oneLine(c.Text))
		default:
			passed = false
			fmt.Fprintf(&b, "[-]%s failed: %s\n", c.Name, oneLine(c.Text))
		}
	}
	if len(unknown) > 0 {
		fmt.Fprintf(&b, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(unknown))
	}
	name := strings.TrimPrefix(u.Path, "/")
	if !passed {
		fmt.Fprintf(&b, "%s check failed\n", name)
		return http.StatusServiceUnavailable, b.Bytes()
	}
	if !query.Has("verbose") {
		return http.StatusOK, []byte("ok")
	}
	fmt.Fprintf(&b, "%s check passed\n", name)
	return http.StatusOK, b.Bytes()
}

// oneLine keeps the text of an error, which may have line breaks, on the line of its check.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// maxQuoted bounds what is quoted of a request, in bytes: nothing authorizes it, and a client
// may leave the answer unread.
const maxQuoted = 1 << 10

func quoted(names []string) string {
	var list []string
	left := maxQuoted
	for _, name := range names {
		if left -= len(name) + len(`"",`); left < 0 {
			return strings.Join(append(list, "..."), ",")
		}
		list = append(list, fmt.Sprintf("%q", name))
	}
	return strings.Join(list, ",")
}
