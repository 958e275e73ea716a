package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/raftlog"
)

// The writes of a process. What its groups have submitted by the time when the disk is ready goes through the production raftlog as what has waited for the
// storage goroutine: small writes share a batch and its sync, and large ones of a log that shares the disk have several batches.

// diskWrite is a batch of a group that waits for the disk.
type diskWrite struct {
	process *process
	batch   core.Batch
}

// isSynced reports whether the batch has entries, so that a sync follows.
func (w diskWrite) isSynced() bool {
	return slices.ContainsFunc(w.batch.Ops(), func(op raftlog.Op) bool { a, ok := op.(raftlog.Append); return ok && len(a.Entries) > 0 })
}

// diskCounts counts what happened in worlds with several groups, for the summary: batches with writes of several groups, and crashes in them, between
// them, and between two with parts of one write.
type diskCounts struct{ shared, crashedInside, crashedBetween, crashedBetweenParts, crashedAtReport int }

func (c *diskCounts) add(other diskCounts) {
	c.shared += other.shared
	c.crashedBetweenParts += other.crashedBetweenParts
	c.crashedInside += other.crashedInside
	c.crashedBetween += other.crashedBetween
	c.crashedAtReport += other.crashedAtReport
}

func (c diskCounts) occurred() bool {
	return c.shared > 0 && c.crashedInside > 0 && c.crashedBetween > 0 && c.crashedAtReport > 0
}

// disks is what the disks of all members have in common.
type disks struct {
	slow   bool
	rng    *rand.Rand // of a world with several groups; else nil
	counts diskCounts
}

// crashRNG returns a random stream for the crash points of worlds with several groups.
func (sim *simulation) crashRNG() *rand.Rand { return rand.New(rand.NewPCG(sim.seed, 10)) }

// chooseCrashPoint draws where the process is to crash. In worlds with several groups it is mostly in what they do together.
func (proc *process) chooseCrashPoint() {
	sim := proc.sim
	proc.crashPoint = 1 + crashPoint(sim.rng.IntN(int(crashWhileStaging)))
	if rng := sim.disks.rng; rng != nil && rng.IntN(2) == 0 {
		proc.crashPoint = crashInWrite + crashPoint(rng.IntN(3))
	}
}

// beginWriting has the disk write what the groups of the process have submitted by the time when it is ready.
func (proc *process) beginWriting() {
	proc.writing = true
	host := proc
	if proc.of != nil {
		host = proc.of.process
	}
	host.after(proc.sim.diskDelay(), host.writeAll)
}

// writeAll writes what all groups have submitted.
func (proc *process) writeAll() {
	proc.writing = false
	proc.flushTable()
	w := &writing{process: proc, failed: proc.diskFault.failsNow()}
	w.taken = slices.DeleteFunc(proc.writes, func(w diskWrite) bool { return w.process.process != w.process }) // of a deleted group
	proc.writes = nil
	if w.inside = proc.crashPoint == crashInWrite && slices.ContainsFunc(w.taken, diskWrite.isSynced); w.inside {
		proc.diskFault.unsynced.Store(true)
	}
	w.write()
	w.finish()
}

// tableBytes is after how many bytes a table in memory becomes a file. It is never full before.
const (
	tableBytes = 48 << 10
	maxTable   = 1 << 20
)

// flushTable does what Pebble does when its table is full, which depends on chance: the towers of its skip list are drawn. What was not synced before is
// durable from then on, so that a run could not be repeated.
func (proc *process) flushTable() {
	db, unpin, err := proc.store.Pin()
	if err != nil {
		proc.sim.fail("member %d: %v", proc.n, err)
		return
	}
	defer unpin()
	written := logBytes(db)
	if written < proc.flushed+tableBytes {
		return
	}
	proc.flushed = written
	if err := db.Flush(); err != nil {
		proc.sim.fail("member %d: flush: %v", proc.n, err)
	}
}

// writing is one turn of the disk.
type writing struct {
	*process
	taken    []diskWrite
	failed   bool // the disk fails
	inside   bool // the process crashes while it syncs the first batch
	reported []report
	crashed  *vfs.MemFS // the disk at a crash
	parts    bool       // the process crashes between two parts of a write
}

// report is what a group does when its write is reported.
type report struct {
	of  *process
	run func()
}

// write has the storage goroutine write.
func (w *writing) write() {
	tasks := w.store.Gather(func() {
		for _, d := range w.taken {
			d.process.log.Submit(d.batch.Ops(), func(err error) { w.done(d, err) })
		}
	})
	for i, task := range tasks {
		before, bytes := len(w.reported), w.bytes()
		task()
		if len(w.reported)-before > 1 {
			w.sim.disks.counts.shared++
		}
		if w.crashed != nil {
			return
		}
		if w.crashPoint == crashBetweenWrites && i+1 < len(tasks) && len(w.reported) < len(w.taken) && w.bytes() > bytes {
			w.parts = len(w.reported) == before
			return
		}
	}
}

// bytes returns how many bytes the store has written, synced or not, if the process is to crash between two batches.
func (w *writing) bytes() uint64 {
	if w.crashPoint != crashBetweenWrites {
		return 0
	}
	db, unpin, err := w.store.Pin()
	if err != nil {
		w.sim.fail("member %d: %v", w.n, err)
		return 0
	}
	defer unpin()
	return logBytes(db)
}

// logBytes returns how many bytes the database has written to its log, synced or not.
func logBytes(db *pebble.DB) uint64 { return db.Metrics().WAL.BytesIn }

// done reports a write. Nothing may be reported when the batch is not on the disk, whichever group's it is.
func (w *writing) done(d diskWrite, err error) {
	switch {
	case err != nil:
		w.sim.fail("member %d: write: %v", w.n, err)
	case (w.failed || w.inside) && d.isSynced():
		d.process.sim.fail("member %d: a write is reported, and the disk has failed", w.n)
	case w.failed || w.inside:
		return
	case w.crashPoint == crashAtReport && w.crashed == nil && d.isSynced():
		w.crashed = w.diskAfterCrash(w.disk)
	}
	d.process.durable.wrote(d.batch)
	var installed core.Machine
	if d.batch.Installs() {
		if installed, err = d.process.load(); err != nil {
			w.sim.fail("member %d: load the installed machine: %v", w.n, err)
		}
	}
	w.reported = append(w.reported, report{d.process, func() {
		d.process.diskBusy = false
		d.process.core.Stored(installed)
		d.process.step()
	}})
}

// finish has the groups learn what was reported, or the process crash.
func (w *writing) finish() {
	counts := &w.sim.disks.counts
	switch {
	case w.failed: // as Store.Go: not even a success is reported
		w.endBy("disk fault")
	case w.inside:
		counts.crashedInside++
		w.endBy("while it syncs")
	case w.crashed != nil: // the groups were faster than the power loss, which the disk has seen at the first report
		counts.crashedAtReport++
		for _, report := range w.reported {
			report.of.runIfAlive(report.run)
		}
		w.lostDisk = w.crashed
		w.endBy("as a write is reported")
	case len(w.reported) < len(w.taken):
		counts.crashedBetween++
		counts.crashedBetweenParts += btoi(w.parts)
		w.endBy("between two batches")
	case w.crashesAt(crashAfterWrite, "after the write"):
	default:
		for _, report := range w.reported {
			report.of.after(report.of.sim.between(0, time.Millisecond), report.run)
		}
	}
}

func (proc *process) endBy(why string) {
	proc.crash(why)
	proc.sim.faults.restartLater(proc.simMember)
}
