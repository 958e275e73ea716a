package conclavecertmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavecertmagic"
)

// authority is a certificate authority in this process, in place of one that speaks ACME.
type authority struct {
	key     *ecdsa.PrivateKey
	cert    *x509.Certificate
	issued  atomic.Int64
	issuing chan struct{} // receives once for each certificate that is requested
	proceed chan struct{} // closed: issue it
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, issuing: make(chan struct{}, 10), proceed: make(chan struct{})}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// IssuerKey implements certmagic.Issuer.
func (a *authority) IssuerKey() string { return "authority" }

// Issue implements certmagic.Issuer.
func (a *authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.issuing <- struct{}{}
	select {
	case <-a.proceed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.issued.Add(1)), Subject: request.Subject, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// newConfig returns the configuration of CertMagic in one process, and what stops its maintenance.
func newConfig(s certmagic.Storage, a *authority) (*certmagic.Config, func()) {
	var cfg *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil },
	})
	cfg = certmagic.New(cache, certmagic.Config{
		Storage: s, Issuers: []certmagic.Issuer{a}, OCSP: certmagic.OCSPConfig{DisableStapling: true},
	})
	return cfg, cache.Stop
}

func TestCertMagic_MembersObtainOneCertificate(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, err := newAuthority()
	must(t, err)
	var processes []*certmagic.Config
	results := make(chan error, 2)
	for i := range 2 {
		cfg, stop := newConfig(conclavecertmagic.New(group.Node(i)), a)
		t.Cleanup(stop)
		processes = append(processes, cfg)
		go func() { results <- cfg.ManageSync(t.Context(), []string{"example.com"}) }()
	}
	<-a.issuing
	awaitWaiters(t, group.Node(2), 1) // the other process waits for the lock
	close(a.proceed)
	for range processes {
		must(t, result(t, results))
	}
	if n := a.issued.Load(); n != 1 {
		t.Errorf("%d certificates were issued, want 1", n)
	}
	for i, cfg := range processes {
		served, err := cfg.GetCertificate(&tls.ClientHelloInfo{ServerName: "example.com"})
		must(t, err)
		if serial := served.Leaf.SerialNumber; serial.Int64() != 1 {
			t.Errorf("process %d serves the certificate %v", i, serial)
		}
	}
}

func TestCertMagic_CancelReleasesLock(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, err := newAuthority()
	must(t, err)
	cfg, stop := newConfig(conclavecertmagic.New(group.Node(0)), a)
	t.Cleanup(stop)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 1)
	go func() { results <- cfg.ManageSync(ctx, []string{"example.com"}) }()
	<-a.issuing
	cancel()
	if err := result(t, results); !errors.Is(err, context.Canceled) {
		t.Errorf("ManageSync: %v, want Canceled", err)
	}

	close(a.proceed)
	other, stop := newConfig(conclavecertmagic.New(group.Node(1)), a)
	t.Cleanup(stop)
	must(t, other.ManageSync(t.Context(), []string{"example.com"}))
}
