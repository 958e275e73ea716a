package machine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// numberedNames returns n names.
func numberedNames(of string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(of, "/", i))
	}
	return names
}

// waitingSet is a set that waits for a lock that is held, and for n-1 others.
func waitingSet(session byte, hot string, n int) *wire.Command {
	return setCommand(&wire.LockSet{Session: id(session), Names: append(numberedNames(hot, n-1), hot), Wait: true})
}

func TestLimit_NamesOfSet(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.do(openCommand(wire.ID{1}, 0, 0))
	for _, row := range []struct {
		name          string
		names, shared []string
		want          wire.Code
	}{
		{"none", nil, nil, wire.Code_INVALID},
		{"as many as may be", numberedNames("a", 100), numberedNames("b", 28), wire.Code_OK},
		{"one more", numberedNames("a", 100), numberedNames("b", 29), wire.Code_TOO_LARGE},
		{"one twice", []string{"c", "d", "c"}, nil, wire.Code_INVALID},
		{"one in both modes", []string{"c"}, []string{"c"}, wire.Code_INVALID},
		{"an empty one", []string{"c", ""}, nil, wire.Code_INVALID},
		{"a long one", []string{"c"}, longNames(1), wire.Code_OK},
		{"one that is too long", []string{"e", longNames(1)[0] + "x"}, nil, wire.Code_TOO_LARGE},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &wire.LockSet{Session: id(1), Names: row.names, Shared: row.shared}
			before := len(d.m.locks.byName)
			if r := d.want(row.want, d.do(setCommand(c))); r.Code != wire.Code_OK && len(d.m.locks.byName) != before {
				t.Error("a refused set leaves a lock")
			}
		})
	}
}

// A set counts as its names, in the places of a process and in each of its queues.
func TestLimit_PlacesOfSets(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.do(openCommand(wire.ID{1}, 0, 0), openCommand(wire.ID{2}, 0, 0))
	hot := numberedNames("hot", MaxQueued/MaxSet+1)
	d.want(wire.Code_OK, d.do(setCommand(&wire.LockSet{Session: id(1), Names: hot[:MaxSet]})))
	d.do(lockCommand(hot[MaxSet], wire.ID{1}, 1))
	for _, name := range hot[:MaxQueued/MaxSet] {
		d.want(wire.Code_QUEUED, d.do(waitingSet(2, name, MaxSet)))
	}
	d.want(wire.Code_BUSY, d.do(waitingSet(2, hot[MaxSet], 1)))
	d.want(wire.Code_BUSY, d.do(lockCommand(hot[MaxSet], wire.ID{2}, 1)))
	d.as(3, func(p *driver) {
		p.do(openCommand(wire.ID{3}, 0, 0))
		p.want(wire.Code_QUEUED, p.do(waitingSet(3, hot[MaxSet], MaxSet)))
		p.want(wire.Code_QUEUED, p.do(lockCommand(hot[MaxSet], wire.ID{3}, 1)))
	})
}

func TestLimit_QueueOfSets(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.do(openCommand(wire.ID{1}, 0, 0), openCommand(wire.ID{2}, 0, 0), lockCommand("hot", wire.ID{1}, 1))
	fence := d.m.fence()
	for range MaxWaiters/MaxSet - 1 {
		d.want(wire.Code_QUEUED, d.do(waitingSet(2, "hot", MaxSet)))
	}
	d.as(3, func(p *driver) {
		p.do(openCommand(wire.ID{3}, 0, 0))
		p.want(wire.Code_QUEUED, p.do(waitingSet(3, "hot", MaxSet-1)))
		p.want(wire.Code_BUSY, p.do(waitingSet(3, "hot", 2)))
		p.want(wire.Code_QUEUED, p.do(lockCommand("hot", wire.ID{3}, 1)))
		p.want(wire.Code_BUSY, p.do(lockCommand("hot", wire.ID{3}, 2)))
		p.want(wire.Code_OK, p.do(setCommand(&wire.LockSet{Session: id(3), Names: []string{"cold"}})))
	})
	outcomes := d.do(unlockCommand("hot", wire.ID{1}, 1, fence))
	if !slices.ContainsFunc(d.m.lockViews("hot"), func(v LockView) bool { return v.Set == MaxSet }) {
		t.Errorf("the first set does not hold the lock: %v", outcomes)
	}
}

func (m *Machine) lockViews(prefix string) []LockView {
	return Ask[[]LockView](m, LocksQuery{Prefix: prefix})
}
