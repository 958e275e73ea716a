package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// mustNotBeAnswered checks that the listener closes c without a verdict, and that nothing
// in the hello of member 2 had an effect.
func mustNotBeAnswered(t *testing.T, a *node, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(c, maxProof, nil); err == nil || isTimeout(err) {
		t.Errorf("the listener answered, or did not close: %v", err)
	}
	if _, ok := a.Connected(m(2)); ok || len(a.boots.highest) > 0 {
		t.Errorf("an unproven hello had an effect: %v", a.boots.highest)
	}
}

// begin sends a hello and reads the listener's.
func begin(t *testing.T, addr string, o opening) (net.Conn, *transcript) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	x := &transcript{dialer: o.body()}
	if err := writeHello(c, x.dialer); err != nil {
		t.Fatal(err)
	}
	if x.listener, err = readHello(c); err != nil {
		t.Fatal(err)
	}
	return c, x
}

// memberOne starts member 1, of which member 2 is a peer that a test plays.
func memberOne(t *testing.T) *node {
	a := start(t, identity(1), listenTCP(t), nil)
	a.SetPeer(m(2), "127.0.0.1:1")
	return a
}

// A claimed identity is worth nothing without its key.
func TestProof_NotVerified(t *testing.T) {
	boot := memberTwo()
	boot.id.Boot = 1 << 40
	two, three := testKeys[2], testKeys[3]
	for name, send := range map[string]func(c net.Conn, x *transcript) error{
		"another key":   func(c net.Conn, x *transcript) error { return writeProof(c, three, x, dialerProof, "") },
		"another stage": func(c net.Conn, x *transcript) error { return writeProof(c, two, x, listenerVerdict, "") },
		"other hellos": func(c net.Conn, x *transcript) error {
			return writeProof(c, two, &transcript{dialer: x.dialer, listener: boot.body()}, dialerProof, "")
		},
		"another channel": func(c net.Conn, x *transcript) error {
			return writeProof(c, two, &transcript{channel: []byte{1}, dialer: x.dialer, listener: x.listener}, dialerProof, "")
		},
		"no signature": func(c net.Conn, x *transcript) error {
			buf, err := appendMessage(nil, &wire.Proof{})
			if err == nil {
				_, err = c.Write(buf)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := memberOne(t)
			c, x := begin(t, a.addr, boot)
			if err := send(c, x); err != nil {
				t.Fatal(err)
			}
			mustNotBeAnswered(t, a, c)
		})
	}
}

// The bytes of an accepted handshake are worthless on a second connection.
func TestProof_Replayed(t *testing.T) {
	a := memberOne(t)
	o := memberTwo()
	c, x := begin(t, a.addr, o)
	if err := writeProof(c, testKeys[2], x, dialerProof, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := readProof(c, publicOf(testKeys[1]), x, listenerVerdict); err != nil {
		t.Fatal(err)
	}
	c.Close() // before the last proof: the hello has no effect yet
	replayed := opening{id: o.id, kind: o.kind, to: o.to, raw: func(h *wire.Hello) { h.Nonce = nonceOf(t, x.dialer) }}
	second, _ := begin(t, a.addr, replayed)
	if err := writeProof(second, testKeys[2], x, dialerProof, ""); err != nil {
		t.Fatal(err)
	}
	mustNotBeAnswered(t, a, second)
}

func nonceOf(t *testing.T, body []byte) (nonce []byte) {
	t.Helper()
	if _, err := rewrite(body, func(h *wire.Hello) { nonce = h.GetNonce() }); err != nil {
		t.Fatal(err)
	}
	return nonce
}

// An attacker that connects back to the dialer cannot use the dialer's own proofs.
func TestProof_Reflected(t *testing.T) {
	a := memberOne(t)
	ln := listenTCP(t)
	defer ln.Close()
	failed := make(chan error, 1)
	go func() {
		_, err := a.connect(t.Context(), Target{Addr: ln.Addr().String(), Member: m(2)}, wire.Kind_PEER)
		failed <- err
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello, err := readHello(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeHello(c, hello); err != nil {
		t.Fatal(err)
	}
	proof, err := readFrame(c, maxProof, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(appendFrame(nil, proof)); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, ErrUnproven) {
		t.Errorf("got %v, want %v", err, ErrUnproven)
	}
}

// Before the dialer's last proof its hello has no effect: it may yet refuse.
func TestProof_NoEffectBeforeDialersVerdict(t *testing.T) {
	a := memberOne(t)
	c, x := begin(t, a.addr, memberTwo())
	if err := writeProof(c, testKeys[2], x, dialerProof, ""); err != nil {
		t.Fatal(err)
	}
	if refusal, err := readProof(c, publicOf(testKeys[1]), x, listenerVerdict); err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	if err := writeProof(c, testKeys[2], x, dialerVerdict, "refused: for a test"); err != nil {
		t.Fatal(err)
	}
	mustNotBeAnswered(t, a, c)
}

// A refusal counts only if a proven member signed it.
func TestOnRefused_ByProvenMembersOnly(t *testing.T) {
	removed := (&RefusedError{Reason: ReasonRemoved, Detail: "a lie"}).text()
	answer := func(t *testing.T, ln net.Listener, n uint64, sign uint64) {
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		x := &transcript{}
		if x.dialer, err = readHello(c); err != nil {
			t.Error(err)
			return
		}
		o := opening{id: identity(n), kind: wire.Kind_FORM}
		x.listener = o.body()
		_ = writeHello(c, x.listener)
		_, _ = readFrame(c, maxProof, nil)
		_ = writeProof(c, testKeys[sign], x, listenerVerdict, removed)
	}
	for _, c := range []struct {
		name          string
		member, signs uint64
		counts        bool
	}{
		{"a member", 2, 2, true},
		{"a member's hello, another key", 2, 3, false},
		{"a stranger", 3, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			refusals := make(chan uint64, 10)
			a := start(t, identity(1), listenTCP(t), func(cfg *Config) {
				cfg.Member = func(member uint64) bool { return member == m(2) }
				cfg.OnRefused = func(member uint64, _ *RefusedError) { refusals <- member }
			})
			ln := listenTCP(t)
			defer ln.Close()
			go answer(t, ln, c.member, c.signs)
			if _, err := a.connect(t.Context(), Target{Addr: ln.Addr().String()}, wire.Kind_FORM); err == nil {
				t.Fatal("connected")
			}
			if got := len(refusals) > 0; got != c.counts {
				t.Errorf("OnRefused was called: %v, want %v", got, c.counts)
			}
		})
	}
}

// Admit is asked on both sides, and its error is the other side's refusal.
func TestAdmit_AskedOnBothSides(t *testing.T) {
	asked := make(chan Peer, 10)
	admit := func(p Peer) error { asked <- p; return nil }
	durable := func() Durable { return Durable{Term: 7, Index: 70} }
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Admit, c.Durable = admit, durable })
	b := start(t, identity(2), listenTCP(t), func(c *Config) { c.Admit, c.Durable = admit, durable })
	a.SetPeer(m(2), b.addr)
	b.SetPeer(m(1), "127.0.0.1:1")
	awaitConnected(t, a, m(2))
	for range 2 {
		p := <-asked
		if want := 3 - number(p.Member); p.Inbound != (want == 2) || !p.Key.Equal(publicOf(testKeys[number(p.Member)])) ||
			p.Durable.Term != 7 || p.Durable.Index != 70 || p.Kind != wire.Kind_PEER || p.Name != identity(number(p.Member)).Name {
			t.Errorf("asked for %+v", p)
		}
	}
	for _, err := range []error{errors.New("no such certificate"), &RefusedError{Reason: ReasonRollback, Detail: "no such certificate"}} {
		reason := ReasonNotAdmitted
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			reason = refused.Reason
		}
		d := start(t, identity(3), listenTCP(t), func(c *Config) { c.Admit = func(Peer) error { return err } })
		_, got := a.connect(t.Context(), Target{Addr: d.addr}, wire.Kind_FORM)
		checkRefusal(t, got, reason, "no such certificate")
		_, got = d.connect(t.Context(), Target{Addr: a.addr}, wire.Kind_FORM)
		checkRefusal(t, got, reason, "no such certificate")
	}
}

// A holder of a certificate that terminates TLS on both sides cannot relay the proofs.
func TestProof_RelayedThroughTLS(t *testing.T) {
	ca := newAuthority(t)
	b := start(t, identity(2), listenTCP(t), withTLS(ca.config(t)))
	a := start(t, identity(1), listenTCP(t), withTLS(ca.config(t)))
	relay := ca.config(t)
	relay.ClientCAs, relay.ClientAuth = relay.RootCAs, tls.RequireAndVerifyClientCert
	ln := listenTCP(t)
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		inner, err := ln.Accept()
		if err != nil {
			return
		}
		outer, err := tls.Dial("tcp", b.addr, relay)
		if err != nil {
			inner.Close()
			return
		}
		dialer := tls.Server(inner, relay)
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = io.Copy(outer, dialer)
			outer.Close()
		}()
		_, _ = io.Copy(dialer, outer)
		inner.Close()
		<-copied
	}()
	if _, err := a.connect(t.Context(), Target{Addr: ln.Addr().String(), Member: m(2)}, wire.Kind_FORM); err == nil {
		t.Error("connected through a relay")
	}
	<-done
}
