package transport

import (
	"log/slog"
	"sync"
	"time"
)

// JoinFailures logs failed joins. Failures of TLS and of the handshake, which need an
// operator, are warnings, at most one in a minute for each address and reason. All
// others, such as a member that is down, are logged at debug level.
type JoinFailures struct {
	mu   sync.Mutex
	last map[[2]string]time.Time // guarded by mu; by address and reason
}

const (
	failurePause   = time.Minute
	maxJoinFailure = 256
)

// Log logs a failure.
func (f *JoinFailures) Log(to *slog.Logger, addr string, err error) {
	reason := HandshakeFailure(err)
	if reason == "" {
		to.Debug("join failed", "addr", addr, "error", err)
		return
	}
	if f.isDue(addr, reason, time.Now()) {
		to.Warn("join failed", "addr", addr, "reason", reason, "error", err)
	}
}

func (f *JoinFailures) isDue(addr, reason string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := [2]string{addr, reason}
	if last, ok := f.last[key]; ok && now.Sub(last) < failurePause {
		return false
	}
	if f.last == nil || len(f.last) >= maxJoinFailure {
		f.last = make(map[[2]string]time.Time)
	}
	f.last[key] = now
	return true
}
