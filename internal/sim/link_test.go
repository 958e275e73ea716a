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

// What goes wrong between members, and between a member and its disk.

// partition cuts connections: a member from all, two halves from each other, a
// pair, or any of these in one direction only.
func (w *world) partition() {
	n := len(w.members)
	sides := make([]bool, n)
	shape := w.rng.IntN(3)
	for i := range sides {
		sides[i] = w.chance(0.5)
	}
	a, b := w.rng.IntN(n), w.rng.IntN(n)
	oneWay := w.chance(0.3)
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
				w.network.cut[from][to] = true
			}
		}
	}
	w.say("cut: %v", w.network.cut)
}

func (n *network) reset() {
	for _, row := range n.cut {
		clear(row)
	}
}

// reshape lets only those connections live that make a shape in which raft has
// to find its way: a bridge between two halves, a ring, or a ring in which
// messages go round one way.
func (w *world) reshape() {
	n := len(w.members)
	shape, bridge := w.later.IntN(3), w.later.IntN(n)
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
			w.network.cut[from][to] = cut && from != to
		}
	}
	w.say("shape %d: %v", shape, w.network.cut)
}

// clog has a link hold what is sent for some seconds, and then deliver it all.
func (w *world) clog() {
	n := len(w.members)
	from, to := w.later.IntN(n), w.later.IntN(n)
	w.network.clogged[from][to] = w.now + time.Duration(1+w.later.IntN(5_000))*time.Millisecond
	w.say("the link from %d to %d is clogged until %v", from, to, w.network.clogged[from][to])
}

// slowApply is how long a process is at nothing else when it applies n entries.
func (w *world) slowApply(n uint64) time.Duration {
	return time.Duration(w.later.Int64N(int64(min(n, 20) * uint64(10*time.Millisecond))))
}

// survives is the disk as a crash leaves it. All that was synced is there. Of what
// was only written, nothing is (a power cut), or everything (a kill), or what is in
// some kinds of files: Pebble's goroutines are not of this world, so dice for single
// files would not repeat.
func (m *simMember) survives(old *vfs.MemFS) *vfs.MemFS {
	if !m.w.faults.keeps {
		return old.CrashClone(vfs.CrashCloneCfg{})
	}
	kept := m.w.later.IntN(8)
	switch m.w.later.IntN(3) {
	case 0:
		kept = 0
	case 1:
		kept = 7
	}
	m.w.say("%d's disk keeps of what was not synced: %03b", m.n, kept)
	names, err := old.List("")
	if err != nil {
		m.w.fail("member %d: listing its disk: %v", m.n, err)
	}
	slices.Sort(names)
	for _, name := range names {
		m.keep(old, name, kept)
	}
	if kept&4 != 0 {
		m.sync(old.OpenDir(""))
	}
	return old.CrashClone(vfs.CrashCloneCfg{})
}

// keep syncs a file, if it is of a kind that is kept: the log, or anything else.
func (m *simMember) keep(disk *vfs.MemFS, name string, kept int) {
	kind := 2
	if strings.HasSuffix(name, ".log") {
		kind = 1
	}
	if kept&kind != 0 {
		m.sync(disk.Open(name))
	}
}

func (m *simMember) sync(f vfs.File, err error) {
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble may have removed it meanwhile
		m.w.fail("member %d: keeping what is on its disk: %v", m.n, err)
	}
}

// sickness is a disk that fails: every operation that would change it, from the
// beginning of some write on. The process dies of it, as in production the store
// passes nothing on any more, and what it had not synced is gone. Which operation
// is the first to fail is up to Pebble's goroutines, so all that follows is the
// same, whichever it is.
type sickness struct {
	after   int // writes from now on; 0: it is well
	failing atomic.Bool
}

var errSick = errors.New("the disk fails")

func (s *sickness) MaybeError(op errorfs.Op) error {
	if s.failing.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
		return errSick
	}
	return nil
}

func (s *sickness) String() string { return "sickness" }

// breaks says that the disk fails during the write that begins now.
func (s *sickness) breaks() bool {
	if s.after > 0 {
		s.after--
		s.failing.Store(s.after == 0)
	}
	return s.failing.Load()
}
