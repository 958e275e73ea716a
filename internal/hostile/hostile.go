// Package hostile is a client for tests that speaks conclave's wire protocol by itself and
// lies in it. It shares the messages with the library and nothing else, so a mistake in
// the transport's handshake is not repeated here.
package hostile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

const (
	magic = "conclave"
	// The parts of a handshake, as the signatures name them.
	DialerProof     = "dialer proof"
	ListenerVerdict = "listener verdict"
	DialerVerdict   = "dialer verdict"
	// timeout bounds each step: a member that neither answers nor closes is a failure.
	timeout  = 20 * time.Second
	maxFrame = 1 << 20
)

// ErrClosed: the member closed the connection without an answer.
var ErrClosed = errors.New("closed without an answer")

// NewKey returns the key of a stranger.
func NewKey() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // of crypto/rand, which never fails
	}
	return key
}

// Public returns the public half of a key.
func Public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// Hello returns a hello of the member with that key, which belongs to no cluster.
func Hello(key ed25519.PrivateKey, kind wire.Kind) *wire.Hello {
	return &wire.Hello{
		MinProtocol: wire.ProtocolMin, MaxProtocol: wire.ProtocolMax, Group: "conclave", Member: wire.FingerprintOf(Public(key)),
		Incarnation: random(16), Boot: 1, Kind: kind, Advertise: "127.0.0.1:1", Name: "hostile", Key: Public(key), Nonce: random(32),
		DurableTerm: 1 << 40, DurableIndex: 1 << 40, // whatever the member has acknowledged
	}
}

// ClientHello returns the hello of an honest client with that key, for any cluster of the group.
func ClientHello(key ed25519.PrivateKey, group string) *wire.Hello {
	sum := sha256.Sum256(append([]byte("conclave client incarnation\x00"), Public(key)...))
	h := Hello(key, wire.Kind_CLIENT)
	h.Group, h.Incarnation, h.Boot, h.Advertise, h.DurableTerm, h.DurableIndex = group, sum[:16], 0, "", 0, 0
	return h
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}

// Conn is a connection to a member, before or after its handshake.
type Conn struct {
	net.Conn
	Ours, Theirs *wire.Hello
	ours, theirs []byte
	listener     bool // the member dialed
}

// New returns a connection over which no handshake has run, except for that of TLS.
func New(raw net.Conn) *Conn { return &Conn{Conn: raw} }

// Dial connects to a member without a handshake.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// Greet sends a hello and reads the member's.
func (c *Conn) Greet(h *wire.Hello) error {
	body, err := proto.Marshal(h)
	if err != nil {
		return err
	}
	return c.GreetRaw(body)
}

// GreetRaw is Greet with the bytes of a hello.
func (c *Conn) GreetRaw(body []byte) error {
	if err := c.sendHello(body); err != nil {
		return err
	}
	return c.readHello()
}

// Answer reads the hello of a member that has dialed, and sends one.
func (c *Conn) Answer(h *wire.Hello) error {
	c.listener = true
	if err := c.readHello(); err != nil {
		return err
	}
	body, err := proto.Marshal(h)
	if err != nil {
		return err
	}
	return c.sendHello(body)
}

func (c *Conn) sendHello(body []byte) error {
	c.ours, c.Ours = body, new(wire.Hello)
	_ = proto.Unmarshal(body, c.Ours) // for the caller; the bytes count
	_, err := c.Write(append([]byte(magic), frame(body)...))
	return err
}

func (c *Conn) readHello() error {
	var m [len(magic)]byte
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, m[:]); err != nil {
		return closed(err)
	}
	body, err := c.Receive()
	if err != nil {
		return err
	}
	c.theirs, c.Theirs = body, new(wire.Hello)
	return proto.Unmarshal(body, c.Theirs)
}

// TheirHello returns the bytes of the member's hello.
func (c *Conn) TheirHello() []byte { return c.theirs }

// Sign returns a proof of this connection's stage by key.
func (c *Conn) Sign(key ed25519.PrivateKey, stage, refusal string) *wire.Proof {
	return &wire.Proof{Signature: ed25519.Sign(key, c.signed(stage, refusal)), Refusal: refusal}
}

// channel is what TLS exports to both ends of this connection only; "": plaintext.
func (c *Conn) channel() string {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return ""
	}
	state := secure.ConnectionState()
	exported, err := state.ExportKeyingMaterial("EXPORTER-conclave-handshake", nil, 32)
	if err != nil {
		panic(err) // TLS's handshake has not run
	}
	return string(exported)
}

// signed is what a proof signs.
func (c *Conn) signed(stage, refusal string) []byte {
	dialer, listener := c.ours, c.theirs
	if c.listener {
		dialer, listener = listener, dialer
	}
	var text []byte
	for _, part := range []string{"conclave handshake 1", stage, c.channel(), string(dialer), string(listener), refusal} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	return text
}

// Prove sends a proof.
func (c *Conn) Prove(p *wire.Proof) error {
	body, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	return c.Send(body)
}

// Proof reads the member's proof of a stage and verifies it.
func (c *Conn) Proof(stage string) (*wire.Proof, error) {
	body, err := c.Receive()
	if err != nil {
		return nil, err
	}
	p := new(wire.Proof)
	if err := proto.Unmarshal(body, p); err != nil {
		return nil, err
	}
	if !ed25519.Verify(c.Theirs.GetKey(), c.signed(stage, p.GetRefusal()), p.GetSignature()) {
		return nil, errors.New("the member's proof is wrong")
	}
	return p, nil
}

// Connect dials a member and runs an honest handshake with h by key. refusal is the
// member's; "": the connection is open.
func Connect(addr string, key ed25519.PrivateKey, h *wire.Hello) (c *Conn, refusal string, err error) {
	if c, err = Dial(addr); err != nil {
		return nil, "", err
	}
	return Over(c.Conn, key, h)
}

// Over is Connect over a connection to a member.
func Over(raw net.Conn, key ed25519.PrivateKey, h *wire.Hello) (c *Conn, refusal string, err error) {
	c = New(raw)
	if refusal, err = c.handshake(key, h); err != nil || refusal != "" {
		_ = c.Close() // the refusal or err is the result
	}
	return c, refusal, err
}

func (c *Conn) handshake(key ed25519.PrivateKey, h *wire.Hello) (refusal string, err error) {
	if err := c.Greet(h); err != nil {
		return "", err
	}
	if err := c.Prove(c.Sign(key, DialerProof, "")); err != nil {
		return "", err
	}
	p, err := c.Proof(ListenerVerdict)
	if err != nil || p.GetRefusal() != "" {
		return p.GetRefusal(), err
	}
	return "", c.Prove(c.Sign(key, DialerVerdict, ""))
}

// Refuse answers a member that has dialed with a refusal.
func Refuse(raw net.Conn, key ed25519.PrivateKey, h *wire.Hello, refusal string) error {
	c := New(raw)
	if err := c.Answer(h); err != nil {
		return err
	}
	if _, err := c.Proof(DialerProof); err != nil {
		return err
	}
	return c.Prove(c.Sign(key, ListenerVerdict, refusal))
}

// Send sends a frame.
func (c *Conn) Send(body []byte) error {
	_, err := c.Write(frame(body))
	return err
}

// SendMessage sends a message in a frame.
func (c *Conn) SendMessage(m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return c.Send(body)
}

// Receive reads a frame. ErrClosed means that the member has closed the connection.
func (c *Conn) Receive() ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var header [8]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return nil, closed(err)
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, closed(err)
	}
	return body, nil
}

// AwaitClose blocks until the member has closed the connection, and returns how many
// bytes it sent before.
func (c *Conn) AwaitClose() (int64, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, c)
	var timedOut net.Error
	if errors.As(err, &timedOut) && timedOut.Timeout() {
		return n, errors.New("the member has not closed the connection")
	}
	return n, nil // however it was closed
}

func closed(err error) error {
	var timedOut net.Error
	if errors.As(err, &timedOut) && timedOut.Timeout() {
		return errors.New("the member neither answers nor closes")
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

func frame(body []byte) []byte {
	var b bytes.Buffer
	var header [8]byte
	binary.BigEndian.PutUint32(header[:], uint32(len(body)))
	binary.BigEndian.PutUint32(header[4:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	b.Write(header[:])
	b.Write(body)
	return b.Bytes()
}

// AsMember returns a hello of the member whose key was stolen, as its next process.
func AsMember(key ed25519.PrivateKey, record *wire.Identity, kind wire.Kind) *wire.Hello {
	h := Hello(key, kind)
	h.Cluster, h.Boot = record.GetCluster(), record.GetBoot()+1
	return h
}

// Replace connects as the next process of a member whose process has just been killed. It
// tries again while its peer has not noticed that.
func Replace(dial func() (net.Conn, error), key ed25519.PrivateKey, h *wire.Hello) (*Conn, error) {
	for range 200 {
		raw, err := dial()
		if err != nil {
			return nil, err
		}
		c, refusal, err := Over(raw, key, h)
		switch {
		case err != nil:
			return nil, err
		case refusal == "":
			return c, nil
		case !strings.Contains(refusal, "still in contact"):
			return nil, errors.New(refusal)
		}
		<-time.After(50 * time.Millisecond) // no report signals that a broken connection is noticed
	}
	return nil, errors.New("the killed process is still in contact")
}
