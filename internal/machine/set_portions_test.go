package machine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// newSets is a driver of a group at the level of sets, with a session.
func newSets(tb testing.TB) (*driver, wire.ID) {
	d, s := newDriverAt(tb, wire.LevelSets), makeID("s")
	d.want(wire.Code_OK, d.do(openCommand(s, MaxTTL, 0)))
	return d, s
}

// Shares of a lock are left for the next entry, and the only one that was granted is released before that: an older set
// has the lock then. What is left waits for the set, and the next entry grants nothing.
func TestSet_GrantedLockThatIsDue(t *testing.T) {
	d, s := newSets(t)
	d.m.split = 1
	x := d.want(wire.Code_OK, d.do(lockCommand("x", s, 1))).Fence
	b := d.want(wire.Code_OK, d.do(lockCommand("b", s, 1))).Fence
	d.want(wire.Code_QUEUED, d.do(shareCommand("x", s, 2, true)))
	d.want(wire.Code_QUEUED, d.do(setCommand(&wire.LockSet{Session: s[:], Names: []string{"b", "x"}, Handle: 3, Wait: true})))
	d.want(wire.Code_QUEUED, d.do(shareCommand("x", s, 4, true)))

	d.do(unlockCommand("x", s, 1, x), unlockCommand("b", s, 1, b), unshareCommand("x", s, d.m.fence()+1))
	if v := lockOf(d.m, "x"); v.Handle != 3 || v.Set != 2 {
		t.Fatalf("the set does not hold the lock: %+v", v)
	}
	if due, ok := d.m.NextDeadline(); ok && due <= d.m.Now() {
		t.Fatalf("the next entry is due at %d", due) // and would not end
	}
	if got := granted(d.do(unlockSetCommand(s, d.m.fence()))); len(got) != 1 {
		t.Errorf("the release of the set grants %v", got)
	}
}

func unlockSetCommand(session wire.ID, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: session[:], Fence: fence}}}
}

// What releases shares does not look at the sets that wait for the lock, as long as it has other shares: they would be looked
// at once for each share.
func TestSet_SharesEndPastWaitingSets(t *testing.T) {
	const n = 1000
	sets := func(c *wire.LockSet) func(d *driver) {
		return func(d *driver) {
			other := makeID("other")
			d.do(openCommand(other, MaxTTL, 0), lockCommand("cold", other, 1))
			d.many(n, func(i int) *wire.Command {
				return setCommand(&wire.LockSet{Session: other[:], Handle: uint64(i), Names: c.Names, Shared: c.Shared, Wait: true})
			})
		}
	}
	for _, row := range []struct {
		name    string
		prepare func(d *driver)
	}{
		{"exclusive", sets(&wire.LockSet{Names: []string{"hot"}})},
		{"shared", sets(&wire.LockSet{Names: []string{"cold"}, Shared: []string{"hot"}})},
		{"behind an exclusive request", func(d *driver) {
			sets(&wire.LockSet{Names: []string{"cold"}, Shared: []string{"hot"}})(d)
			d.do(lockCommand("hot", makeID("other"), 1))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, s := newSets(t)
			var release []*wire.Command
			for i := range n {
				share := d.want(wire.Code_OK, d.do(shareCommand("hot", s, uint64(i), false))).Share
				release = append(release, unshareCommand("hot", s, share))
			}
			row.prepare(d)
			before := d.m.visits.Total()
			d.do(release[1 : n/2]...)
			d.do(closeCommand(s)) // and the last one, which is looked for by all
			if visits := d.m.visits.Total() - before; visits > 100*n {
				t.Errorf("the release of %d shares looks at %d elements", n, visits)
			}
			if d.m.locks.byName["hot"].phase().isLive() {
				t.Error("the lock has shares")
			}
		})
	}
}

// What leaves the queue of a lock that is free, but reserved, looks only at the sets that it has kept from the lock.
func TestSet_WithdrawnPastWaitingSets(t *testing.T) {
	const n = 1000
	for name, withdraw := range map[string]func(d *driver) []*wire.Command{
		"waiters":                 func(d *driver) []*wire.Command { return d.withdrawnHeads(n, n) },
		"sets with a reservation": func(d *driver) []*wire.Command { return d.withdrawnReservations(n) },
		"waiters, the latest first": func(d *driver) []*wire.Command {
			commands := d.withdrawnHeads(n, n)
			slices.Reverse(commands)
			return commands
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriverAt(t, wire.LevelSets)
			commands := withdraw(d)
			before := d.m.visits.Total()
			d.want(wire.Code_OK, d.do(commands...))
			if visits := d.m.visits.Total() - before; visits > 200*n {
				t.Errorf("%d withdrawals look at %d elements", n, visits)
			}
			if err := audit(d.m); err != nil {
				t.Error(err)
			}
		})
	}
}

// What an attached session left of sets counts as its names, as everywhere, when requests of the session release it.
func TestSet_DisclaimedInPortions(t *testing.T) {
	for name, request := range map[string]*wire.Command{
		"lock": lockCommand("hot", attachedID, 1),
		"set":  setCommand(&wire.LockSet{Session: attachedID[:], Handle: 1, Names: []string{"hot"}}),
	} {
		t.Run(name, func(t *testing.T) {
			const sets, of = 10, 5
			d, _ := newSets(t)
			d.leaveUnclaimed(sets, func(i int) *wire.Command {
				return setCommand(&wire.LockSet{Session: attachedID[:], Handle: uint64(i), Names: numberedNames(fmt.Sprint(i), of-1), Shared: []string{"hot"}})
			})
			d.m.split = 2*of + 1
			for entry := 1; ; entry++ {
				r := d.do(request)[0].Reply
				left := len(d.m.sets.byFence)
				if r.Code == wire.Code_OK && entry == 4 {
					break
				}
				if d.want(wire.Code_BUSY, []fact.Outcome{{Reply: r}}); left != sets-3*entry {
					t.Fatalf("after %d entries %d sets are left", entry, left)
				}
			}
			if v := lockOf(d.m, "hot"); v.Session != attachedID || v.Shared != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}
