package provisional_test

import (
	"crypto/ed25519"
	"encoding/binary"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/provisional"
	"github.com/conclave-go/conclave/internal/wire"
)

// stranger returns a member that no log of the tests has, with its key.
func stranger(n uint64) *wire.VouchedMember {
	seed := binary.BigEndian.AppendUint64(make([]byte, ed25519.SeedSize-8), n)
	key := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	return &wire.VouchedMember{Member: wire.FingerprintOf(key), Key: key, Name: "stranger"}
}

// logAt returns the log of member 1, whose group has the members 1, 2 and 3.
func logAt(applied uint64, removed ...uint64) provisional.Log {
	slices.Sort(removed)
	return provisional.Log{Applied: applied, Conf: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, Removed: removed}
}

func accepts(m *provisional.Members, log provisional.Log, id uint64, named ...uint64) bool {
	return slices.Contains(core.MembersOf(m.With(log, named)), id)
}

func statement(index uint64, members ...*wire.VouchedMember) *wire.Membership {
	return &wire.Membership{Index: index, Members: members}
}

// A member that one of the configuration vouches for is accepted, as a standby, until the log has the index.
func TestMembers_VouchedUntilTheIndex(t *testing.T) {
	m, s := provisional.New(1), stranger(1)
	if added := m.Vouched(logAt(10), nil, 2, statement(20, s)); len(added) != 1 || added[0] != s {
		t.Fatalf("added %v", added)
	}
	if again := m.Vouched(logAt(10), nil, 3, statement(20, s)); again != nil {
		t.Errorf("added twice: %v", again)
	}
	conf := m.With(logAt(19), nil)
	if !slices.Equal(conf.GetLearners(), []uint64{s.GetMember()}) || len(conf.GetVoters()) != 3 {
		t.Errorf("before the index: %v", conf)
	}
	if m.Expire(logAt(19)) || accepts(m, logAt(20), s.GetMember()) || !m.Expire(logAt(20)) || !m.IsEmpty() {
		t.Error("its acceptance does not end at the index")
	}
	if added := m.Vouched(logAt(20), nil, 2, statement(20, s)); added != nil {
		t.Errorf("a statement that is not ahead of the log: %v", added)
	}
}

// What makes a statement of no effect.
func TestMembers_StatementsRefused(t *testing.T) {
	s, wrong := stranger(1), stranger(2)
	wrong.Member++
	for name, test := range map[string]struct {
		log    provisional.Log
		from   uint64
		member *wire.VouchedMember
	}{
		"of one that is not accepted":    {logAt(10), 7, s},
		"about one of the configuration": {logAt(10), 2, &wire.VouchedMember{Member: 3}},
		"about this member":              {logAt(10), 2, &wire.VouchedMember{Member: 1}},
		"with another key":               {logAt(10), 2, wrong},
		"without a key":                  {logAt(10), 2, &wire.VouchedMember{Member: s.GetMember()}},
		"about a removed member":         {logAt(10, s.GetMember()), 2, s},
		"of a removed member":            {logAt(10, 2), 2, s},
	} {
		m := provisional.New(1)
		if added := m.Vouched(test.log, nil, test.from, statement(20, test.member)); added != nil || !m.IsEmpty() {
			t.Errorf("%s: %v", name, added)
		}
	}
}

// The removal of a member ends what it has vouched for, and what those have vouched for in turn.
func TestMembers_RemovedVoucher(t *testing.T) {
	m, a, b := provisional.New(1), stranger(1), stranger(2)
	m.Endorsed(logAt(10), a, []uint64{2})
	if added := m.Vouched(logAt(10), nil, a.GetMember(), statement(100, b)); len(added) != 1 {
		t.Fatalf("added %v", added)
	}
	for name, removed := range map[string]uint64{"the endorsed member": a.GetMember(), "its endorser": 2} {
		if accepts(m, logAt(11, removed), b.GetMember()) {
			t.Errorf("%s was removed, and its statement counts", name)
		}
	}
	if !accepts(m, logAt(11, 3), b.GetMember()) {
		t.Error("the removal of another member ends the acceptance")
	}
}

// An endorsed member is accepted until the next entry, and then as far as it has stated itself.
func TestMembers_EndorsedUntilItsOwnStatement(t *testing.T) {
	m, a := provisional.New(1), stranger(1)
	if !m.Endorsed(logAt(10), a, []uint64{2}) || m.Endorsed(logAt(10), a, []uint64{2}) {
		t.Fatal("not accepted once")
	}
	if accepts(m, logAt(11), a.GetMember()) {
		t.Error("accepted behind the next entry without a statement")
	}
	m.Vouched(logAt(10), nil, a.GetMember(), statement(50))
	if !accepts(m, logAt(49), a.GetMember()) || accepts(m, logAt(50), a.GetMember()) {
		t.Error("not accepted exactly as far as it has stated")
	}
}

// A member without a configuration accepts those that its admission named, and what they vouch for.
func TestMembers_BeforeTheConfiguration(t *testing.T) {
	m, s := provisional.New(1), stranger(1)
	log := provisional.Log{Conf: new(raftpb.ConfState)}
	if conf := m.With(log, []uint64{2, 3}); !slices.Equal(conf.GetVoters(), []uint64{2, 3}) || !slices.Equal(conf.GetLearners(), []uint64{1}) {
		t.Errorf("%v", conf)
	}
	m.Vouched(log, []uint64{2, 3}, 4, statement(20, s))
	if accepts(m, log, s.GetMember(), 2, 3) {
		t.Error("accepted on the word of one that was not named")
	}
	m.Vouched(log, []uint64{2, 3}, 2, statement(20, s))
	if !accepts(m, log, s.GetMember(), 2, 3) {
		t.Error("not accepted on the word of one that was named")
	}
}

// Whatever a peer states, the members stay within the bound.
func TestMembers_Bounded(t *testing.T) {
	m, body := provisional.New(1), statement(20)
	for n := range uint64(provisional.MaxMembers + 10) {
		body.Members = append(body.Members, stranger(n))
	}
	if added := m.Vouched(logAt(10), nil, 2, body); len(added) != provisional.MaxMembers {
		t.Errorf("%d are accepted", len(added))
	}
}
