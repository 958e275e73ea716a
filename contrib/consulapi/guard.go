package consulapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/conclave-go/conclave/internal/loopback"
)

// secure sets the headers of every answer. A value that a browser shows runs no script.
func secure(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// refusal returns why a request is refused before any authorization.
func (s *server) refusal(r *http.Request) error {
	switch {
	case s.opts.Authorize == nil && !loopback.IsFrom(r):
		return refuse(http.StatusForbidden, "Permission denied: without authorization this serves loopback clients only, under a loopback name and without a proxy")
	case fromElsewhere(r):
		return refuse(http.StatusForbidden, "Permission denied: a page of another origin may not use this")
	}
	return nil
}

// fromElsewhere reports that a page of another origin makes the request, as far as the
// browser says so. This serves no page, so an origin is another one unless it has this host.
func fromElsewhere(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	return false
}

// tokenOf returns the token of a request. As in Consul the parameter comes first.
func tokenOf(r *http.Request, query url.Values) string {
	if t := query.Get("token"); t != "" {
		return t
	}
	if t := r.Header.Get("X-Consul-Token"); t != "" {
		return t
	}
	scheme, t, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(t)
	}
	return ""
}

// authorize asks whether the request may do this.
func (c *call) authorize(verb Verb, resource string) error {
	if c.opts.Authorize == nil {
		return nil
	}
	if err := c.opts.Authorize(c.token, verb, resource); err != nil {
		return refuse(http.StatusForbidden, "Permission denied: %v", err)
	}
	return nil
}
