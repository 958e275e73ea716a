package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// diskWrite is a batch of a group that waits for the disk.
type diskWrite struct {
	process *process
	batch   core.Batch
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

// writeAll writes what all groups have submitted. In production that is one batch with one sync (raftlog/journal.go); here the
// batches follow each other, and nothing happens in between.
func (proc *process) writeAll() {
	proc.writing = false
	taken := slices.DeleteFunc(proc.writes, func(w diskWrite) bool { return w.process.process != w.process }) // of a deleted group
	proc.writes = nil
	failed := proc.diskFault.failsNow()
	for _, w := range taken {
		if err := w.process.log.Write(w.batch.Ops()); err != nil && !failed {
			proc.sim.fail("member %d: write: %v", proc.n, err)
		}
	}
	if failed { // as Store.Go: not even a success is reported
		proc.crash("disk fault")
		proc.sim.faults.restartLater(proc.simMember)
		return
	}
	installed := make([]core.Machine, len(taken))
	for i, w := range taken {
		w.process.durable.wrote(w.batch)
		if w.batch.Installs() {
			var err error
			if installed[i], err = w.process.load(); err != nil {
				proc.sim.fail("member %d: load the installed machine: %v", proc.n, err)
			}
		}
	}
	if proc.crashesAt(crashAfterWrite, "after the write") {
		return
	}
	for i, w := range taken {
		w.process.after(w.process.sim.between(0, time.Millisecond), func() {
			w.process.diskBusy = false
			w.process.core.Stored(installed[i])
			w.process.step()
		})
	}
}
