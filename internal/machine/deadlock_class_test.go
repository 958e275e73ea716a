package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// What the searches before reservations for clients' sets have looked at in an entry takes nothing from those for members' sets.
func TestDeadlock_ReservationsApart(t *testing.T) {
	for level, want := range map[uint32]bool{wire.LevelApart - 1: true, wire.LevelApart: false} {
		d := newDriverAt(t, level)
		for _, session := range []string{"a", "b", "s"} {
			d.line(wire.Code_OK, "open %s ttl=1h", session)
		}
		d.line(wire.Code_OK, "lock y a/1")
		d.line(wire.Code_OK, "lock x b/1")
		d.line(wire.Code_QUEUED, "lockset s/1 x y wait refuse-deadlock")
		d.line(wire.Code_QUEUED, "lock x a/2 wait")
		s := d.m.locks.byName["x"].sets().exclusive.First().set
		setting{d.m}.mark(s)
		d.m.searched.sets, d.m.searched.clientSets = 0, 0
		x := deadlocks{d.m}
		if x.mayReserve(s) {
			t.Fatal("the reservation closes a cycle, which is not found")
		}
		d.m.searched.all = d.m.searched.sets // for one search
		d.m.searched.sets, d.m.searched.clientSets = 0, 0
		s.session.client = true
		if x.mayReserve(s) {
			t.Fatal("the first search finds nothing")
		}
		s.session.client = false
		if may := x.mayReserve(s); may != want {
			t.Errorf("level %d: the search for a member's set, behind that for a client's, finds no cycle: %t, want %t", level, may, want)
		}
	}
}
