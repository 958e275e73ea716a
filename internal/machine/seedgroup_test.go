package machine

import (
	"maps"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// seeded returns the machine that a new group begins with.
func seeded(t *testing.T, m *Machine, in fact.Seeding) *Machine {
	t.Helper()
	pairs, err := m.Seed(1000, in)
	if err != nil {
		t.Fatal(err)
	}
	d := disk{}
	maps.Insert(d, func(yield func(string, []byte) bool) {
		for key, value := range pairs {
			if !yield(string(key), value) {
				return
			}
		}
	})
	s, err := Load(d.pairs())
	if err != nil {
		t.Fatalf("the seed cannot be loaded: %v", err)
	}
	if err := audit(s); err != nil {
		t.Fatalf("the seed's books: %v", err)
	}
	return s
}

// The seed of a default group has the further groups that are kept, with the new epoch, and no number is used again. None has a member that could
// begin its log.
func TestSeed_GroupsKept(t *testing.T) {
	d := newDriverAt(t, wire.FeatureLevel)
	for _, name := range []string{"a", "b", "c"} {
		d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: &wire.CreateGroup{Name: name, Voters: []uint64{1}}}}))
	}
	for _, keep := range [][]uint32{nil, {2}, {1, 2, 3}} {
		s := seeded(t, d.m, fact.Seeding{Keep: func(number uint32) bool { return slices.Contains(keep, number) }})
		list := s.Directory()
		var kept []uint32
		for _, r := range list.Groups {
			kept = append(kept, r.Number)
			if r.Epoch != 1 || r.Name != d.m.Directory().Group(r.Number).Name || len(r.Voters)+len(r.Standbys)+len(r.Members) != 0 {
				t.Errorf("%+v", r)
			}
		}
		if !slices.Equal(kept, keep) || list.Created != 3 {
			t.Errorf("groups %v of %d, want %v", kept, list.Created, keep)
		}
	}
}

// The seed of a further group follows the new default one, or becomes that: then it has no member, and nothing to follow.
func TestSeed_OfFurtherGroup(t *testing.T) {
	changes := FirstStateOf(&fact.GroupRecord{
		Number: 3, Name: "a", Created: 9, Level: wire.FeatureLevel, Epoch: 4, Fences: 7, Voters: []uint64{5}, Members: []fact.MemberRecord{{ID: 5, Level: wire.FeatureLevel}},
	})
	begun := func() *Machine {
		d := disk{}
		if err := d.write(changes); err != nil {
			t.Fatal(err)
		}
		return must(Load(d.pairs()))
	}
	first := fact.MemberRecord{ID: 8, Level: wire.FeatureLevel}
	further := seeded(t, begun(), fact.Seeding{First: first})
	if f := further.Following(); f == nil || f.Group != 3 || len(further.Members()) != 1 || further.Members()[0].ID != 8 {
		t.Errorf("%+v, members %+v", f, further.Members())
	}
	alone := seeded(t, begun(), fact.Seeding{First: first, Default: true})
	if f := alone.Following(); f != nil || len(alone.Members()) != 0 || len(alone.Directory().Groups) != 0 {
		t.Errorf("%+v, members %+v, groups %+v", f, alone.Members(), alone.Directory())
	}
	for _, s := range []*Machine{further, alone} {
		if s.fence() != 5<<48|1000 {
			t.Errorf("fence %x", s.fence())
		}
	}
}

// A group that is created in a new cluster begins behind the count of its seed: another cluster of the same epoch, from the same state, has
// created a group as well. Fences that the old cluster has used up are left behind.
func TestSeed_GroupsCreatedLater(t *testing.T) {
	for _, used := range []uint64{0, 5, maxFences} {
		d := newDriverAt(t, wire.FeatureLevel)
		d.m.groups.fences = used
		s := &driver{tb: t, m: seeded(t, d.m, fact.Seeding{}), disk: disk{}, inc: wire.ID{3}, index: d.index + 5}
		register := registerCommand(1, MaxTTL)
		register.GetRegister().FeatureLevel = wire.FeatureLevel
		s.want(wire.Code_OK, s.do(register))
		s.want(wire.Code_OK, s.do(&wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: &wire.CreateGroup{Name: "a", Voters: []uint64{1}}}}))
		if r := s.m.Directory().Groups[0]; r.Epoch != 1 || r.Fences != 1000 {
			t.Errorf("after %d fences the group begins at fence %d of epoch %d", used, r.Fences, r.Epoch)
		}
	}
}
