package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// authority issues certificates for 127.0.0.1, or for hosts.
type authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	hosts []string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// config is a member's configuration: a certificate and its authority.
func (a *authority) config(t *testing.T) *tls.Config {
	t.Helper()
	key := newKey(t)
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	if len(a.hosts) > 0 {
		ips = nil
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "member"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: ips, DNSNames: a.hosts,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool}
}

func withTLS(cfg *tls.Config) func(*Config) {
	return func(c *Config) {
		anyMember(c)
		c.TLS = cfg
	}
}

func TestTLS_EveryKindOfConnection(t *testing.T) {
	ca := newAuthority(t)
	a := start(t, identity(1), listenTCP(t), withTLS(ca.config(t)))
	b := start(t, identity(2), listenTCP(t), withTLS(ca.config(t)))
	connectAll(t, a, b)
	a.Send(m(2), raftFrame("secret"))
	b.events.await(t, "frame 1 secret")

	b.events.form = func(*wire.FormRequest) *wire.FormReply { return &wire.FormReply{Accepted: true} }
	if reply, err := a.Form(context.Background(), Target{Addr: b.addr}, &wire.FormRequest{}); err != nil || !reply.GetAccepted() {
		t.Error(reply, err)
	}
	var got []*wire.Pair
	b.events.snapshot = collect(&got)
	w, err := a.OpenSnapshot(context.Background(), m(2), testHeader)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := errors.Join(w.Add([]byte("k"), []byte("v")), w.Commit()); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
	checkGossip(t, a, b)
}

// A peer without a certificate of the authority is refused in both directions, as
// is plaintext.
func TestTLS_Refused(t *testing.T) {
	ca := newAuthority(t)
	a := start(t, identity(1), listenTCP(t), withTLS(ca.config(t)))
	noCertificate := ca.config(t)
	noCertificate.Certificates = nil
	noCertificate.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	noCertificate.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	foreign := newAuthority(t).config(t)
	foreign.InsecureSkipVerify = true // it accepts any certificate
	for name, cfg := range map[string]*tls.Config{"no certificate": noCertificate, "foreign certificate": foreign, "plaintext": nil} {
		t.Run(name, func(t *testing.T) {
			b := start(t, identity(2), listenTCP(t), withTLS(cfg))
			if _, err := b.connect(context.Background(), Target{Addr: a.addr}, wire.Kind_FORM); err == nil {
				t.Error("connected")
			}
			if _, err := a.connect(context.Background(), Target{Addr: b.addr}, wire.Kind_FORM); err == nil {
				t.Error("connected from the other side")
			}
		})
	}
}

// A configuration chosen by GetConfigForClient still requires certificates.
func TestTLS_GetConfigForClientStaysMutual(t *testing.T) {
	ca := newAuthority(t)
	cfg := ca.config(t)
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		loose := cfg.Clone()
		loose.ClientAuth = tls.NoClientCert
		return loose, nil
	}
	a := start(t, identity(1), listenTCP(t), withTLS(cfg))
	client := ca.config(t)
	client.Certificates = nil
	c, err := tls.Dial("tcp", a.addr, client)
	if err == nil {
		defer c.Close()
		_, err = io.ReadAll(c)
	}
	if err == nil {
		t.Error("accepted without a certificate")
	}
}

// A VerifyConnection that verifies a member by itself, as one must whose authorities change, learns which host was
// dialed. Package tls does not report an IP address.
func TestTLS_VerifyConnectionHasTheAddressDialed(t *testing.T) {
	ca := newAuthority(t)
	ca.hosts = []string{"elsewhere"}
	a := start(t, identity(1), listenTCP(t), withTLS(ca.config(t)))
	ca.hosts = nil
	cfg := ca.config(t)
	authorities := cfg.RootCAs
	cfg.RootCAs, cfg.ClientCAs, cfg.InsecureSkipVerify = nil, authorities, true
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		// A server sees the client's certificate here, which is valid for servers too.
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: authorities, DNSName: s.ServerName})
		return err
	}
	b := start(t, identity(2), listenTCP(t), withTLS(cfg))
	var name x509.HostnameError
	if _, err := b.connect(context.Background(), Target{Addr: a.addr}, wire.Kind_FORM); !errors.As(err, &name) {
		t.Errorf("a certificate for another host: %v", err)
	}
	if c, err := a.connect(context.Background(), Target{Addr: b.addr}, wire.Kind_FORM); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}
