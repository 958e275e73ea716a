package grouptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// authority is a certificate authority for members on this machine.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := certificate()
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = newKey(t)
	a.cert = sign(t, template, template, a.key, a.key)
	a.pool.AddCert(a.cert)
	return a
}

// issue issues a member's certificate, which may have names.
func (a *authority) issue(t testing.TB, names ...string) []tls.Certificate {
	t.Helper()
	template, key := certificate(), newKey(t)
	template.DNSNames = names
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return []tls.Certificate{{Certificate: [][]byte{sign(t, template, a.cert, key, a.key).Raw}, PrivateKey: key}}
}

func certificate() *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, by *x509.Certificate, key, with *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// withoutClientCertificate presents a certificate as the server only. Open refuses a
// configuration without any.
func withoutClientCertificate(server []tls.Certificate, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		RootCAs:              roots,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &server[0], nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil },
	}
}

// Without authorities of its own a member would accept each certificate that a public
// authority has issued.
func TestHostile_PublicCertificate(t *testing.T) {
	t.Parallel()
	c := SoloConfig(t)
	c.TLS = &tls.Config{Certificates: newAuthority(t).issue(t)}
	_, err := conclave.Open(Bounded(t), &c)
	hostile.Attempt(t, "A3", "open a member that trusts the authorities of the system", "%v", err)
	if !errors.Is(err, conclave.ErrInvalid) {
		t.Errorf("got %v, want %v", err, conclave.ErrInvalid)
	}
}

// A certificate of the group's authority is needed to connect, and is not enough: a
// connection of a member needs the member's key.
func TestHostile_Certificates(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	g, _ := journaled(t, func(c *conclave.Config) {
		c.TLS = &tls.Config{Certificates: ours.issue(t), RootCAs: ours.pool}
	})
	dial := func(certificates []tls.Certificate) net.Conn {
		c, err := tls.Dial("tcp", g.Configs[0].Bind, &tls.Config{Certificates: certificates, RootCAs: ours.pool})
		Must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	known := hostile.New(dial(ours.issue(t))) // any holder of a certificate learns the cluster
	Must(t, known.Greet(hostile.Hello(hostile.NewKey(), wire.Kind_FORM)))
	for _, test := range []struct {
		what         string
		certificates []tls.Certificate
		want         string
	}{
		{"no certificate", nil, "certificate required"},
		{"a certificate of another authority", theirs.issue(t), "unknown certificate authority"},
		{"a certificate of the group's authority and a key of its own", ours.issue(t), "not a member"},
	} {
		key := hostile.NewKey()
		h := hostile.Hello(key, wire.Kind_PEER)
		h.Cluster = known.Theirs.GetCluster()
		_, refusal, err := hostile.Over(dial(test.certificates), key, h)
		if err == nil {
			err = fmt.Errorf("refused: %s", refusal)
		}
		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("with %s: got %v, want %q", test.what, err, test.want)
		}
		hostile.Attempt(t, "A3", "connect as a member with "+test.what, "%v", err)
	}
	g.WantWorking()
}

// A group with TLS works, and refuses connections without a certificate of its
// authority.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	g, j := journaled(t, func(c *conclave.Config) {
		c.TLS = &tls.Config{Certificates: ours.issue(t), RootCAs: ours.pool}
		c.SessionTTL = 10 * time.Second
	})
	g.WantWorking()
	first := MustLock(t, g.Nodes[0].FencedLock("x"))
	g.Kill(0)
	if second := MustLock(t, g.Nodes[1].FencedLock("x")); second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
	g.Start(0)

	for name, stranger := range map[string]struct {
		tls    *tls.Config
		reason string
	}{
		"plaintext":                            {nil, "does not look like a TLS handshake"},
		"no certificate":                       {withoutClientCertificate(ours.issue(t), ours.pool), "didn't provide a certificate"},
		"certificate of another authority":     {&tls.Config{Certificates: theirs.issue(t), RootCAs: ours.pool}, "certificate signed by unknown authority"},
		"authority not trusted by the dialler": {&tls.Config{Certificates: ours.issue(t), RootCAs: theirs.pool}, "remote error: tls:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for some refusals
			c := SoloConfig(t)
			c.Join, c.Expect, c.TLS = g.Configs[0].Join, 3, stranger.tls
			wantUnavailable(t, mustBeRefused(t, c, j, stranger.reason))
			g.WantWorking()
		})
	}
}
