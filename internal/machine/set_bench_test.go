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
		{"held by a session that ends", func(d *driver) *wire.Batch {
			d.waitingSets(0, nil)
			d.many(2_000, func(i int) *wire.Command {
				c := &wire.LockSet{Session: id(2), Handle: uint64(i)}
				for j := range MaxSet {
					c.Names = append(c.Names, fmt.Sprint(i, "/", j))
				}
				return setCommand(c)
			})
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
