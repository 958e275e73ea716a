package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// clientKey is the key of client n, which differs from those of members.
func clientKey(n int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0], seed[1], seed[2] = byte(n), byte(n>>8), 1
	return ed25519.NewKeyFromSeed(seed)
}

// clientOpening is the hello of client 1.
func clientOpening() opening {
	key := clientKey(1)
	return opening{id: clientIdentity("test", "c1", 0, publicOf(key), testCluster), key: key, kind: wire.Kind_CLIENT}
}

func renewal(n uint64) *wire.ClientFrame {
	return &wire.ClientFrame{Body: &wire.ClientFrame_Renew{Renew: n}}
}

func renewed(n uint64) *wire.MemberFrame {
	return &wire.MemberFrame{Body: &wire.MemberFrame_Renewed{Renewed: &wire.Renewed{Number: n}}}
}

// echo answers each renewal, and reports how each connection ended.
func echo(ended chan<- error) func(*ClientConn) {
	return func(c *ClientConn) {
		for {
			f := new(wire.ClientFrame)
			if err := c.Read(f); err != nil {
				ended <- err
				return
			}
			c.Send(renewed(f.GetRenew()), 0)
		}
	}
}

// serving starts member 1, which serves clients with echo; change may be nil.
func serving(t *testing.T, change func(*Config)) (*node, <-chan error) {
	t.Helper()
	ended := make(chan error, 10_000)
	return start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Client = echo(ended)
		if change != nil {
			change(c)
		}
	}), ended
}

// dialer starts a Dialer of the group "test"; change may be nil.
func dialer(t *testing.T, change func(*DialerConfig)) *Dialer {
	t.Helper()
	cfg := DialerConfig{Group: "test", Name: "c1"}
	if change != nil {
		change(&cfg)
	}
	d, err := NewDialer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Close()
		if n := d.goroutines.count(); n != 0 {
			t.Errorf("%d goroutines remain", n)
		}
		await(t, func() error { // a timer that ends a handshake may be about to remove its connection
			d.mu.Lock()
			defer d.mu.Unlock()
			if n := len(d.conns); n != 0 {
				return fmt.Errorf("%d connections remain", n)
			}
			return nil
		})
	})
	return d
}

// mustConnect connects client 1.
func mustConnect(t *testing.T, d *Dialer, addr string) *ClientConn {
	t.Helper()
	c, err := d.Connect(t.Context(), Target{Addr: addr}, clientKey(1), wire.ID{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// roundTrip sends a renewal and expects the answer of echo.
func roundTrip(t *testing.T, c *ClientConn, n uint64) {
	t.Helper()
	if !c.Send(renewal(n), 8) {
		t.Fatal(c.Err())
	}
	f := new(wire.MemberFrame)
	if err := c.Read(f); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(f, renewed(n)) {
		t.Errorf("got %v, want %v", f, renewed(n))
	}
}

func TestClientConn_ProvenAtBothEnds(t *testing.T) {
	admitted, served := make(chan Peer, 1), make(chan Peer, 1)
	ended := make(chan error, 1)
	a := start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Admit = func(p Peer) error { admitted <- p; return nil }
		c.Durable = func() Durable { return Durable{Term: 7, Index: 70} }
		c.Client = func(cc *ClientConn) { served <- cc.Peer(); echo(ended)(cc) }
	})
	d := dialer(t, nil)
	c := mustConnect(t, d, a.addr)
	for n := range uint64(100) {
		roundTrip(t, c, n)
	}
	if p := c.Peer(); p.Member != m(1) || p.Cluster != testCluster || p.Name != "m1" || p.Remote != a.addr || p.Inbound || p.Durable.Index != 0 {
		t.Errorf("the client sees %+v", p)
	}
	public := publicOf(clientKey(1))
	for _, p := range []Peer{<-admitted, <-served} {
		if p.Member != wire.FingerprintOf(public) || p.Incarnation != wire.ClientIncarnation(public) || !p.Key.Equal(public) ||
			p.Kind != wire.Kind_CLIENT || !p.Inbound || p.Name != "c1" || p.TLS != nil {
			t.Errorf("the member sees %+v", p)
		}
	}
	cause := errors.New("the cause")
	c.Close(cause)
	c.Close(errors.New("later"))
	<-c.Done()
	if err := c.Read(new(wire.MemberFrame)); err != cause || c.Err() != cause || c.Send(renewal(1), 0) || c.SendWait(t.Context(), renewal(1), 0) != cause {
		t.Errorf("after Close: %v, %v", err, c.Err())
	}
	if err := <-ended; !strings.Contains(err.Error(), "connection to client "+wire.MemberID(wire.FingerprintOf(public)).String()) {
		t.Errorf("the member's error is %v", err)
	}
	if _, ok := a.Connected(wire.FingerprintOf(public)); ok || len(a.boots.highest) > 0 || len(a.hosts) > 0 {
		t.Error("the client was recorded as a member")
	}
}

// The connection is closed when Config.Client returns.
func TestClientConn_ClosedAfterServing(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Client = func(*ClientConn) {} })
	c := mustConnect(t, dialer(t, nil), a.addr)
	if err := c.Read(new(wire.MemberFrame)); !isClosed(err) || errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	await(t, func() error {
		if a.clients.Count() != 0 {
			return errors.New("the place is not free")
		}
		return nil
	})
}

func TestClientConn_TLS(t *testing.T) {
	ca := newAuthority(t)
	admitted := make(chan Peer, 10)
	a, _ := serving(t, func(c *Config) {
		c.TLS = ca.config(t)
		c.Admit = func(p Peer) error { admitted <- p; return nil }
	})
	secure := ca.config(t)
	d := dialer(t, func(c *DialerConfig) { c.TLS = secure })
	c := mustConnect(t, d, a.addr)
	roundTrip(t, c, 1)
	if p := <-admitted; p.TLS == nil || len(p.TLS.PeerCertificates) == 0 || c.Peer().TLS == nil {
		t.Errorf("got %+v and %+v", p, c.Peer())
	}
	noCertificate := ca.config(t)
	noCertificate.Certificates = nil
	noCertificate.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	foreign := newAuthority(t).config(t)
	mixed := newAuthority(t).config(t)
	mixed.RootCAs = secure.RootCAs
	for name, cfg := range map[string]*tls.Config{"plaintext": nil, "no certificate": noCertificate, "trusts another authority": foreign, "has a foreign certificate": mixed} {
		d := dialer(t, func(c *DialerConfig) { c.TLS = cfg })
		_, err := d.Connect(t.Context(), Target{Addr: a.addr}, clientKey(1), wire.ID{})
		var failed *ConnectError
		if !errors.As(err, &failed) {
			t.Errorf("%s: got %v, want a *ConnectError", name, err)
		}
	}
	plain, _ := serving(t, nil)
	if _, err := d.Connect(t.Context(), Target{Addr: plain.addr}, clientKey(1), wire.ID{}); !errors.Is(err, ErrTLSMismatch) {
		t.Errorf("a member without TLS: %v", err)
	}
}

func TestNewDialer_Faults(t *testing.T) {
	ca := newAuthority(t)
	noRoots, noCertificate, renegotiating := ca.config(t), ca.config(t), ca.config(t)
	noRoots.RootCAs, noCertificate.Certificates, renegotiating.Renegotiation = nil, nil, tls.RenegotiateFreelyAsClient
	for want, cfg := range map[string]DialerConfig{
		"names no authorities":  {TLS: noRoots},
		"lacks a certificate":   {TLS: noCertificate},
		"permits renegotiation": {TLS: renegotiating},
		"exceed the limit":      {Group: strings.Repeat("g", maxIdentity+1)},
	} {
		if _, err := NewDialer(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Plaintext beyond loopback is refused at both ends, before a byte is sent.
func TestDialer_PlaintextBeyondLoopback(t *testing.T) {
	d := dialer(t, nil)
	if _, err := d.Connect(t.Context(), Target{Addr: "192.0.2.1:7000"}, clientKey(1), wire.ID{}); !errors.Is(err, ErrPlaintext) {
		t.Error(err)
	}
	n := newMemNet()
	ln := &foreignListener{memListener: n.listen("a")}
	start(t, identity(1), ln, func(c *Config) { c.Client = echo(make(chan error, 1)) })
	inside := dialer(t, func(c *DialerConfig) { c.Dial = n.dial })
	if _, err := inside.Connect(t.Context(), Target{Addr: "a"}, clientKey(1), wire.ID{}); err == nil {
		t.Error("connected from beyond loopback")
	}
	open := dialer(t, func(c *DialerConfig) { c.Insecure = true })
	if !open.network().permitted(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}) {
		t.Error("not permitted with Insecure")
	}
}

// A name stands for all of its addresses, in any order; the certificate is still that of the name.
func TestDialer_ResolvesNames(t *testing.T) {
	a, _ := serving(t, nil)
	_, port, err := net.SplitHostPort(a.addr)
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string][]netip.Addr{
		"group": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}, "empty": nil,
	}
	d := dialer(t, func(c *DialerConfig) {
		c.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) { return hosts[host], nil }
	})
	firsts := make(map[string]bool)
	for range 64 {
		targets, err := d.Resolve(t.Context(), "group:"+port)
		if err != nil || len(targets) != 3 || targets[0].Host != "group" {
			t.Fatal(targets, err)
		}
		firsts[targets[0].Addr] = true
		if slices.IndexFunc(targets, func(to Target) bool { return to.Addr == a.addr }) < 0 {
			t.Fatal(targets)
		}
	}
	if len(firsts) != 3 {
		t.Errorf("64 times only %v came first", firsts)
	}
	if !d.Resolves("group:1") || d.Resolves(a.addr) {
		t.Error("only a name is resolved")
	}
	_, err = d.Resolve(t.Context(), "empty:1")
	wantParts(t, err, "empty:1", "no such host", "the addresses of members that this client has")
}

// The context, the timeout and Close end Connect.
func TestDialer_ConnectEnds(t *testing.T) {
	silent := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	d := dialer(t, nil)
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := d.Connect(ctx, Target{Addr: silent}, clientKey(1), wire.ID{}); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	quick := dialer(t, func(c *DialerConfig) { c.Timing.Dial = 2 * time.Second })
	_, err := quick.Connect(t.Context(), Target{Addr: silent}, clientKey(1), wire.ID{})
	wantParts(t, err, "handshake with "+silent, "no hello arrived in time", "the addresses of members that this client has")
	failed := make(chan error)
	slow := dialer(t, func(c *DialerConfig) { c.Timing.Dial = time.Hour })
	go func() {
		_, err := slow.Connect(t.Context(), Target{Addr: silent}, clientKey(1), wire.ID{})
		failed <- err
	}()
	await(t, func() error {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		if len(slow.conns) == 0 {
			return errors.New("no connection yet")
		}
		return nil
	})
	_ = slow.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := slow.Connect(t.Context(), Target{Addr: silent}, clientKey(1), wire.ID{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := d.Connect(t.Context(), Target{Addr: silent}, nil, wire.ID{}); err == nil || !strings.Contains(err.Error(), "invalid key") {
		t.Errorf("no key: %v", err)
	}
}
