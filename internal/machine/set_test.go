package machine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// A member that has installed a snapshot gets the fences of a set that was granted meanwhile.
func TestRecheck_Set(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "lock x s/1")
	d.line(wire.Code_OK, "lock z s/1 shared")
	d.line(wire.Code_QUEUED, "lockset s/2 x shared=y,z wait max-hold=5s")
	queued := wire.Ticket{Incarnation: d.inc, Seq: d.seq}
	for _, m := range []*Machine{d.m, must(Load(d.disk.pairs()))} {
		if r := m.Recheck(queued, makeID("s"), "", ""); r != nil {
			t.Errorf("while it waits: %v", r)
		}
	}
	d.line(wire.Code_OK, "unlock x s/1 fence=1")
	for _, m := range []*Machine{d.m, must(Load(d.disk.pairs()))} {
		r := m.Recheck(queued, makeID("s"), "", "")
		if r.GetCode() != wire.Code_OK || r.GetFence() != 5 || r.GetHolds() != 1 || !slices.Equal(r.GetSet().GetFences(), []uint64{5, 2}) || r.GetAllowed() == 0 {
			t.Errorf("once it is granted: %v", r)
		}
	}
	d.line(wire.Code_OK, "unlockset s fence=5")
	for _, m := range []*Machine{d.m, must(Load(d.disk.pairs()))} {
		if r := m.Recheck(queued, makeID("s"), "", ""); r.GetCode() != wire.Code_SESSION_EXPIRED {
			t.Errorf("once it is released: %v", r)
		}
	}
}

// A session with more sets than an entry may release: each counts as its names, whether it waits or is held.
func TestSet_EndedInPortions(t *testing.T) {
	const n = 2 * MaxReleased / MaxSet
	for _, row := range []struct {
		name    string
		prepare func(d *driver)
	}{
		{"held", func(*driver) {}},
		{"waiting", func(d *driver) {
			d.many(n, func(i int) *wire.Command {
				return setCommand(&wire.LockSet{Session: id(1), Handle: 1, Names: numberedNames(fmt.Sprint(i), MaxSet)})
			})
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDriverAt(t, wire.LevelSets)
			d.do(openCommand(wire.ID{1}, 0, 0), openCommand(wire.ID{2}, 0, second))
			row.prepare(d)
			d.many(n, func(i int) *wire.Command {
				return setCommand(&wire.LockSet{Session: id(2), Handle: 1, Names: numberedNames(fmt.Sprint(i), MaxSet), Wait: true})
			})
			d.do(closeCommand(wire.ID{2}))
			if err := audit(d.m); err != nil {
				t.Fatal(err)
			}
			left := d.m.sessions[wire.ID{2}]
			if left == nil || n*MaxSet-(left.inSets+left.inWaitingSets) > MaxReleased+MaxSet {
				t.Fatalf("one entry released more than %d names: %+v", MaxReleased, left)
			}
			if d.do(); d.m.sessions[wire.ID{2}] != nil || audit(d.m) != nil {
				t.Errorf("two entries did not release %d sets: %v", n, audit(d.m))
			}
		})
	}
}
