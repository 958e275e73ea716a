package transport

import (
	"testing"
	"time"
)

// A failure is logged once a minute for each address and reason.
func TestJoinFailures_RateLimited(t *testing.T) {
	var f JoinFailures
	now := time.Now()
	for _, step := range []struct {
		addr, reason string
		after        time.Duration
		want         bool
	}{
		{"a", "no TLS", 0, true}, {"a", "no TLS", time.Second, false}, {"b", "no TLS", time.Second, true},
		{"a", "certificate", time.Second, true}, {"a", "no TLS", failurePause, true},
	} {
		if got := f.isDue(step.addr, step.reason, now.Add(step.after)); got != step.want {
			t.Errorf("%+v: %t", step, got)
		}
	}
}
