package sim

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// partition cuts connections: those of one member, of two halves, or of a pair, and
// any of these in one direction only.
func (sim *simulation) partition() {
	n := len(sim.members)
	sides := make([]bool, n)
	shape := sim.rng.IntN(3)
	for i := range sides {
		sides[i] = sim.chance(0.5)
	}
	a, b := sim.rng.IntN(n), sim.rng.IntN(n)
	oneWay := sim.chance(0.3)
	for from := range n {
		for to := range n {
			cut := false
			switch shape {
			case 0:
				cut = (from == a) != (to == a)
			case 1:
				cut = sides[from] != sides[to]
			case 2:
				cut = from == a && to == b || from == b && to == a
			}
			if cut && !(oneWay && from > to) {
				sim.network.cut[from][to] = true
			}
		}
	}
	sim.trace("partition: %v", sim.network.cut)
}

func (n *network) heal() {
	for _, row := range n.cut {
		clear(row)
	}
}

// limitTopology leaves only the connections of a topology that is difficult for
// raft: a bridge between two halves, a ring, or a ring with messages in one
// direction.
func (sim *simulation) limitTopology() {
	n := len(sim.members)
	shape, bridge := sim.extraRNG.IntN(3), sim.extraRNG.IntN(n)
	next := func(from, to int) bool { return (from+1)%n == to }
	for from := range n {
		for to := range n {
			cut := false
			switch shape {
			case 0:
				cut = from != bridge && to != bridge && (from < n/2) != (to < n/2)
			case 1:
				cut = !next(from, to) && !next(to, from)
			case 2:
				cut = !next(from, to)
			}
			sim.network.cut[from][to] = cut && from != to
		}
	}
	sim.trace("topology %d: %v", shape, sim.network.cut)
}

// stallLink makes a link hold back all messages for some seconds and then deliver
// them.
func (sim *simulation) stallLink() {
	n := len(sim.members)
	from, to := sim.extraRNG.IntN(n), sim.extraRNG.IntN(n)
	sim.network.stalledUntil[from][to] = sim.now + time.Duration(1+sim.extraRNG.IntN(5_000))*time.Millisecond
	sim.trace("the link from %d to %d stalls until %v", from, to, sim.network.stalledUntil[from][to])
}

// applyDelay is how long a process blocks while it applies n entries.
func (sim *simulation) applyDelay(n uint64) time.Duration {
	return time.Duration(sim.extraRNG.Int64N(int64(min(n, 20) * uint64(10*time.Millisecond))))
}

// diskAfterCrash returns the disk as a crash leaves it, with all synced data. Of
// unsynced data it has none (power loss), all (a kill), or that of some kinds of
// files: Pebble's goroutines are not simulated, so a choice by file would not be
// repeatable.
func (m *simMember) diskAfterCrash(old *vfs.MemFS) *vfs.MemFS {
	if !m.sim.faults.keepsUnsynced {
		return old.CrashClone(vfs.CrashCloneCfg{})
	}
	kept := m.sim.extraRNG.IntN(8)
	switch m.sim.extraRNG.IntN(3) {
	case 0:
		kept = 0
	case 1:
		kept = 7
	}
	m.sim.trace("the disk of member %d keeps unsynced data: %03b", m.n, kept)
	names, err := old.List("")
	if err != nil {
		m.sim.fail("member %d: list its disk: %v", m.n, err)
	}
	slices.Sort(names)
	for _, name := range names {
		m.keepUnsynced(old, name, kept)
	}
	if kept&4 != 0 {
		m.syncFile(old.OpenDir(""))
	}
	return old.CrashClone(vfs.CrashCloneCfg{})
}

// keepUnsynced syncs a file of a kind that is kept: the WAL, or anything else.
func (m *simMember) keepUnsynced(disk *vfs.MemFS, name string, kept int) {
	kind := 2
	if strings.HasSuffix(name, ".log") {
		kind = 1
	}
	if kept&kind != 0 {
		m.syncFile(disk.Open(name))
	}
}

func (m *simMember) syncFile(f vfs.File, err error) {
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble may have removed it meanwhile
		m.sim.fail("member %d: keep unsynced data: %v", m.n, err)
	}
}

// diskFault is a disk that fails from some write on: every operation that would
// change it. The process crashes, as the production store reports nothing from then
// on, and its unsynced data is lost. Which operation fails first depends on
// Pebble's goroutines, so the rest must be the same whichever it is.
type diskFault struct {
	writesLeft int // until the fault; 0: none
	failing    atomic.Bool
}

var errDiskFault = errors.New("disk fault")

func (s *diskFault) MaybeError(op errorfs.Op) error {
	if s.failing.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
		return errDiskFault
	}
	return nil
}

func (s *diskFault) String() string { return "sickness" }

// fails reports whether the disk fails during the write that begins now.
func (s *diskFault) fails() bool {
	if s.writesLeft > 0 {
		s.writesLeft--
		s.failing.Store(s.writesLeft == 0)
	}
	return s.failing.Load()
}
