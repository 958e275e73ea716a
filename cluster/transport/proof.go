package transport

import (
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// A proof is a signature by a member's key over everything that was said before it on
// this connection. The nonces in the hellos make it worthless on another connection, and
// the exporter value does so even against a peer that terminates TLS and relays; the
// stage prevents that a proof is reflected.
const (
	proofContext = "conclave handshake 1"
	channelLabel = "EXPORTER-conclave-handshake"
	channelBytes = 32
	nonceBytes   = 32
	maxProof     = wire.MaxProof
	maxRefusal   = 4 << 10
)

// stage is the sender's part in the handshake.
type stage string

const (
	dialerProof     stage = "dialer proof"
	listenerVerdict stage = "listener verdict"
	dialerVerdict   stage = "dialer verdict"
)

// ErrUnproven: the peer does not have the key of the member that its hello names.
var ErrUnproven = errors.New("the other end did not prove that it has the key of the member that its hello names")

// transcript is what the proofs of one connection cover.
type transcript struct {
	channel          []byte // exported from TLS; empty: plaintext
	dialer, listener []byte // the hellos
}

// channelOf returns a value that only the two ends of a TLS connection know, and nothing
// for plaintext.
func channelOf(c *conn) ([]byte, error) {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	state := secure.ConnectionState()
	channel, err := state.ExportKeyingMaterial(channelLabel, nil, channelBytes)
	if err != nil {
		return nil, fmt.Errorf("bind the handshake to TLS: %w", err)
	}
	return channel, nil
}

// signed is the text that a proof signs. Lengths delimit its parts.
func (x *transcript) signed(s stage, refusal string) []byte {
	var text []byte
	for _, part := range [][]byte{[]byte(proofContext), []byte(s), x.channel, x.dialer, x.listener, []byte(refusal)} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	return text
}

func writeProof(w io.Writer, key ed25519.PrivateKey, x *transcript, s stage, refusal string) error {
	refusal = strings.ToValidUTF8(refusal[:min(len(refusal), maxRefusal)], "")
	m := &wire.Proof{Signature: ed25519.Sign(key, x.signed(s, refusal)), Refusal: refusal}
	buf, err := appendMessage(nil, m)
	if err != nil {
		return err
	}
	_, err = w.Write(buf)
	return err
}

// readProof reads and verifies a proof, and returns the refusal in it; "": accepted.
func readProof(r io.Reader, key ed25519.PublicKey, x *transcript, s stage) (refusal string, err error) {
	body, err := readFrame(r, maxProof, nil)
	if err != nil {
		return "", err
	}
	m := new(wire.Proof)
	if err := wire.Decode(body, m); err != nil {
		return "", fmt.Errorf("%w: proof: %w", ErrBadFrame, err)
	}
	refusal = m.GetRefusal()
	if !ed25519.Verify(key, x.signed(s, refusal), m.GetSignature()) {
		return "", ErrUnproven
	}
	return refusal, nil
}
