package grouptest

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/testport"
)

// SoloConfig is the configuration of a group of one that is opened and closed many
// times, at an address that was free.
func SoloConfig(t testing.TB) conclave.Config {
	t.Helper()
	return conclave.Config{
		Dir: filepath.Join(t.TempDir(), "data"), Bind: testport.Addr(t),
		HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond,
	}
}

// WantOpenError checks that Open fails with an *Error that wraps want, which may be
// nil, and that contains each of the parts.
func WantOpenError(t testing.TB, c conclave.Config, want error, parts ...string) {
	t.Helper()
	n, err := conclave.Open(Bounded(t), &c)
	if err == nil {
		Kill(n)
		t.Fatal("Open succeeded")
	}
	var e *conclave.Error
	if !errors.As(err, &e) || want != nil && !errors.Is(err, want) {
		t.Errorf("Open returned %v; want an *Error that wraps %v", err, want)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}
