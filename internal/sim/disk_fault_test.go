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

// diskDelay is how long a write takes.
func (sim *simulation) diskDelay() time.Duration {
	switch {
	case sim.disks.slow && sim.chance(0.01): // it hangs
		return sim.between(time.Second, 3*time.Second)
	case sim.disks.slow:
		return sim.between(0, 300*time.Millisecond)
	}
	return sim.between(0, 3*time.Millisecond)
}

// diskAfterCrash returns the disk as a crash leaves it, with all synced data. Of
// unsynced data it has none (power loss), all (a kill), or that of some kinds of
// files: Pebble's goroutines are not simulated, so a choice by file would not be
// repeatable.
func (m *simMember) diskAfterCrash(old *vfs.MemFS) *vfs.MemFS {
	if !m.sim.faults.keepsUnsynced {
		return old.CrashClone(vfs.CrashCloneCfg{})
	}
	kept := m.sim.extraRNG.IntN(8) // a bit each: the WAL, other files, the directory
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
	unsynced   atomic.Bool // only what syncs the write-ahead log fails
}

var errDiskFault = errors.New("disk fault")

func (f *diskFault) MaybeError(op errorfs.Op) error {
	if f.failing.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
		return errDiskFault
	}
	if f.unsynced.Load() && strings.HasSuffix(op.Path, ".log") {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			return errDiskFault
		}
	}
	return nil
}

func (f *diskFault) String() string { return "disk fault" }

// faultyFS is a file system with the faults of a disk. Those of errorfs spare a file that is used again, as Pebble does with write-ahead logs.
type faultyFS struct{ vfs.FS }

func newFaultyFS(disk vfs.FS, f *diskFault) faultyFS { return faultyFS{errorfs.Wrap(disk, f)} }

func (f faultyFS) ReuseForWrite(before, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(before, name); err != nil {
		return nil, err
	}
	return f.OpenReadWrite(name, category)
}

// failsNow reports whether the disk fails during the write that begins now.
func (f *diskFault) failsNow() bool {
	if f.writesLeft > 0 {
		f.writesLeft--
		f.failing.Store(f.writesLeft == 0)
	}
	return f.failing.Load()
}
