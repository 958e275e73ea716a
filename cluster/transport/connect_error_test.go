package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// wantParts checks that an error contains each part: the member, its address,
// the cause and what to do.
func wantParts(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than one line", err)
	}
}

// dialPeer makes addr the address of member 2 and returns the first error.
func dialPeer(t *testing.T, a *node, addr string) error {
	t.Helper()
	a.SetPeer(m(2), addr)
	await(t, func() error {
		if err := a.PeerError(m(2)); errors.Is(err, ErrNotConnected) {
			return err
		}
		return nil
	})
	return a.PeerError(m(2))
}

// otherProgram listens and answers every connection with a greeting.
func otherProgram(t *testing.T, greeting string) string {
	t.Helper()
	return serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, greeting)
		_, _ = io.Copy(io.Discard, c) // until the dialer closes
	})
}

func TestConnectError_WrongAdvertisePort(t *testing.T) {
	member := "member " + text(2) + " at "
	for _, c := range []struct {
		name  string
		addr  func(a *node) string
		parts []string
	}{
		{"nothing listens", func(*node) string {
			ln := listenTCP(t)
			ln.Close()
			return ln.Addr().String()
		}, []string{"connect to", "refused", "check that the member runs, and the host and port in Config.Advertise of that member"}},
		{"another program listens", func(*node) string { return otherProgram(t, "SSH-2.0-OpenSSH_9.9\r\n") },
			[]string{"handshake with", ErrNotConclave.Error(), "check the port in Config.Advertise of that member"}},
		{"port of this member", func(a *node) string { return a.addr },
			[]string{string(ReasonMember), "address of member " + text(1) + ", not of " + text(2), "Config.Advertise"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := start(t, identity(1), listenTCP(t), nil)
			addr := c.addr(a)
			err := dialPeer(t, a, addr)
			wantParts(t, err, append(c.parts, addr)...)
			if c.name != "port of this member" { // which names the member that answered
				wantParts(t, err, member+addr)
			}
		})
	}
	t.Run("port of another member", func(t *testing.T) {
		a := start(t, identity(1), listenTCP(t), nil)
		b := start(t, identity(3), listenTCP(t), nil)
		wantParts(t, dialPeer(t, a, b.addr), "refused by member "+text(3)+" at "+b.addr,
			"address of member "+text(3)+", not of "+text(2), "check the port in Config.Advertise of both")
	})
}

// A process that accepts and does not answer has another port by mistake, or is paused: that is clear where a member has
// answered before.
func TestConnectError_PausedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		silent := func(addr string) {
			l := n.listen(addr)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
			}()
		}
		var j journal
		a := logTo(t, n, &j, 1, "a")
		b := inMemory(t, n, identity(2), "b")
		b.SetPeer(m(1), "a")
		a.SetPeer(m(2), "b")
		awaitConnected(t, a, m(2))
		b.Close()
		silent("b")
		silent("c")
		a.SetPeer(m(3), "c")
		time.Sleep(time.Minute)
		wantParts(t, a.PeerError(m(2)), "handshake with member "+text(2)+" at b", "accepts but does not answer: paused or overloaded")
		wantParts(t, a.PeerError(m(3)), "handshake with member "+text(3)+" at c", "no hello arrived in time, check the port in Config.Advertise of that member")
		if strings.Contains(a.PeerError(m(2)).Error(), "check the port") || j.count("paused or overloaded") == 0 {
			t.Errorf("%v\n%v", a.PeerError(m(2)), &j)
		}

		d := dialer(t, func(c *DialerConfig) { c.Dial = n.dial })
		d.answered.note("b")
		_, err := d.Connect(t.Context(), Target{Addr: "b"}, clientKey(1), wire.ID{})
		wantParts(t, err, "handshake with b", "paused or overloaded")
	})
}

// The addresses at which members have answered are bounded: they come from outside.
func TestAnswered_Bounded(t *testing.T) {
	var a answered
	for i := range 3 * maxAnswered {
		a.note(strconv.Itoa(i))
	}
	if len(a.addrs) > maxAnswered || !a.has(strconv.Itoa(3*maxAnswered-1)) {
		t.Errorf("%d addresses", len(a.addrs))
	}
}

// The reserved domain .invalid never resolves.
func TestConnectError_UnresolvableName(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	err := dialPeer(t, a, "member-2.invalid:7000")
	var unresolved *net.DNSError
	if !errors.As(err, &unresolved) {
		t.Skipf("no resolver answers: %v", err)
	}
	wantParts(t, err, "connect to member "+text(2)+" at member-2.invalid:7000", unresolved.Error(),
		"check the host in Config.Advertise of that member, and the name service")
	if reasonOf(err) != reasonUnresolved {
		t.Errorf("reason %q", reasonOf(err))
	}

	id := identity(3)
	id.Advertise = "member-3.invalid:7000"
	b := start(t, id, listenTCP(t), nil)
	_, _, err = b.Gossip().Advertised()
	wantParts(t, err, "member "+text(3)+` advertises "member-3.invalid:7000"`, "member-3.invalid", "set Config.Advertise")
}

func TestNew_InvalidTLS(t *testing.T) {
	roots := newAuthority(t).config(t).RootCAs
	certificate := newAuthority(t).config(t).Certificates
	present := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
	verify := func(tls.ConnectionState) error { return nil }
	for name, c := range map[string]struct {
		cfg  *tls.Config
		want string // "": valid
	}{
		"no certificate":                            {&tls.Config{RootCAs: roots}, "lacks a certificate"},
		"no certificate to dial":                    {&tls.Config{RootCAs: roots, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }}, "lacks a certificate"},
		"no certificate to present":                 {&tls.Config{RootCAs: roots, GetClientCertificate: present}, "lacks a certificate"},
		"no authorities":                            {&tls.Config{Certificates: certificate}, "names no authorities"},
		"ClientCAs only":                            {&tls.Config{Certificates: certificate, ClientCAs: roots}, "names no authorities"},
		"no verification":                           {&tls.Config{Certificates: certificate, ClientCAs: roots, InsecureSkipVerify: true}, "names no authorities"},
		"own verification, inbound by the system's": {&tls.Config{Certificates: certificate, InsecureSkipVerify: true, VerifyConnection: verify}, "names no authorities"},
		"own verification":                          {&tls.Config{Certificates: certificate, ClientCAs: roots, InsecureSkipVerify: true, VerifyConnection: verify}, ""},
		"renegotiation":                             {&tls.Config{Certificates: certificate, RootCAs: roots, Renegotiation: tls.RenegotiateOnceAsClient}, "renegotiation"},
		"RootCAs":                                   {&tls.Config{Certificates: certificate, RootCAs: roots}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ln := listenTCP(t)
			port, err := New(Config{Identity: identity(1), Key: testKeys[1], Listener: ln, Handler: newEvents(), TLS: c.cfg})
			if c.want != "" {
				wantParts(t, err, "member "+text(1)+" at "+ln.Addr().String(), c.want)
			} else if err != nil {
				t.Error(err)
			} else {
				port.Close()
			}
		})
	}
}

// Both ends report that one of them uses TLS and the other does not.
func TestConnectError_TLSAgainstPlaintext(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		name             string
		dialer, listener *tls.Config
		cause            string // in the dialer's error
	}{
		{"dialer uses TLS", ca.config(t), nil, ErrTLSMismatch.Error()},
		{"listener uses TLS", nil, ca.config(t), ErrTLSMismatch.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			var dialer, listener journal
			b := start(t, identity(2), listenTCP(t), func(cfg *Config) { cfg.TLS, cfg.Logger = c.listener, listener.logger() })
			a := start(t, identity(1), listenTCP(t), func(cfg *Config) { cfg.TLS, cfg.Logger = c.dialer, dialer.logger() })
			err := dialPeer(t, a, b.addr)
			wantParts(t, err, "member "+text(2)+" at "+b.addr, c.cause, "set TLS on every member and client, or on none")
			if got := reasonOf(err); got != string(ReasonTLS) {
				t.Errorf("reason %q", got)
			}
			await(t, func() error {
				for _, j := range []*journal{&dialer, &listener} {
					if j.count(`reason="TLS against plaintext"`) != 1 || j.count("level=WARN") != 1 || j.count("addr=127.0.0.1:") != 1 {
						return fmt.Errorf("the logs are:\n%v\n%v", &dialer, &listener)
					}
				}
				return nil
			})
		})
	}
}

// A failed verification is reported with its cause at the end that verifies, and
// as a rejection by the peer at the other.
func TestConnectError_CertificateNotTrusted(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	dialerTrusts := theirs.config(t)
	dialerTrusts.RootCAs.AddCert(ours.cert)
	for _, c := range []struct {
		name   string
		dialer *tls.Config
		want   string
	}{
		{"by the dialer", theirs.config(t), "set RootCAs in Config.TLS to the authority"},
		{"by the listener", dialerTrusts, "the other member rejected the TLS handshake, see its log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var listener journal
			b := start(t, identity(2), listenTCP(t), func(cfg *Config) { cfg.TLS, cfg.Logger = ours.config(t), listener.logger() })
			a := start(t, identity(1), listenTCP(t), withTLS(c.dialer))
			err := dialPeer(t, a, b.addr)
			wantParts(t, err, "handshake with member "+text(2)+" at "+b.addr, "tls: ", c.want)
			await(t, func() error {
				if listener.count(`level=WARN msg="inbound handshake failed" addr=127.0.0.1:`) != 1 || listener.count(`reason="TLS handshake failed"`) != 1 {
					return fmt.Errorf("the log is:\n%v", &listener)
				}
				return nil
			})
		})
	}
}

// A refusal at the start of a formation names the address, as no member is known.
func TestConnectError_UnknownMember(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	addr := otherProgram(t, "220 smtp.example.com ESMTP\r\n")
	_, err := a.connect(t.Context(), Target{Addr: addr}, wire.Kind_FORM)
	wantParts(t, err, "handshake with "+addr+": ", "Config.Join here, or Config.Advertise there")
}
