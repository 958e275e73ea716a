package transport

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/appcall"
)

// tlsPair holds the two sides of mutual TLS.
type tlsPair struct{ server, client *tls.Config }

func newTLSPair(cfg *tls.Config, calls *appcall.Calls) *tlsPair {
	if cfg == nil {
		return nil
	}
	keys, client := calls.KeyLog(), cfg.Clone()
	client.KeyLogWriter = keys.To(cfg.KeyLogWriter)
	return &tlsPair{server: mutual(cfg, keys), client: client}
}

// CheckTLS returns an error if a member with this configuration could neither accept nor
// dial, as both sides present a certificate, or if it would trust the authorities of the
// system: a public authority issues certificates to all.
func CheckTLS(cfg *tls.Config) error {
	if cfg == nil {
		return nil
	}
	if err := checkRenegotiation(cfg); err != nil {
		return err
	}
	if cfg.RootCAs == nil && !verifiesItself(cfg) || cfg.RootCAs == nil && cfg.ClientCAs == nil && cfg.GetConfigForClient == nil {
		return errors.New("Config.TLS names no authorities, so that the system's would be trusted: set RootCAs to the authority " +
			"that issues the members' certificates, and ClientCAs if it is another one for dialing members")
	}
	return checkCertificates(cfg)
}

// checkDialerTLS is CheckTLS for a client, which is never dialed.
func checkDialerTLS(cfg *tls.Config) error {
	switch {
	case cfg == nil:
		return nil
	case cfg.RootCAs == nil && !verifiesItself(cfg):
		return errors.New("the client's TLS names no authorities, so that the system's would be trusted: " +
			"set RootCAs to the authority that issues the members' certificates")
	case len(cfg.Certificates) == 0 && cfg.GetClientCertificate == nil:
		return errors.New("the client's TLS lacks a certificate, which a client presents to members: set Certificates or GetClientCertificate")
	}
	return checkRenegotiation(cfg)
}

func checkRenegotiation(cfg *tls.Config) error {
	if cfg.Renegotiation == tls.RenegotiateNever {
		return nil
	}
	return errors.New("TLS permits renegotiation, which the handshake cannot be bound to: set Renegotiation to RenegotiateNever")
}

// verifiesItself reports whether the configuration verifies the certificates of the members
// that are dialed by its own means.
func verifiesItself(cfg *tls.Config) bool {
	return cfg.InsecureSkipVerify && (cfg.VerifyConnection != nil || cfg.VerifyPeerCertificate != nil)
}

func checkCertificates(cfg *tls.Config) error {
	if len(cfg.Certificates) > 0 {
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
func mutual(cfg *tls.Config, keys *appcall.KeyLog) *tls.Config {
	s := cfg.Clone()
	s.KeyLogWriter = keys.To(cfg.KeyLogWriter)
	s.SessionTicketsDisabled = true // a resumed session would carry a verification from before a rotation
	s.ClientAuth = tls.RequireAndVerifyClientCert
	if s.ClientCAs == nil {
		s.ClientCAs = s.RootCAs
	}
	if choose := s.GetConfigForClient; choose != nil {
		s.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(h)
			if chosen == nil && err == nil && s.ClientCAs == nil {
				return nil, errors.New("GetConfigForClient returned no configuration, and Config.TLS names no authorities: set ClientCAs")
			}
			if chosen == nil || err != nil {
				return chosen, err
			}
			if chosen.ClientCAs == nil && chosen.RootCAs == nil {
				return nil, errors.New("the configuration that GetConfigForClient returned names no authorities: set ClientCAs")
			}
			m := chosen.Clone()
			m.GetConfigForClient = nil
			return mutual(m, keys), nil
		}
	}
	return s
}

// clientFor expects the certificate of a host, unless the configuration names one server
// for all members.
func (p *tlsPair) clientFor(host string) *tls.Config {
	c := p.client.Clone()
	c.ClientSessionCache = nil // members issue no tickets, and it would be called by readers
	c.ServerName = cmp.Or(c.ServerName, host)
	if verify, name := c.VerifyConnection, c.ServerName; verify != nil {
		// Package tls reports the name that it has sent, which is none for an IP address: a
		// VerifyConnection would verify the certificate for no name.
		c.VerifyConnection = func(s tls.ConnectionState) error {
			s.ServerName = cmp.Or(s.ServerName, name)
			return verify(s)
		}
	}
	return c
}

// accept returns the server's side of a connection. Its handshake is not done.
func (p *tlsPair) accept(raw net.Conn) net.Conn { return tls.Server(raw, p.server) }

// tlsError is a failed TLS handshake, as opposed to a broken connection.
type tlsError struct{ error }

func (e *tlsError) Unwrap() error { return e.error }

// How long Close, and an inbound handshake whose time is up, wait for a function of the
// application.
const (
	closeGrace     = 3 * time.Second
	handshakeGrace = time.Second
)

// awaitApplication waits for the calls of the application's functions.
func awaitApplication(calls *appcall.Calls, log *slog.Logger) {
	if left := calls.Wait(closeGrace); left > 0 {
		log.Warn("closing without functions of the application that have not returned", "calls", left)
	}
}

// handshakeTLS runs the TLS handshake of a connection that has one. The configuration's
// callbacks and keys are the application's: when the connection is closed the handshake is
// left to itself.
func handshakeTLS(c *conn, calls *appcall.Calls) error {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	err, failed := appcall.Do(calls, "the callbacks of Config.TLS", appcall.MaxLate, c.done, secure.Handshake, nil)
	switch {
	case errors.Is(failed, appcall.ErrLate):
		return net.ErrClosed
	case failed != nil:
		return &tlsError{failed}
	}
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

// tlsAlert is how a peer that uses TLS answers plaintext: an alert record.
const tlsAlert = "\x15\x03"

// refuseMismatch answers a peer whose use of TLS differs from this member's, so that both
// report the mismatch. It shows what this member speaks, and carries nothing to be acted
// upon.
func refuseMismatch(c *conn) {
	if _, secure := c.Conn.(*tls.Conn); secure {
		// The fatal alert protocol_version, filled up to the length of the magic.
		_, _ = c.raw.Write([]byte(tlsAlert + "\x01\x00\x02\x02\x46\x00"))
		return // c is closed next
	}
	// The rest of the client hello. Unread, it could reset the connection and lose the
	// answer.
	_, _ = c.raw.Read(make([]byte, 16<<10))
	_, _ = c.raw.Write([]byte(magic))
}
