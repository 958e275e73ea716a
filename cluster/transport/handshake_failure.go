package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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
