package machine

import (
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// BenchmarkStallSets is BenchmarkStall for sets: as many as may wait for a lock.
//
//	go test -run '^$' -bench StallSets -benchtime 1x ./internal/machine
func BenchmarkStallSets(b *testing.B) {
	for _, s := range []struct {
		name    string
		prepare func(d *driver) *wire.Batch
	}{
		{"passed over until all reserve the lock", func(d *driver) *wire.Batch {
			d.waitingSets(MaxWaiters/2, func(int) *wire.LockSet { return &wire.LockSet{Names: []string{"hot", "cold"}} })
			commands := []*wire.Command{unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence)}
			for i := range uint64(MaxPassed + 2) {
				commands = append(commands, lockCommand("hot", wire.ID{1}, 1), unlockCommand("hot", wire.ID{1}, 1, d.m.fence()+i+1))
			}
			return d.batch(commands...)
		}},
		{"looked at in vain, with the longest names", func(d *driver) *wire.Batch {
			d.waitingSets(MaxWaiters/MaxSet, func(int) *wire.LockSet {
				return &wire.LockSet{Names: append(longNames(MaxSet-2), "hot", "cold")}
			})
			return d.batch(unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence))
		}},
		{"granted shared together", func(d *driver) *wire.Batch {
			d.waitingSets(MaxWaiters/4, func(int) *wire.LockSet { return &wire.LockSet{Shared: []string{"hot", "a", "b", "c"}} })
			return d.batch(unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence))
		}},
		{"of a session that ends", func(d *driver) *wire.Batch {
			d.waitingSets(MaxWaiters/2, func(int) *wire.LockSet { return &wire.LockSet{Names: []string{"hot", "cold"}} })
			return d.batch(closeCommand(wire.ID{2}))
		}},
		{"before heads that are withdrawn from a lock that is reserved", func(d *driver) *wire.Batch {
			return d.batch(d.withdrawnHeads(4_900, 5_500)...)
		}},
		{"that have reserved a lock, withdrawn", func(d *driver) *wire.Batch {
			return d.batch(d.withdrawnReservations(5_000)...)
		}},
		{"held by a session that ends", func(d *driver) *wire.Batch {
			d.waitingSets(0, nil)
			for i := range 2_000 { // an entry takes no more than some of them
				c := &wire.LockSet{Session: id(2), Handle: uint64(i)}
				for j := range MaxSet {
					c.Names = append(c.Names, fmt.Sprint(i, "/", j))
				}
				d.want(wire.Code_OK, d.do(setCommand(c)))
			}
			return d.batch(closeCommand(wire.ID{2}))
		}},
	} {
		b.Run(s.name, func(b *testing.B) {
			stall(b, func() (*driver, *wire.Batch) {
				d := newDriverAt(b, wire.LevelSets)
				return d, s.prepare(d)
			})
		})
	}
}

// withdrawnHeads withdraws the waiters of a lock that is free, and reserved for the last of several sets.
func (d *driver) withdrawnHeads(waiters, sets int) (withdraw []*wire.Command) {
	d.waitingSets(sets-1, func(int) *wire.LockSet { return &wire.LockSet{Names: []string{"hot", "cold"}} })
	d.do(setCommand(&wire.LockSet{Session: id(2), Names: []string{"hot", "cool", "cold"}, Wait: true}))
	for range MaxPassed {
		fence := d.want(wire.Code_OK, d.do(lockCommand("cool", wire.ID{1}, 1))).Fence
		d.do(unlockCommand("cool", wire.ID{1}, 1, fence))
	}
	first := d.seq + 1
	d.many(waiters, func(i int) *wire.Command { return lockCommand("hot", wire.ID{2}, uint64(i)) })
	for i := range waiters {
		withdraw = append(withdraw, withdrawCommand(d.inc, first+uint64(i)))
	}
	d.want(wire.Code_OK, d.do(unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence)))
	return withdraw
}

// withdrawnReservations withdraws sets that wait for a lock that is free, and have it reserved, the oldest first.
func (d *driver) withdrawnReservations(sets int) (withdraw []*wire.Command) {
	first := d.seq + 5
	d.waitingSets(sets, func(int) *wire.LockSet { return &wire.LockSet{Names: []string{"hot", "cold", "cool"}} })
	for range MaxPassed {
		fence := d.want(wire.Code_OK, d.do(lockCommand("cool", wire.ID{1}, 1))).Fence
		d.do(unlockCommand("cool", wire.ID{1}, 1, fence))
	}
	for i := range sets {
		withdraw = append(withdraw, withdrawCommand(d.inc, first+uint64(i)))
	}
	d.want(wire.Code_OK, d.do(unlockCommand("hot", wire.ID{1}, 1, d.m.locks.byName["hot"].fence)))
	return withdraw
}

// waitingSets has session 1 hold two locks, and n sets of session 2 wait.
func (d *driver) waitingSets(n int, set func(i int) *wire.LockSet) {
	d.do(openCommand(wire.ID{1}, 0, 0), openCommand(wire.ID{2}, 0, 0))
	d.do(lockCommand("hot", wire.ID{1}, 1), lockCommand("cold", wire.ID{1}, 1))
	d.many(n, func(i int) *wire.Command {
		c := set(i)
		c.Session, c.Handle, c.Wait = id(2), uint64(i), true
		return setCommand(c)
	})
}

func setCommand(c *wire.LockSet) *wire.Command {
	return &wire.Command{Op: &wire.Command_LockSet{LockSet: c}}
}

// longNames returns n names of the most bytes.
func longNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%0*d", MaxName, i))
	}
	return names
}
