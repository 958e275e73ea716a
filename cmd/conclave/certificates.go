package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificates are this process's certificate and the authorities that it trusts. Each handshake reads their files
// again, so that new ones are used without a restart. Files that cannot be used, as they are half written, change
// nothing: what could be used last remains in use.
type certificates struct {
	files *tlsFiles
	// report is called with mu held, and must not block: when something else is in use than before (nil), at the
	// first failure after that, and when it is over (nil).
	report func(inUse, error)

	mu          sync.Mutex
	certificate reloaded[*tls.Certificate] // guarded by mu
	authorities reloaded[*x509.CertPool]   // guarded by mu
	failing     bool                       // guarded by mu; the last failure is reported
	others      time.Time                  // guarded by mu; when the first certificate of those expires that others have presented
}

// inUse is when what is in use expires first: a certificate of the chain, an authority.
type inUse struct{ certificate, authority time.Time }

// newCertificates reads the files, and returns nil if there are none. report may be nil.
func newCertificates(f *tlsFiles, report func(inUse, error)) (*certificates, error) {
	if f.cert == "" && f.key == "" && f.ca == "" {
		return nil, nil
	}
	if f.cert == "" || f.key == "" || f.ca == "" {
		return nil, usageError{errors.New("--cert, --key and --ca belong together")}
	}
	c := &certificates{files: f}
	if _, err := c.read(); err != nil {
		return nil, err
	}
	if c.report = report; report == nil {
		c.report = func(inUse, error) {}
	}
	return c, nil
}

// config is for members and clients; nil without certificates.
func (c *certificates) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, authorities := c.current()
			return &tls.Config{Certificates: []tls.Certificate{*certificate}, ClientCAs: authorities}, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, _ := c.current()
			return certificate, nil
		},
		InsecureSkipVerify: true, // verify does it: RootCAs could not change
		VerifyConnection:   c.verify,
		ServerName:         c.files.serverName,
	}
}

// verify does what package tls does with RootCAs, for a process that is dialed.
func (c *certificates) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 || s.ServerName == "" {
		return errors.New("no certificate, or no name that it must be valid for")
	}
	_, authorities := c.current()
	options := x509.VerifyOptions{Roots: authorities, DNSName: s.ServerName, Intermediates: x509.NewCertPool()}
	for _, i := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(i)
	}
	if _, err := s.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	c.presented(s.PeerCertificates)
	return nil
}

// current reads the files again and returns what to use.
func (c *certificates) current() (*tls.Certificate, *x509.CertPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload(false)
	return c.certificate.value, c.authorities.value
}

// reloadNow reads the files again, and reports the result in any case.
func (c *certificates) reloadNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload(true)
}

// expiry reads the files again and returns when what is in use expires.
func (c *certificates) expiry() inUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload(false)
	return c.inUse()
}

// The methods below are called with mu held.

func (c *certificates) inUse() inUse { return inUse{c.certificate.notAfter, c.authorities.notAfter} }

func (c *certificates) reload(always bool) {
	changed, err := c.read()
	switch {
	case err != nil && (always || !c.failing):
		c.report(c.inUse(), err)
	case err == nil && (always || changed || c.failing):
		c.report(c.inUse(), nil)
	}
	c.failing = err != nil
}

// read takes over what can be used. A certificate that cannot leaves new authorities in use, and the other way round.
func (c *certificates) read() (changed bool, err error) {
	f := c.files
	renewed, err := c.certificate.read(parseCertificate, f.cert, f.key)
	if err != nil {
		err = fmt.Errorf("--cert %s, --key %s: %w", f.cert, f.key, err)
	}
	trusted, caErr := c.authorities.read(parseAuthorities, f.ca)
	if caErr != nil {
		caErr = fmt.Errorf("--ca %s: %w", f.ca, caErr)
	}
	return renewed || trusted, errors.Join(err, caErr)
}

// reloaded is the last value of some files that could be used.
type reloaded[T any] struct {
	contents [][]byte
	value    T
	notAfter time.Time // when a part of it expires first
}

func (r *reloaded[T]) read(parse func(contents [][]byte) (T, time.Time, error), files ...string) (changed bool, err error) {
	contents := make([][]byte, len(files))
	same := len(r.contents) == len(files)
	for i, name := range files {
		if contents[i], err = os.ReadFile(name); err != nil {
			return false, err
		}
		same = same && bytes.Equal(contents[i], r.contents[i])
	}
	if same {
		return false, nil
	}
	value, notAfter, err := parse(contents)
	if err != nil {
		return false, err
	}
	*r = reloaded[T]{contents, value, notAfter}
	return true, nil
}

// parseCertificate parses a certificate with its chain, and its key.
func parseCertificate(contents [][]byte) (*tls.Certificate, time.Time, error) {
	if _, err := blocks(contents[0]); err != nil {
		return nil, time.Time{}, err
	}
	c, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, time.Time{}, err
	}
	var first time.Time
	for _, der := range c.Certificate {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			first = earlier(first, parsed.NotAfter)
		}
	}
	return &c, first, nil
}

// parseAuthorities is AppendCertsFromPEM, but for a file that is not whole: the rest would be trusted no longer.
func parseAuthorities(contents [][]byte) (pool *x509.CertPool, first time.Time, err error) {
	all, err := blocks(contents[0])
	if err != nil {
		return nil, first, err
	}
	pool = x509.NewCertPool()
	for _, b := range all {
		if b.Type != "CERTIFICATE" || len(b.Headers) > 0 {
			continue
		}
		if c, err := x509.ParseCertificate(b.Bytes); err == nil {
			pool.AddCert(c)
			first = earlier(first, c.NotAfter)
		}
	}
	if first.IsZero() {
		return nil, first, errors.New("no certificate in PEM")
	}
	return pool, first, nil
}

// blocks returns those of a PEM file, if the last one is whole.
func blocks(text []byte) (all []*pem.Block, err error) {
	for {
		b, rest := pem.Decode(text)
		if b == nil {
			break
		}
		all, text = append(all, b), rest
	}
	if bytes.Contains(text, []byte("-----BEGIN ")) {
		return nil, errors.New("the last block of PEM is damaged or not complete")
	}
	return all, nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// logCertificates is what an agent reports.
func logCertificates(log *slog.Logger) func(inUse, error) {
	return func(u inUse, err error) {
		if err != nil {
			log.Warn("certificates not loaded: the last usable ones remain in use", "notAfter", u.certificate, "authoritiesNotAfter", u.authority, "error", err)
			return
		}
		log.Info("certificates loaded", "notAfter", u.certificate, "authoritiesNotAfter", u.authority)
	}
}

// register adds the metric of when the certificates expire. It is the agent's: a node of the library sees a tls.Config
// only, and what its callbacks will return at the next handshake is not known before.
func (c *certificates) register(metrics *prometheus.Registry) {
	for kind, expires := range map[string]func(inUse) time.Time{
		"certificate": func(u inUse) time.Time { return u.certificate },
		"authority":   func(u inUse) time.Time { return u.authority },
	} { // order: each is a series of its own
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "conclave_certificate_expiry_time_seconds", ConstLabels: prometheus.Labels{"kind": kind},
			Help: "When the agent's certificate, or the first of its authorities, expires, in Unix time.",
		}, func() float64 { return float64(expires(c.expiry()).Unix()) }))
	}
}
