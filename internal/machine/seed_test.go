package machine

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// seedOf returns the machine that a new group begins with.
func seedOf(t *testing.T, m *Machine, count uint64) (*Machine, disk) {
	t.Helper()
	pairs, err := m.Seed(count, fact.Seeding{})
	if err != nil {
		t.Fatal(err)
	}
	d := disk{}
	last := ""
	for key, value := range pairs {
		if string(key) <= last {
			t.Fatalf("key %q after %q", key, last)
		}
		last = string(key)
		d[last] = value
	}
	s, err := LoadAt(d.pairs(), m.levels.supported)
	if err != nil {
		t.Fatalf("the seed cannot be loaded: %v", err)
	}
	if err := audit(s); err != nil {
		t.Fatalf("the seed's books: %v", err)
	}
	return s, d
}

// From any state that random commands make, the seed has the keys and the resized
// semaphores, and nothing that belongs to a process. Its next fence and its next indexes
// are larger than any before.
func TestSeed_OfRandomStates(t *testing.T) {
	released, deleted := 0, 0
	for seed := range uint64(20) {
		g, r := newGenerator(seed+1), newRig()
		r.split(1 + int(seed)%4)
		for g.made < 1000 {
			if err := r.apply(g.entry(&r.model)); err != nil {
				t.Fatal(err)
			}
			if g.made%50 > 2 {
				continue
			}
			free, gone := checkSeed(t, r.straight)
			released, deleted = released+free, deleted+gone
		}
	}
	if released == 0 || deleted == 0 {
		t.Errorf("%d keys released, %d deleted: want some of each", released, deleted)
	}
}

// checkSeed checks the seed of one state. It returns how many keys it released and
// deleted.
func checkSeed(t *testing.T, m *Machine) (free, gone int) {
	t.Helper()
	before := dump(m)
	s, d := seedOf(t, m, 1000)
	if !dump(m).equal(before) {
		t.Fatal("the old state has changed")
	}
	if !dump(s).equal(d) {
		t.Fatal("the pairs are not the state")
	}
	base := uint64(m.epoch+1)<<48 | 1000
	if s.fence() != base || s.keys.changes < base || s.keys.lockFloor < base {
		t.Fatalf("fences begin at %x, changes at %x, lock indexes at %x", s.fence(), s.keys.changes, s.keys.lockFloor)
	}
	for key := range d {
		if kind := key[0]; kind != entryKind && kind != semaphoreKind && key != machineKey {
			t.Fatalf("the seed has %q", key)
		}
	}
	if s.resized != m.resized || len(s.semaphores.byName) != m.resized {
		t.Fatalf("%d semaphores with a limit of their own, want %d", len(s.semaphores.byName), m.resized)
	}
	for _, e := range m.allKeys() {
		got := s.keys.get(e.Key)
		by := m.sessions[e.Session]
		switch {
		case by != nil && by.behavior == wire.Behavior_DELETE:
			if gone++; got != nil {
				t.Fatalf("%+v is not deleted", e)
			}
			continue
		case got == nil || string(got.Value) != string(e.Value) || got.Flags != e.Flags || got.Fence != e.Fence || got.CreateIndex != e.CreateIndex:
			t.Fatalf("%+v has become %+v", e, got)
		case !got.Session.IsZero():
			t.Fatalf("%+v is locked", got)
		case by != nil:
			if free++; got.ModifyIndex <= base {
				t.Fatalf("%+v was released under index %d", e, got.ModifyIndex)
			}
		case got.ModifyIndex != e.ModifyIndex:
			t.Fatalf("%+v has become %+v", e, got)
		}
		if (got.LockIndex > 0) != (e.LockIndex > 0) || got.LockIndex > 0 && got.LockIndex < base {
			t.Fatalf("%+v has the lock index %d", e, got.LockIndex)
		}
	}
	return free, gone
}

// What the old group counts after the state was taken is smaller than what the new one
// counts, and two groups that begin at different counts repeat nothing.
func TestSeed_BehindTheOldGroup(t *testing.T) {
	old := newDriver(t)
	session := makeID("s")
	old.want(wire.Code_OK, old.do(openCommand(session, second, 0)))
	old.want(wire.Code_OK, old.do(putCommand("k", "v")))
	first, _ := seedOf(t, old.m, 7)
	later, _ := seedOf(t, old.m, 1_000_000)
	for range 100 {
		f := old.want(wire.Code_OK, old.do(lockCommand("x", session, 1))).Fence
		old.want(wire.Code_OK, old.do(unlockCommand("x", session, 1, f)))
		old.want(wire.Code_OK, old.do(putCommand("k", string(rune('a'+old.index%20)))))
	}
	largest, change := old.m.fence(), old.m.keys.changes
	for _, m := range []*Machine{first, later} {
		d := &driver{tb: t, m: m, disk: disk{}, inc: wire.ID{2}, index: old.index + 5}
		register := registerCommand(2, MaxTTL)
		register.GetRegister().FeatureLevel = wire.FeatureLevel
		d.want(wire.Code_OK, d.do(register))
		begin := m.fence()
		d.want(wire.Code_OK, d.do(openCommand(session, second, 0)))
		if f := d.want(wire.Code_OK, d.do(lockCommand("x", session, 1))).Fence; f <= largest || f != begin+1 {
			t.Errorf("fence %x, after %x in the old group", f, largest)
		}
		for _, key := range []string{"k", "new"} {
			r := d.want(wire.Code_OK, d.do(putCommand(key, "from the new group")))
			if index := r.Keys[0].ModifyIndex; index <= change || index <= begin {
				t.Errorf("key %q changed under index %x, after %x in the old group", key, index, change)
			}
		}
	}
	if first.fence() >= later.fence()-1000 {
		t.Errorf("fences %x and %x", first.fence(), later.fence())
	}
}

// A group begins at the feature level that its founders agree on, and one that follows a lost group
// at that of the build which makes the seed, whatever the lost group had.
func TestSeed_Level(t *testing.T) {
	for level := uint32(0); level <= wire.FeatureLevel; level++ {
		d := disk{}
		if err := d.write(FirstState(level)); err != nil {
			t.Fatal(err)
		}
		m, err := Load(d.pairs())
		if err != nil {
			t.Fatal(level, err)
		}
		if got, _ := m.Level(); got != max(level, 1) || len(d) > 0 != (level > 1) {
			t.Errorf("a group at level %d begins at %d with %d pairs", level, got, len(d))
		}
		if err := audit(m); err != nil || m.Summary().Fence != 0 {
			t.Errorf("level %d: %v", level, err)
		}
		s, _ := seedOf(t, m, 1)
		if got, _ := s.Level(); got != wire.FeatureLevel {
			t.Errorf("the seed of a group at level %d begins at %d", level, got)
		}
	}
}

func TestSeed_Refused(t *testing.T) {
	m := New()
	if _, err := m.Seed(maxFences, fact.Seeding{}); !errors.Is(err, ErrCount) {
		t.Error(err)
	}
	if s, _ := seedOf(t, m, maxFences-1); s.fence() != 1<<48|(maxFences-1) {
		t.Errorf("fence %x", s.fence())
	}
	m.epoch = maxEpoch
	if _, err := m.Seed(1, fact.Seeding{}); !errors.Is(err, ErrLastEpoch) {
		t.Error(err)
	}
	m.epoch, m.fences = maxEpoch-1, maxFences // exhausted: a new epoch begins again
	s, _ := seedOf(t, m, 1)
	if s.fence() != maxEpoch<<48|1 || s.keys.changes != s.fence() {
		t.Errorf("fence %x, change %x", s.fence(), s.keys.changes)
	}
}

func putCommand(key, value string) *wire.Command {
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{{Kind: wire.KeyOp_PUT, Key: key, Value: []byte(value)}}}}}
}

// Counting what a state holds agrees with the listings.
func TestSummary_Counts(t *testing.T) {
	m, err := Load(soundDisk().pairs())
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{Level: 1, Fence: 4, Change: 7, Keys: 1, Sessions: 1, Locks: 3, Semaphores: 2}
	if got := m.Summary(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
