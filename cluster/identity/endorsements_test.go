package identity

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// admissions is members of which each but the first was admitted by the one before.
type admissions []*Identity

func admit(n int) (a admissions) {
	for range n {
		r := NewRecord("g")
		r.Cluster = bytes.Repeat([]byte{1}, 16)
		id := &Identity{Member: r.GetMember(), Key: ed25519.NewKeyFromSeed(r.GetKey())}
		if len(a) > 0 {
			r.Endorsements = a[len(a)-1].Endorse(id.Public(), uint64(10*len(a)))
		}
		id.record.Store(r)
		a = append(a, id)
	}
	return a
}

// believed reports whether a member that knows only member known, whose log ends with that one's
// admission, accepts the last one after a change of its endorsements.
func (a admissions) believed(known int, change func([]*wire.Endorsement) []*wire.Endorsement) bool {
	return len(a.believedAt(known, uint64(10*known), change)) > 0
}

func (a admissions) believedAt(known int, applied uint64, change func([]*wire.Endorsement) []*wire.Endorsement) (by []uint64) {
	last := a[len(a)-1]
	var chain []*wire.Endorsement
	for _, e := range last.Get().GetEndorsements() {
		chain = append(chain, proto.CloneOf(e))
	}
	return VerifyEndorsements(last.Get().GetCluster(), change(chain), last.Public(), applied,
		func(key ed25519.PublicKey) bool { return bytes.Equal(key, a[known].Public()) })
}

func unchanged(chain []*wire.Endorsement) []*wire.Endorsement { return chain }

func TestEndorsements_FromEachMemberOfTheChain(t *testing.T) {
	a := admit(5)
	for known := range 4 {
		if !a.believed(known, unchanged) {
			t.Errorf("refused by a member that knows member %d", known)
		}
	}
	if a[2:].believed(2, unchanged) {
		t.Error("a member endorses itself")
	}
}

// A log that has the first admission has the others of the chain, or their removals.
func TestEndorsements_AdmissionInLog(t *testing.T) {
	a := admit(4) // at 10, 20, 30
	for applied, want := range map[uint64]int{9: 3, 10: 0, 15: 0, 30: 0} {
		if by := a.believedAt(0, applied, unchanged); len(by) != want {
			t.Errorf("log to %d: %d members, want %d", applied, len(by), want)
		}
	}
	if by := a.believedAt(1, 10, unchanged); !slices.Equal(by, []uint64{a[1].Member, a[2].Member}) {
		t.Errorf("by %v", by)
	}
}

func TestEndorsements_Invalid(t *testing.T) {
	stranger := admit(1)[0]
	a := admit(4)
	for name, change := range map[string]func([]*wire.Endorsement) []*wire.Endorsement{
		"none":            func([]*wire.Endorsement) []*wire.Endorsement { return nil },
		"one is missing":  func(c []*wire.Endorsement) []*wire.Endorsement { return slices.Delete(c, 1, 2) },
		"last is missing": func(c []*wire.Endorsement) []*wire.Endorsement { return c[:2] },
		"no signature":    func(c []*wire.Endorsement) []*wire.Endorsement { c[2].Signature = nil; return c },
		"another's signature": func(c []*wire.Endorsement) []*wire.Endorsement {
			c[0].Signature = c[1].GetSignature()
			return c
		},
		"a stranger's signature": func(c []*wire.Endorsement) []*wire.Endorsement {
			c[2].Signature = ed25519.Sign(stranger.Key, endorsed(stranger.Get().GetCluster(), a[3].Public(), 30))
			return c
		},
		"of another cluster": func(c []*wire.Endorsement) []*wire.Endorsement {
			c[2].Signature = ed25519.Sign(a[2].Key, endorsed(bytes.Repeat([]byte{2}, 16), a[3].Public(), 30))
			return c
		},
		"of another index": func(c []*wire.Endorsement) []*wire.Endorsement { c[2].Index++; return c },
		"not later than the one before": func(c []*wire.Endorsement) []*wire.Endorsement {
			c[2] = a[2].Endorse(a[3].Public(), c[1].GetIndex())[2]
			return c
		},
		"a short key": func(c []*wire.Endorsement) []*wire.Endorsement { c[1].Key = c[1].GetKey()[:31]; return c },
		"too many": func(c []*wire.Endorsement) []*wire.Endorsement {
			return slices.Concat(slices.Repeat(c[:1], MaxEndorsements), c)
		},
	} {
		if a.believed(0, change) {
			t.Errorf("%s: believed", name)
		}
	}
}

// A long chain loses its oldest endorsements, and the largest hello still has room for it.
func TestEndorsements_Limit(t *testing.T) {
	a := admit(MaxEndorsements + 5)
	chain := a[len(a)-1].Get().GetEndorsements()
	if len(chain) != MaxEndorsements {
		t.Fatalf("%d endorsements", len(chain))
	}
	if a.believed(3, unchanged) || !a.believed(4, unchanged) {
		t.Error("another than the oldest endorsement was dropped")
	}
	hello := &wire.Hello{
		MinProtocol: 1 << 31, MaxProtocol: 1 << 31, Cluster: make([]byte, 16), Member: 1 << 63, Incarnation: make([]byte, 16), Boot: 1 << 63,
		Kind: wire.Kind_FORM, Name: strings.Repeat("n", 2<<10), To: 1 << 63, Key: make([]byte, 32), Nonce: make([]byte, 32),
		FeatureLevel: 1 << 31, DurableTerm: 1 << 63, DurableIndex: 1 << 63, Endorsements: chain,
	}
	for i := range 2_000 { // groups, half of them deleted and not erased yet
		hello.Groups = append(hello.Groups, &wire.GroupPosition{Group: 1<<20 + uint32(i), Term: 1 << 40, Index: 1 << 63})
	}
	if n := proto.Size(hello); n > wire.MaxHello {
		t.Errorf("a hello of %d bytes", n)
	}
}
