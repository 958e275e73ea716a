package wire

import (
	"bytes"
	"crypto/ed25519"
	"testing"
)

// The fingerprint is a format: it is in every log, and must never change.
func TestFingerprintOf_IsStable(t *testing.T) {
	key := func(seed byte) ed25519.PublicKey {
		return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	}
	for _, test := range []struct {
		key  ed25519.PublicKey
		want MemberID
	}{
		{key(1), 0x8d499e398d9b94f3},
		{key(2), 0x9f524ee3fde9050c},
		{nil, 0x38f4ed245921af93},
	} {
		if got := MemberID(FingerprintOf(test.key)); got != test.want {
			t.Errorf("FingerprintOf(%x) = %v, want %v", test.key, got, test.want)
		}
	}
}

// So is the incarnation of a client.
func TestClientIncarnation_IsStable(t *testing.T) {
	for _, test := range []struct {
		key  []byte
		want string
	}{
		{bytes.Repeat([]byte{1}, 32), "e9dd0438-7872-4a77-74f6-e24f7ca444d0"},
		{nil, "8cf01b58-f1b2-4c98-d9fb-545edb889c41"},
	} {
		if got := ClientIncarnation(test.key); got.String() != test.want {
			t.Errorf("ClientIncarnation(%x) = %v, want %v", test.key, got, test.want)
		}
	}
}
