package transport

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Tests number their members. testKeys are their keys, and m is the ID of member n.
var testKeys = func() (keys [10]ed25519.PrivateKey) {
	for n := range keys {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = byte(n)
		keys[n] = ed25519.NewKeyFromSeed(seed)
	}
	return keys
}()

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func m(n uint64) uint64 { return wire.FingerprintOf(publicOf(testKeys[n])) }

// number is the inverse of m.
func number(member uint64) uint64 {
	for n := range testKeys {
		if m(uint64(n)) == member {
			return uint64(n)
		}
	}
	return 0
}

// text is the ID of member n as errors print it.
func text(n uint64) string { return wire.MemberID(m(n)).String() }

// opening is the content of a hello that a test sends.
type opening struct {
	id   Identity
	key  ed25519.PrivateKey // nil: that of id.Member
	kind wire.Kind
	to   uint64
	// of the member
	endorsements []*wire.Endorsement
	raw          func(*wire.Hello) // changes the message
}

func (o *opening) signer() ed25519.PrivateKey {
	if o.key != nil {
		return o.key
	}
	return testKeys[number(o.id.Member)]
}

func (o *opening) body() []byte {
	body, err := newHello(o.id, publicOf(o.signer()), o.kind, o.to, Durable{}, o.endorsements)
	if err == nil && o.raw != nil {
		body, err = rewrite(body, o.raw)
	}
	if err != nil {
		panic(err) // of a test's own hello
	}
	return body
}

// dialAs runs the dialer's half of a handshake on c, and returns the listener's hello and
// its refusal.
func dialAs(c net.Conn, o opening) (h *hello, refusal string, err error) {
	x := &transcript{dialer: o.body()}
	if err := writeHello(c, x.dialer); err != nil {
		return nil, "", err
	}
	if x.listener, err = readHello(c); err != nil {
		return nil, "", err
	}
	h, refused := parseHello(x.listener)
	if refused != nil {
		return nil, "", refused
	}
	if err := writeProof(c, o.signer(), x, dialerProof, ""); err != nil {
		return h, "", err
	}
	if refusal, err = readProof(c, h.key, x, listenerVerdict); err != nil || refusal != "" {
		return h, refusal, err
	}
	return h, "", writeProof(c, o.signer(), x, dialerVerdict, "")
}

// greetAs connects to addr and expects an answer.
func greetAs(t *testing.T, addr string, o opening) (c net.Conn, refusal string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, refusal, err = dialAs(c, o); err != nil {
		t.Fatal(err)
	}
	return c, refusal
}

// listenAs runs the listener's half of a handshake on c, accepts, and returns the
// dialer's hello and its refusal.
func listenAs(c net.Conn, o opening) (h *hello, refusal string, err error) {
	x := &transcript{listener: o.body()}
	if x.dialer, err = readHello(c); err != nil {
		return nil, "", err
	}
	h, refused := parseHello(x.dialer)
	if refused != nil {
		return nil, "", refused
	}
	if err := writeHello(c, x.listener); err != nil {
		return h, "", err
	}
	if _, err := readProof(c, h.key, x, dialerProof); err != nil {
		return h, "", err
	}
	if err := writeProof(c, o.signer(), x, listenerVerdict, ""); err != nil {
		return h, "", err
	}
	refusal, err = readProof(c, h.key, x, dialerVerdict)
	return h, refusal, err
}

// answer accepts the next hello on c as the member of id.
func answer(t *testing.T, c net.Conn, id Identity) {
	t.Helper()
	if _, refusal, err := listenAs(c, opening{id: id, kind: wire.Kind_PEER}); err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
}

// answerWith starts a listener that answers every hello with o.
func answerWith(t *testing.T, o opening) string {
	t.Helper()
	return serve(t, func(c net.Conn) {
		o := o
		o.id.Advertise = c.LocalAddr().String()
		if _, _, err := listenAs(c, o); err == nil {
			_, _ = io.Copy(io.Discard, c) // until the dialer has closed
		}
	})
}

func memberTwo() opening {
	id := identity(2)
	id.Boot = 5
	return opening{id: id, kind: wire.Kind_PEER, to: m(1)}
}

func identity(n uint64) Identity {
	return Identity{
		Group: "test", Cluster: testCluster, Member: m(n), Incarnation: wire.ID{byte(n), 1}, Boot: 1, Name: fmt.Sprintf("m%d", n),
	}
}

// rewrite changes the message in the body of a hello.
func rewrite(body []byte, change func(*wire.Hello)) ([]byte, error) {
	var h wire.Hello
	if err := proto.Unmarshal(body, &h); err != nil {
		return nil, err
	}
	change(&h)
	return proto.Marshal(&h)
}
