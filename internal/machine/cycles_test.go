package machine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// checkCycles compares the wait-for cycles with those of the reference.
func (r *rig) checkCycles() error {
	got := make(map[wire.ID]int)
	for _, cycle := range allCycles(r.straight) {
		first := cycle[0].Waiter.Session
		if got[first] != 0 {
			return fmt.Errorf("two cycles begin with session %s", first)
		}
		got[first] = len(cycle)
		for i, step := range cycle {
			next := cycle[(i+1)%len(cycle)]
			l := r.straight.space(step.Space == wire.Space_ELECTION).byName[step.Name]
			if step.Holder.Session != next.Waiter.Session || l == nil || !r.straight.holds(l, step.Holder) {
				return fmt.Errorf("the cycle is broken at step %d: %s", i, printCycle(cycle))
			}
		}
	}
	if want := r.model.Cycles(); !maps.Equal(got, want) {
		return fmt.Errorf("wait-for cycles by session %v, want %v", got, want)
	}
	return nil
}

// holds reports whether the owner has the lock, exclusively or shared, or has it reserved.
func (m *Machine) holds(l *lock, by OwnerView) bool {
	if by.Reserved {
		return slices.ContainsFunc(slices.Concat(l.sets().all(false), l.sets().all(true)), func(p *part) bool {
			return p.set.reserves() && p.set.session.id == by.Session && p.set.handle == by.Handle && len(p.set.parts) == by.Set && p.shared == by.Shared
		})
	}
	if !by.Shared {
		return l.owner != nil && l.owner.id == by.Session
	}
	return slices.ContainsFunc(m.sharesOf(l), func(sh *share) bool {
		return sh.owner != nil && sh.owner.id == by.Session && sh.handle == by.Handle
	})
}

// all returns the sets that wait for the lock in that mode.
func (ws *waitingSets) all(shared bool) (parts []*part) {
	if ws == nil {
		return nil
	}
	for p := ws.list(shared).First(); p != nil; p = p.inLock.Next() {
		parts = append(parts, p)
	}
	return parts
}

// process makes the driver another process, of a member of its own, with a session.
func (d *driver) process(number byte) wire.ID {
	d.inc, d.seq = wire.ID{number}, 0
	d.do(registerCommand(uint64(number), MaxTTL))
	id := makeID(fmt.Sprint("s", number))
	d.want(wire.Code_OK, d.do(openCommand(id, MaxTTL, 0)))
	return id
}

// queue queues the session for a lock so often.
func (d *driver) queue(n int, lock string, session wire.ID) {
	for range n {
		d.want(wire.Code_QUEUED, d.do(lockCommand(lock, session, 9)))
	}
}

// A query looks at a bounded number of waiters, and the listing goes on after them.
func TestWaitCyclesQuery_ManyWaiters(t *testing.T) {
	d := newDriver(t)
	a := d.process(2)
	d.want(wire.Code_OK, d.do(lockCommand("x", a, 1)))
	b := d.process(3)
	d.want(wire.Code_OK, d.do(lockCommand("y", b, 1)))
	d.queue(MaxQueued-300, "x", b)
	c := d.process(4)
	d.want(wire.Code_OK, d.do(lockCommand("z", c, 1)))
	d.queue(200, "y", c)
	d.inc, d.seq = wire.ID{2}, 10
	d.queue(1, "z", a)

	first := Ask[WaitCyclesView](d.m, WaitCyclesQuery{})
	if first.Done || len(first.Cycles) == 0 {
		t.Errorf("the first page has %d cycles and is the last: %v", len(first.Cycles), first.Done)
	}
	cycles := allCycles(d.m)
	if len(cycles) != 3 {
		t.Fatalf("%d cycles, want one for each session", len(cycles))
	}
	for _, cycle := range cycles {
		if len(cycle) != 3 {
			t.Errorf("cycle %s", printCycle(cycle))
		}
	}
}

// A walk that is too long is given up, and those after it are not.
func TestWaitCyclesQuery_WalkCutShort(t *testing.T) {
	d := newDriver(t)
	a := d.process(2)
	d.want(wire.Code_OK, d.do(lockCommand("x", a, 1)))
	b := d.process(3)
	d.want(wire.Code_OK, d.do(lockCommand("y", b, 1)))
	c := d.process(4)
	d.want(wire.Code_OK, d.do(lockCommand("z", c, 1)))
	d.inc, d.seq = wire.ID{2}, 10
	d.queue(20, "z", a)
	d.inc, d.seq = wire.ID{3}, 10
	d.queue(20, "z", b)
	d.inc, d.seq = wire.ID{4}, 10
	d.want(wire.Code_OK, d.do(lockCommand("mine", c, 1)))
	d.queue(MaxQueued-11, "mine", c)
	d.queue(1, "y", c)
	cycles := allCycles(d.m)
	if len(cycles) != 1 || cycles[0][0].Waiter.Session != c {
		t.Errorf("%d cycles, want only the one that a walk from the third session finds", len(cycles))
	}
}

// A walk counts the shares of ended sessions as well, however often it looks at them.
func TestQuery_VisitsOfEndedShares(t *testing.T) {
	d, s := newSharing(t)
	other := makeID("t")
	d.want(wire.Code_OK, d.do(openCommand(other, MaxTTL, 0)))
	d.many(MaxShares/2, func(i int) *wire.Command { return shareCommand("a", s, uint64(i), false) })
	d.want(wire.Code_OK, d.do(shareCommand("a", other, 1, false)))
	d.many(1000, func(i int) *wire.Command { return lockCommand("a", other, uint64(i)) })
	d.m.split = 1
	d.do(closeCommand(s))
	for _, q := range []Query{ExplainQuery{Name: "a"}, WaitCyclesQuery{}} {
		before := d.m.visits.Total()
		q.Begin(d.m)
		if visits := d.m.visits.Total() - before; visits > MaxVisits {
			t.Errorf("%+v looks at %d objects, and may at %d", q, visits, MaxVisits)
		}
	}
}
