package machine

import (
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// What leaves a lock looks only at the sets that it has kept from it: an entry of n commands looks at no more than some elements
// for each, however many sets wait.
func TestSet_LooksAtWhatGains(t *testing.T) {
	const n = 1000
	for name, prepare := range map[string]func(d *driver) []*wire.Command{
		"sets with a reservation of a share withdrawn": func(d *driver) []*wire.Command { return d.withdrawnSharedReservations(n) },
		"waiters of a process that had other places":   func(d *driver) []*wire.Command { return d.endedWithPlaces(n) },
		"shares that come and go": func(d *driver) (commands []*wire.Command) {
			d.sharedSets(n)
			for fence := d.m.fence() + 1; len(commands) < 2*n; fence++ {
				commands = append(commands, shareCommand("hot", wire.ID{1}, 1, false), unshareCommand("hot", wire.ID{1}, fence))
			}
			return commands
		},
		"shared sets that come and go": func(d *driver) (commands []*wire.Command) {
			d.sharedSets(n)
			for fence := d.m.fence() + 2; len(commands) < 2*n; fence += 2 {
				commands = append(commands, setCommand(&wire.LockSet{Session: id(1), Shared: []string{"hot"}}), unlockSetCommand(wire.ID{1}, fence))
			}
			return commands
		},
		"requests behind a waiter that has ended": func(d *driver) []*wire.Command {
			commands := d.endedHead(n)
			for i := range n {
				commands = append(commands, lockCommand("hot", wire.ID{1}, uint64(i)))
			}
			return commands
		},
		"shares released before a waiter that has ended": func(d *driver) []*wire.Command {
			shares := make([]*wire.Command, n)
			for i := range shares {
				share := d.want(wire.Code_OK, d.do(openCommand(wire.ID{1}, 0, 0), shareCommand("hot", wire.ID{1}, uint64(i), false))).Share
				shares[i] = unshareCommand("hot", wire.ID{1}, share)
			}
			return append(d.endedHead(n), shares...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriverAt(t, wire.LevelSets)
			commands := prepare(d)
			before := d.m.visits.Total()
			d.do(commands...)
			if visits := d.m.visits.Total() - before; visits > 300*n {
				t.Errorf("the entry looks at %d elements", visits)
			}
			if err := audit(d.m); err != nil {
				t.Error(err)
			}
		})
	}
}

// withdrawnSharedReservations withdraws sets that wait for another lock and have a share of one reserved, the oldest first.
func (d *driver) withdrawnSharedReservations(sets int) (withdraw []*wire.Command) {
	first := d.seq + 5
	d.waitingSets(sets, func(int) *wire.LockSet {
		return &wire.LockSet{Names: []string{"cold", "cool"}, Shared: []string{"hot"}}
	})
	d.passOver("cool")
	for i := range sets {
		withdraw = append(withdraw, withdrawCommand(d.inc, first+uint64(i)))
	}
	d.want(wire.Code_OK, d.do(unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence)))
	return withdraw
}

// endedWithPlaces ends a process that has a place of a session without TTL, and waits behind another one for a lock that is reserved.
func (d *driver) endedWithPlaces(n int) []*wire.Command {
	d.waitingSets(n, func(int) *wire.LockSet { return &wire.LockSet{Names: []string{"hot", "cold"}} })
	d.do(setCommand(&wire.LockSet{Session: id(2), Names: []string{"hot", "cool", "cold"}, Wait: true}))
	d.passOver("cool")
	d.want(wire.Code_OK, d.do(unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence)))
	d.want(wire.Code_QUEUED, d.do(lockCommand("hot", wire.ID{1}, 2)))
	p := &driver{tb: d.tb, m: d.m, disk: d.disk, inc: wire.ID{3}, index: d.index}
	register := registerCommand(3, MaxTTL)
	register.GetRegister().FeatureLevel = d.m.levels.agreed
	p.do(register)
	p.do(openCommand(wire.ID{7}, MaxTTL, 0), openCommand(wire.ID{8}, 0, 0))
	p.many(n, func(i int) *wire.Command { return lockCommand("hot", wire.ID{7}, uint64(i)) })
	p.want(wire.Code_QUEUED, p.do(lockCommand("cold", wire.ID{8}, 1)))
	*d = *p
	return []*wire.Command{deregisterCommand()}
}

// sharedSets has sets wait for a lock that is held, and a share of one that is not.
func (d *driver) sharedSets(n int) {
	d.do(openCommand(wire.ID{1}, 0, 0), openCommand(wire.ID{2}, 0, 0), lockCommand("cold", wire.ID{1}, 1))
	d.many(n, func(i int) *wire.Command {
		return setCommand(&wire.LockSet{Session: id(2), Handle: uint64(i), Names: []string{"cold"}, Shared: []string{"hot"}, Wait: true})
	})
}

// endedHead ends a session that has more than an entry releases, and is the first behind sets in the queue of a lock held shared.
func (d *driver) endedHead(n int) []*wire.Command {
	d.sharedSets(n)
	d.do(openCommand(wire.ID{3}, MaxTTL, 0), shareCommand("hot", wire.ID{2}, 1, false))
	d.m.split = 10
	d.many(2*d.m.split, func(i int) *wire.Command { return lockCommand("cold", wire.ID{3}, uint64(i)) })
	d.want(wire.Code_QUEUED, d.do(lockCommand("hot", wire.ID{3}, 1)))
	return []*wire.Command{closeCommand(wire.ID{3})}
}

// passOver passes over what waits for a lock that is free, until it is reserved.
func (d *driver) passOver(name string) {
	for range MaxPassed {
		fence := d.want(wire.Code_OK, d.do(lockCommand(name, wire.ID{1}, 1))).Fence
		d.do(unlockCommand(name, wire.ID{1}, 1, fence))
	}
}

// A set leaves that has kept two others waiting by shares of two locks. The older of them wants a share of the first lock and all
// of the second: it is granted before the younger one, which wants the first alone.
func TestSet_OlderBySharesOfTwoLocks(t *testing.T) {
	for name, leave := range map[string]func(d *driver, s wire.ID) *wire.Command{
		"withdrawn with a reservation": func(d *driver, s wire.ID) *wire.Command {
			d.want(wire.Code_OK, d.do(openCommand(wire.ID{1}, 0, 0), lockCommand("cold", s, 9)))
			d.want(wire.Code_QUEUED, d.do(setCommand(&wire.LockSet{Session: s[:], Names: []string{"cold"}, Shared: []string{"a", "b"}, Wait: true})))
			seq := d.seq
			d.passOver("a")
			return withdrawCommand(d.inc, seq)
		},
		"released": func(d *driver, s wire.ID) *wire.Command {
			fence := d.want(wire.Code_OK, d.do(setCommand(&wire.LockSet{Session: s[:], Shared: []string{"a", "b"}}))).Fence
			return unlockSetCommand(s, fence)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, s := newSets(t)
			command := leave(d, s)
			d.want(wire.Code_QUEUED, d.do(setCommand(&wire.LockSet{Session: s[:], Names: []string{"b"}, Shared: []string{"a"}, Handle: 1, Wait: true})))
			older := d.seq
			d.want(wire.Code_QUEUED, d.do(setCommand(&wire.LockSet{Session: s[:], Names: []string{"a"}, Handle: 2, Wait: true})))
			var got []uint64
			for _, o := range d.do(command) {
				if o.Reply.Code == wire.Code_OK && o.Reply.Holds > 0 {
					got = append(got, o.Ticket.Seq)
				}
			}
			if !slices.Equal(got, []uint64{older}) {
				t.Errorf("granted %v, want %d", got, older)
			}
		})
	}
}
