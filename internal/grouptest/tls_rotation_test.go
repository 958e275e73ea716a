package grouptest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// rotating is a member's TLS configuration, whose certificate and authorities change while
// it runs: docs/OPERATIONS.md describes it.
type rotating struct {
	certificate atomic.Pointer[tls.Certificate]
	authorities atomic.Pointer[x509.CertPool]
}

func (r *rotating) config() *tls.Config {
	server := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.certificate.Load(), nil }
	return &tls.Config{
		GetCertificate:       server,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.certificate.Load(), nil },
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{GetCertificate: server, ClientCAs: r.authorities.Load()}, nil
		},
		InsecureSkipVerify: true, // verify does it, by the authorities of now
		VerifyConnection:   r.verify,
	}
}

func (r *rotating) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: r.authorities.Load(), DNSName: s.ServerName})
	return err
}

func pool(authorities ...*authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range authorities {
		p.AddCert(a.cert)
	}
	return p
}

// Certificates and authorities rotate while the group works, in both orders, without a
// restart. Each step is taken on one member after the other, and a member connects again
// after it. In the end the former authority is worthless.
func TestTLS_RotationUnderLoad(t *testing.T) {
	t.Parallel()
	former, next := newAuthority(t), newAuthority(t)
	certificate := func(a *authority) func(r *rotating) {
		return func(r *rotating) { r.certificate.Store(&a.issue(t)[0]) }
	}
	trust := func(authorities ...*authority) func(r *rotating) {
		return func(r *rotating) { r.authorities.Store(pool(authorities...)) }
	}
	for name, steps := range map[string][]func(r *rotating){
		"certificates first": {certificate(former), trust(former, next), certificate(next), trust(next)},
		"authorities first":  {trust(former, next), certificate(next), trust(next), certificate(next)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := make([]*rotating, 3)
			g := Start(t, 3, Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
				members[i] = new(rotating)
				certificate(former)(members[i])
				trust(former)(members[i])
				c.TLS = members[i].config()
			}))
			for _, step := range steps {
				for i, member := range members {
					step(member)
					rotateUnderLoad(t, g, i)
				}
			}
			stranger := SoloConfig(t)
			stranger.Join, stranger.Expect = g.Configs[0].Join, 3
			stranger.TLS = &tls.Config{Certificates: former.issue(t), RootCAs: pool(former, next)}
			err := openUntil(t, stranger, func(own *Journal) { own.Await(t, 0, "remote error: tls:") })
			if !strings.Contains(err.Error(), "remote error: tls:") {
				t.Errorf("a certificate of the former authority: %v", err)
			}
			g.WantWorking()
		})
	}
}

// rotateUnderLoad restarts another member than i, so that it connects to i again, while
// the others acquire and release a lock.
func rotateUnderLoad(t *testing.T, g *Group, i int) {
	t.Helper()
	restarted := (i + 1) % len(g.Nodes)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	lock := g.Nodes[i].FencedLock("load")
	go func() {
		var fences []conclave.Fence
		for {
			select {
			case <-stop:
				var err error
				if !slices.IsSorted(fences) {
					err = errors.New("fences are not ascending")
				}
				stopped <- err
				return
			default:
			}
			f, err := lock.Lock(Bounded(t))
			if err == nil {
				fences = append(fences, f)
				err = lock.Unlock(Bounded(t))
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	g.Close(restarted)
	g.Start(restarted)
	close(stop)
	Must(t, <-stopped)
	g.WantWorking()
}
