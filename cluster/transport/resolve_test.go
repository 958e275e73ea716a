package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// names is a Config.Lookup.
type names map[string][]string

func (n names) lookup(_ context.Context, host string) (ips []netip.Addr, err error) {
	for _, ip := range n[host] {
		ips = append(ips, netip.MustParseAddr(ip))
	}
	return ips, nil
}

func withNames(n names) func(*Config) { return func(c *Config) { c.Lookup = n.lookup } }

func TestResolve_EachAddressOnce(t *testing.T) {
	n := names{"svc": {"10.0.0.2", "10.0.0.1", "::ffff:10.0.0.2", "fd00::1"}}
	for i := range 100 {
		n["many"] = append(n["many"], fmt.Sprintf("10.1.0.%d", i))
	}
	a := start(t, identity(1), listenTCP(t), withNames(n))
	for addr, want := range map[string][]Target{
		"svc:7000":       {{Addr: "10.0.0.1:7000", Host: "svc"}, {Addr: "10.0.0.2:7000", Host: "svc"}, {Addr: "[fd00::1]:7000", Host: "svc"}},
		"10.0.0.1:7000":  {{Addr: "10.0.0.1:7000"}},
		"[fd00::1]:7000": {{Addr: "[fd00::1]:7000"}},
		"no port":        {{Addr: "no port"}},
	} {
		if got, err := a.Resolve(t.Context(), addr); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", addr, got, err, want)
		}
	}
	if got, err := a.Resolve(t.Context(), "many:7000"); err != nil || len(got) != maxResolved {
		t.Errorf("got %d addresses, %v; want %d", len(got), err, maxResolved)
	}
}

func TestResolve_Failure(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), withNames(nil))
	_, err := a.Resolve(t.Context(), "svc:7000")
	wantParts(t, err, "connect to svc:7000", "lookup svc: no such host", "check the host in Config.Join here")
	slow := start(t, identity(2), listenTCP(t), func(c *Config) {
		c.Timing.Dial = time.Millisecond
		c.Lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	if _, err := slow.Resolve(t.Context(), "svc:7000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lookup without an answer: %v", err)
	}
}

// The application's Dial gets the name.
func TestResolve_DialOfTheApplication(t *testing.T) {
	dialed := ""
	a := start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Dial = func(_ context.Context, addr string) (net.Conn, error) {
			dialed = addr
			return nil, errors.New("no network in this test")
		}
	})
	targets, err := a.Resolve(t.Context(), "svc:7000")
	if err != nil || !slices.Equal(targets, []Target{{Addr: "svc:7000"}}) {
		t.Fatal(targets, err)
	}
	_, _ = a.Form(t.Context(), targets[0], &wire.FormRequest{}) // fails
	if dialed != "svc:7000" {
		t.Errorf("dialed %q", dialed)
	}
}

// The certificate is checked for the name that was resolved, not for the address dialed.
func TestResolve_CertificateOfTheName(t *testing.T) {
	ca := newAuthority(t)
	ca.hosts = []string{"svc"}
	n := names{"svc": {"127.0.0.1"}, "other": {"127.0.0.1"}}
	withNames := func(c *Config) {
		withTLS(ca.config(t))(c)
		c.Lookup = n.lookup
	}
	a, b := start(t, identity(1), listenTCP(t), withNames), start(t, identity(2), listenTCP(t), withNames)
	b.events.form = func(*wire.FormRequest) *wire.FormReply { return &wire.FormReply{} }
	_, port, _ := net.SplitHostPort(b.addr)
	ask := func(host string) error {
		targets, err := a.Resolve(t.Context(), host+":"+port)
		if err != nil || len(targets) != 1 {
			t.Fatal(targets, err)
		}
		_, err = a.Form(t.Context(), targets[0], &wire.FormRequest{})
		return err
	}
	if err := ask("svc"); err != nil {
		t.Error(err)
	}
	err := ask("other")
	if host := (x509.HostnameError{}); !errors.As(err, &host) || host.Host != "other" {
		t.Errorf("the certificate of another name: %v", err)
	}
	wantParts(t, err, b.addr+", an address of other")
	if err := ask("127.0.0.1"); err == nil {
		t.Error("accepted by its address alone")
	}
}

// Gossip dials IP addresses: the certificate is expected to name what the member
// advertises.
func TestGossip_CertificateOfTheAdvertisedName(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	const addr = "10.0.0.2:7000"
	for advertised, want := range map[string]string{"pod-2:7000": "pod-2", "10.0.0.2:7000": ""} {
		a.SetPeer(m(2), advertised)
		if to := a.Gossip().MemberAt(m(2), addr); to != (Target{Addr: addr, Member: m(2), Advertised: true, Host: want}) {
			t.Errorf("advertised as %s: %+v", advertised, to)
		}
	}
}
