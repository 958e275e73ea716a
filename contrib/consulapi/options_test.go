package consulapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave/contrib/consulapi"
)

// A number without a unit is a number of nanoseconds. A handler has no error to return, so each request
// gets it.
func TestOptions_Invalid(t *testing.T) {
	for want, opts := range map[string]consulapi.Options{
		"want 0 (10s) or at least 1ms, got 15ns":     {Timeout: 15},
		"want 0 (10s) or at least 1ms, got -1s":      {Timeout: -time.Second},
		"want 0 (10s) or 1s to 24h0m0s, got 10ns":    {SessionTTLMin: 10},
		"want 0 (10s) or 1s to 24h0m0s, got -1s":     {SessionTTLMin: -time.Second},
		"want 0 (10s) or 1s to 24h0m0s, got 24h0m1s": {SessionTTLMin: 24*time.Hour + time.Second},
		"invalid Options.MaxBlocking":                {MaxBlocking: -1},
		"invalid Options.MaxAnswer":                  {MaxAnswer: -1},
		"invalid Options.Group":                      {Group: "a\x00"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/status/leader", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		consulapi.Handler(nil, &opts).ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != http.StatusInternalServerError || !strings.Contains(got, want) {
			t.Errorf("%d %s, want %q", w.Code, got, want)
		}
	}
}
