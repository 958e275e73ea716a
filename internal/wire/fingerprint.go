package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
)

// FingerprintOf returns the member ID of the holder of a public key: the first 8 bytes of
// a SHA-256 over a context and the key. It is never 0. 64 bits do not exclude a second key
// with the same ID, so a peer also compares the full key with the recorded one.
func FingerprintOf(key ed25519.PublicKey) uint64 {
	sum := sha256.Sum256(append([]byte("conclave member key 1"), key...))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// ClientIncarnation returns the incarnation of a client with a public key: the first 16 bytes
// of a SHA-256 over a context and the key. So only the holder of the key can prove that an
// incarnation is its own.
func ClientIncarnation(key []byte) ID {
	sum := sha256.Sum256(append([]byte("conclave client incarnation\x00"), key...))
	return ID(sum[:16])
}
