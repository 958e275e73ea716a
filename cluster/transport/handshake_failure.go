package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
)

// HandshakeFailure classifies why a connection to a member failed, for logs; "": for a reason that may be transient.
func HandshakeFailure(err error) string {
	var refused *RefusedError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &refused):
		switch refused.Reason {
		case ReasonSelf, ReasonNoCluster, ReasonNotMember, ReasonBusy, ReasonAddress:
			return ""
		}
		return string(refused.Reason)
	case errors.As(err, &record):
		return "no TLS"
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &host):
		return "certificate"
	case errors.As(err, &alert):
		return "TLS alert"
	case errors.Is(err, ErrPlaintext):
		return "plaintext"
	case errors.Is(err, ErrNotConclave):
		return "not a conclave member"
	}
	return ""
}

// answered has the addresses at which a member has answered. What accepts there later, and does not answer, is that
// member's process, or one that has its port.
type answered struct {
	mu    sync.Mutex
	addrs map[string]struct{} // guarded by mu
}

const maxAnswered = 1024

func (a *answered) note(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.addrs == nil || len(a.addrs) >= maxAnswered {
		a.addrs = make(map[string]struct{})
	}
	a.addrs[addr] = struct{}{}
}

func (a *answered) has(addr string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.addrs[addr]
	return ok
}
