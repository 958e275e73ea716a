package sim

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// simMember is a member's part in a group. A process has one in each group, all on the same host.
type simMember struct {
	*host
	of        *simMember // in a further group: the same member in the default one
	sim       *simulation
	n         int                      // position in the simulation; its ID is n+1
	tainted   bool                     // a bit has flipped in its state, see flip_test.go
	recorded  map[uint64]core.Position // on disk: what others have acknowledged
	tokens    [][]byte                 // of succession; the last one is the present process's
	noTTLID   wire.ID                  // the session that outlives the process; zero: none was opened
	left      []leftSet                // sets that its processes asked for in that
	leftFence uint64                   // of the last one that a process was granted in it; 0: none
	leftRuns  []runKey                 // that its processes asked for in that session, and may have left in it
	process   *process                 // nil: down
}

// host is what a member has once: a disk, a clock, and its place among the members.
type host struct {
	rate           rate
	disk           *vfs.MemFS
	diskFault      *diskFault
	boot           uint64
	leaveRequested bool       // its removal is requested
	removed        bool       // it has learned of its removal and stopped
	destroyed      bool       // it is lost permanently
	absent         bool       // it has not joined yet
	endorsers      []endorser // the member that admitted it, behind those of that one
}

// process is one run of a member in a group. It drives the core as the loop and the writer do
// in production.
type process struct {
	*simMember
	*hostProcess
	log            *raftlog.Log
	core           *core.Core
	conf           *raftpb.ConfState // on the disk
	diskBusy       bool              // a batch is being written
	staging        bool
	fromDisk       bool    // tainted by its disk, unless the digest shows otherwise
	effectsPending bool    // the core has effects that were not taken yet
	incarnation    wire.ID // the first of this process
	acknowledged   core.Acknowledged
	vouched        map[int]uint64       // members for which others have vouched, up to an index
	delivered      map[wire.Ticket]bool // first outcomes that were delivered to this process
	program        *program
	remote         *remote // of a client's process, which has neither a core nor a disk; nil: a member's
	serving        serving
	durable        durable
	progress       progress
	checked        core.Position // the end of the log at the last checkChangesBehind
	feed           feed
	hosted         hostedGroups // in the default group: the further ones
	following      bool         // in a further group: what it follows is being submitted
	followed       []followed   // changes of sets of shards that the workers have not seen yet
	pace           core.Pace
	ticking        uint64 // how often the time between two ticks has changed
	agreed         agreed // to be quiet
}

// hostProcess is what a process has once, for all groups.
type hostProcess struct {
	store       *storage.Store
	number      uint64 // boot counter
	startedAt   time.Duration
	clockBase   time.Duration // reading of its clock at clockSetAt
	clockSetAt  time.Duration
	pausedUntil time.Duration
	crashPoint  crashPoint
	writes      []diskWrite // of all groups, that the disk has not begun
	writing     bool
	flushed     uint64       // bytes that the store had written when its table became a file
	lostDisk    *vfs.MemFS   // the disk as the crash leaves it, if that was before now
	budgets     core.Budgets // of its further groups
}

// crashPoint is a place in the loop at which the process is to crash.
type crashPoint int

const (
	crashNowhere      crashPoint = iota
	crashAfterTake               // effects were taken and none carried out
	crashBeforeWrite             // messages are sent and the write has not begun
	crashAfterWrite              // the write is durable and not reported
	crashWhileStaging            // a snapshot is half staged

	// In worlds with several groups.
	crashInWrite       // the first batch is written, and not synced
	crashBetweenWrites // the first batch is durable, and another one has not begun
	crashAtReport      // the groups act on the report of a write at once, and the disk is lost as it was then
)

func newSimMember(sim *simulation, n int) *simMember {
	return &simMember{
		host: &host{disk: vfs.NewCrashableMem(), diskFault: new(diskFault)},
		sim:  sim, n: n, tokens: [][]byte{nil}, recorded: make(map[uint64]core.Position),
	}
}

// id is the Raft ID.
func (m *simMember) id() uint64 { return uint64(m.n + 1) }

func (m *simMember) openDisk() (*storage.Store, *raftlog.Log) {
	store, err := storage.Open(storage.Options{FS: newFaultyFS(m.disk, m.diskFault), Inline: true, MemTableSize: maxTable})
	if err != nil {
		m.sim.fail("member %d: open the disk: %v", m.n, err)
	}
	log, err := raftlog.Open(store)
	if err != nil {
		m.sim.fail("member %d: open the log: %v", m.n, err)
	}
	return store, log
}

// bootstrap formats the disk for a new group of voters and standbys.
func (m *simMember) bootstrap(voters, standbys int) {
	store, log := m.openDisk()
	conf := &raftpb.ConfState{}
	for i := range voters {
		conf.Voters = append(conf.Voters, uint64(i+1))
	}
	for i := range standbys {
		conf.Learners = append(conf.Learners, uint64(voters+i+1))
	}
	state := m.sim.firstState()
	if err := errors.Join(log.BootstrapWith(conf, state, core.FirstDigest(state)), store.Close()); err != nil {
		m.sim.fail("bootstrap: %v", err)
	}
}

// firstMachine returns a machine with the state of the new group.
func (sim *simulation) firstMachine() *machine.Machine {
	m, err := machine.Load(func(yield func(key, value []byte) bool) {
		for _, c := range sim.firstState() {
			if !yield(c.Key, c.Value) {
				return
			}
		}
	})
	if err != nil {
		sim.fail("the first state: %v", err)
	}
	return m
}

// start starts a process on the disk as it is.
func (m *simMember) start() {
	m.boot++
	token := m.sim.newID()
	m.tokens = append(m.tokens, token[:])
	run := &hostProcess{number: m.boot, startedAt: m.sim.now, clockSetAt: m.sim.now, budgets: m.sim.budgets()}
	var log *raftlog.Log
	run.store, log = m.openDisk()
	m.startReplica(run, log, m.sim.newID(), m.boot == 1 && m.n == 0)
	if m.process != nil {
		m.process.openGroups()
	}
}

// startReplica starts the process's part in a group. first: it is to campaign at once.
func (m *simMember) startReplica(run *hostProcess, log *raftlog.Log, incarnation wire.ID, first bool) {
	proc := &process{
		simMember: m, hostProcess: run, log: log, incarnation: incarnation,
		vouched: make(map[int]uint64), delivered: make(map[wire.Ticket]bool),
	}
	proc.serving.process = proc
	proc.durable = proc.readDurable()
	for member, p := range m.recorded { // order: each has a row of its own
		proc.acknowledged.Load(member, p)
	}
	loaded, err := proc.load()
	switch {
	case m.tainted && errors.Is(err, machine.ErrCorrupt):
		m.refuseDirectory(proc.store, err)
		return
	case err != nil:
		m.sim.fail("member %d: load the machine: %v", m.n, err)
	}
	cfg := core.Config{
		ID: m.id(), Incarnation: incarnation, Log: proc.log, Machine: loaded,
		Tick: tick, ElectionTicks: electionTicks,
		Rand:   rand.New(rand.NewPCG(binary.BigEndian.Uint64(incarnation[:]), 0)),
		Logger: discardLogger, Keep: m.sim.faults.keepEntries, KeepBytes: 8 << 20, CheckpointEntries: m.sim.faults.checkpointEntries, MaxCalls: 100,
		MayRemove: proc.mayRemove, Quiet: m.of != nil,
	}
	if m.of != nil {
		cfg.Budgets = run.budgets
	}
	if proc.core, err = core.New(cfg); err != nil {
		m.sim.fail("member %d: %v", m.n, err)
	}
	m.process = proc
	proc.conf = proc.core.Status().Membership
	proc.progress = progress{term: proc.core.Status().Term, applied: proc.core.Status().Applied}
	m.sim.trace("member %d starts, boot %d, applied %d", m.n, m.boot, proc.core.Status().Applied)
	proc.core.CampaignFirst(first)
	proc.feed.reset(proc.core.Machine())
	proc.program = newProgram(proc)
	proc.fromDisk = m.tainted
	proc.after(m.sim.between(0, tick), proc.tick)
	proc.checkAdmitted()
	proc.step()
}

// refuseDirectory stands for Open: what a tainted process wrote does not load.
func (m *simMember) refuseDirectory(store *storage.Store, why error) {
	m.sim.trace("member %d cannot start: %v", m.n, why)
	m.sim.diverged++
	m.destroyed = true
	if err := store.Close(); err != nil {
		m.sim.fail("member %d: close the disk: %v", m.n, err)
	}
}

// crash ends the process. Its unsynced data is lost, or part of it.
func (m *simMember) crash(why string) {
	if m.of != nil {
		m.of.crash(why)
		return
	}
	proc := m.process
	if proc == nil {
		return
	}
	m.sim.trace("member %d crashes: %s", m.n, why)
	m.sim.crashes++
	m.process = nil
	m.sim.endReplicas(m.n)
	old := m.disk
	if m.disk = proc.lostDisk; m.disk == nil {
		m.disk = m.diskAfterCrash(old)
	}
	m.diskFault = &diskFault{} // the next process has a disk without faults
	_ = proc.store.Close()     // the old disk, which is not used any more
	proc.program.terminate()
	proc.serving.ended()
}

// stop shuts the process down in order.
func (m *simMember) stop() {
	proc := m.process
	m.process = nil
	proc.program.terminate()
	proc.serving.ended()
	proc.writeLast()
	for _, further := range m.sim.endReplicas(m.n) {
		further.writeLast()
	}
	if err := proc.store.Close(); err != nil {
		m.sim.fail("member %d: close the disk: %v", m.n, err)
	}
}

// writeLast writes the last checkpoint. A member waits for the write under way first. Here that is lost.
func (proc *process) writeLast() {
	if op, ok := proc.core.LastCheckpoint(); ok && !proc.diskBusy {
		if err := proc.log.Execute(op); err != nil {
			proc.sim.fail("member %d: write the last checkpoint: %v", proc.n, err)
		}
	}
}

func (proc *process) load() (core.Machine, error) {
	loaded, err := raftlog.Load(proc.log, machine.Load)
	return &observed{loaded, proc}, err
}

// after schedules an event of this process: it is dropped if the process has
// terminated, and postponed while it is paused.
func (proc *process) after(d time.Duration, run func()) {
	proc.sim.schedule(d, func() { proc.runIfAlive(run) })
}

func (proc *process) runIfAlive(run func()) {
	switch {
	case proc.process != proc: // terminated
	case proc.sim.now < proc.pausedUntil:
		proc.after(proc.pausedUntil-proc.sim.now, run)
	default:
		run()
	}
}

// post runs an event of the core. Like the loop, which drains the messages of
// peers, it sometimes takes the effects of several events together.
func (proc *process) post(run func(*core.Core)) {
	proc.runIfAlive(func() {
		run(proc.core)
		if proc.sim.chance(0.8) {
			proc.step()
		} else if !proc.effectsPending {
			proc.effectsPending = true
			proc.after(proc.sim.between(0, 2*time.Millisecond), proc.step)
		}
	})
}

func (proc *process) tick() {
	proc.core.Tick()
	proc.serving.renewClients()
	before := proc.ticking
	if !proc.pace.Skips(proc.core) {
		proc.step()
	}
	if proc.of != nil {
		proc.follow()
	} else {
		proc.reach()
	}
	proc.checkAdmitted()
	if proc.process == proc && proc.ticking == before {
		proc.tickLater()
	}
}

// tickLater schedules the next tick, unless the time until then changes.
func (proc *process) tickLater() {
	of := proc.ticking
	proc.after(time.Duration(proc.pace.Ticks())*proc.simulatedTime(tick), func() {
		if proc.ticking == of {
			proc.tick()
		}
	})
}

// pause stops the process for d, as a stopped virtual machine or a long garbage
// collection does: its clock continues.
func (proc *process) pause(d time.Duration) {
	proc.sim.trace("member %d pauses for %v", proc.n, d)
	proc.pausedUntil = proc.sim.now + d
}

// crashesAt crashes the process if this is its crash point.
func (proc *process) crashesAt(here crashPoint, why string) bool {
	if proc.crashPoint != here {
		return false
	}
	proc.crash(why)
	proc.sim.faults.restartLater(proc.simMember)
	return true
}

// step carries out the effects of the events since the last step.
func (proc *process) step() {
	if proc.process != proc {
		return
	}
	proc.effectsPending = false
	var out core.Effects
	var err error
	if proc.tainted {
		if out, err = proc.takeTainted(); err != nil {
			proc.taintedStopped(err)
			return
		}
	} else if out, err = proc.core.Take(proc.clock()); err != nil {
		proc.sim.fail("member %d: %v", proc.n, err)
	}
	if proc.crashesAt(crashAfterTake, "before any effect") {
		return
	}
	before := proc.progress.applied
	proc.learnCommit()
	out.Deliver(driver{proc})
	proc.serving.deliver()
	proc.settleLater()
	proc.keepPace()
	if proc.core.Status().Applied > before {
		proc.followQuiet()
	}
	if n := proc.core.Status().Applied - before; n > 0 && proc.sim.faults.slowApply && !proc.sim.draining {
		proc.pausedUntil = max(proc.pausedUntil, proc.sim.now+proc.sim.applyDelay(n))
	}
	if proc.crashPoint == crashBeforeWrite && proc.diskBusy {
		proc.crashesAt(crashBeforeWrite, "before the write")
	}
}
