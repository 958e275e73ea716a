package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// tlsPair holds the two sides of mutual TLS.
type tlsPair struct{ server, client *tls.Config }

func newTLSPair(cfg *tls.Config) *tlsPair {
	if cfg == nil {
		return nil
	}
	return &tlsPair{server: mutual(cfg), client: cfg.Clone()}
}

// checkTLS returns an error if a member with this configuration could neither
// accept nor dial: both sides present a certificate.
func checkTLS(cfg *tls.Config) error {
	if cfg == nil || len(cfg.Certificates) > 0 {
		return nil
	}
	if (cfg.GetCertificate == nil && cfg.GetConfigForClient == nil) || cfg.GetClientCertificate == nil {
		return errors.New("Config.TLS lacks a certificate, which a member presents when it is dialed and when it dials: " +
			"set Certificates, or both GetCertificate and GetClientCertificate, and RootCAs to the authority that issues them")
	}
	return nil
}

// mutual requires a client certificate. Members are peers, so both directions
// trust the same authorities unless the configuration names others.
func mutual(cfg *tls.Config) *tls.Config {
	s := cfg.Clone()
	s.ClientAuth = tls.RequireAndVerifyClientCert
	if s.ClientCAs == nil {
		s.ClientCAs = s.RootCAs
	}
	if choose := s.GetConfigForClient; choose != nil {
		s.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(h)
			if chosen == nil || err != nil {
				return chosen, err
			}
			m := chosen.Clone()
			m.GetConfigForClient = nil
			return mutual(m), nil
		}
	}
	return s
}

// clientFor expects the certificate of the dialed host, unless the
// configuration names one server for all members.
func (p *tlsPair) clientFor(addr string) *tls.Config {
	c := p.client.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil && c.ServerName == "" {
		c.ServerName = host
	}
	return c
}

// accept returns the server's side of a connection. Its handshake is not done.
func (p *tlsPair) accept(raw net.Conn) net.Conn { return tls.Server(raw, p.server) }

// tlsError is a failed TLS handshake, as opposed to a broken connection.
type tlsError struct{ error }

func (e *tlsError) Unwrap() error { return e.error }

// handshakeTLS runs the TLS handshake of a connection that has one.
func handshakeTLS(c *conn) error {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	err := secure.Handshake()
	if err == nil || isBroken(err) {
		return err
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && strings.HasPrefix(magic, string(header.RecordHeader[:])) {
		return fmt.Errorf("%w: %w", ErrTLSMismatch, err)
	}
	return &tlsError{err}
}

// tlsClientHello is how a peer that uses TLS begins: a handshake record of
// version 3.x.
const tlsClientHello = "\x16\x03"

// refuseMismatch answers a peer whose use of TLS differs from this member's.
// The answer is in plaintext, which is what either side can recognize, and
// therefore carries no identity.
func refuseMismatch(c *conn) {
	need := "plaintext"
	if _, secure := c.Conn.(*tls.Conn); secure {
		need = "TLS"
	} else {
		// The rest of the client hello. Unread, it could reset the connection
		// and lose the answer.
		_, _ = c.raw.Read(make([]byte, 16<<10))
	}
	refused := RefusedError{Reason: ReasonTLS, Detail: "the refusing member uses " + need + ": set Config.TLS on every member or on none"}
	_ = writeHello(c.raw, Identity{}, wire.Kind_KIND_UNSPECIFIED, 0, refused.text()) // c is closed next
}
