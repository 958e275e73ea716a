package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
)

// joinFailures logs failed joins. Failures of TLS and of the handshake, which need an
// operator, are warnings, at most one in a minute for each address and reason. All
// others, such as a member that is down, are logged at debug level.
type joinFailures struct {
	mu   sync.Mutex
	last map[[2]string]time.Time // guarded by mu; by address and reason
}

const (
	failurePause   = time.Minute
	maxJoinFailure = 256
)

func (f *joinFailures) log(to *slog.Logger, addr string, err error) {
	reason := handshakeFailure(err)
	if reason == "" {
		to.Debug("join failed", "addr", addr, "error", err)
		return
	}
	if f.isDue(addr, reason, time.Now()) {
		to.Warn("join failed", "addr", addr, "reason", reason, "error", err)
	}
}

func (f *joinFailures) isDue(addr, reason string, now time.Time) bool {
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

// handshakeFailure classifies an error; "" may be transient.
func handshakeFailure(err error) string {
	var refused *transport.RefusedError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &refused):
		switch refused.Reason {
		case transport.ReasonSelf, transport.ReasonNoCluster, transport.ReasonNotMember, transport.ReasonBusy, transport.ReasonAddress:
			return ""
		}
		return string(refused.Reason)
	case errors.As(err, &record):
		return "no TLS"
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &host):
		return "certificate"
	case errors.As(err, &alert):
		return "TLS alert"
	case errors.Is(err, transport.ErrPlaintext):
		return "plaintext"
	case errors.Is(err, transport.ErrNotConclave):
		return "not a conclave member"
	}
	return ""
}
