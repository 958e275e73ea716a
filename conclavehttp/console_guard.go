package conclavehttp

import (
	"net/http"
	"strings"

	"github.com/conclave-go/conclave/internal/loopback"
)

// secure sets the headers of every answer.
func secure(header http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Frame-Options":              "DENY",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "same-origin", // no lock name leaves in a referrer, and forms keep their origin
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cache-Control":                "no-store",
	} {
		header.Set(name, value)
	}
}

// mayView decides on a request that reads, and answers one that it refuses.
func (h *ConsoleHandler) mayView(w http.ResponseWriter, r *http.Request) bool {
	if why := h.refusal(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return false
	}
	if h.opts.Authorize == nil {
		return true
	}
	if _, err := h.opts.Authorize(r, Act{Kind: ActView}); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return false
	}
	return true
}

// refusal returns why a request is refused before any authorization; "": it is not.
func (h *ConsoleHandler) refusal(r *http.Request) string {
	switch {
	case h.opts.Authorize == nil && !loopback.IsFrom(r):
		return "this console serves loopback clients only, under a loopback name and without a proxy: set ConsoleOptions.Authorize"
	case r.Method != http.MethodPost && fromElsewhere(r) && !(strings.Trim(r.URL.Path, "/") == "" && followsLink(r)):
		// Another site cannot read the answer, but it could use up streams and reads.
		return "this is for the console's own page"
	}
	return ""
}

// fromElsewhere reports that a page of another origin makes the request, as far as the browser
// says so.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

// followsLink reports that the browser shows the answer in a tab.
func followsLink(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
