package sim

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// simMember is a member: a disk, and at times a process that runs on it.
type simMember struct {
	w     *world
	n     int // in the world; its ID is n+1
	rate  rate
	disk  *vfs.MemFS
	sick  *sickness
	asked bool // to leave
	gone  bool // it has left
	dead  bool // it will not come back
	boot  uint64
	kept  wire.ID // the session that outlives the process; zero: none was asked for
	life  *life   // nil: down
}

// life is one run of a member's process. It drives the core as the loop and the
// writer do in production.
type life struct {
	*simMember
	store    *storage.Store
	log      *raftlog.Log
	core     *core.Core
	conf     *raftpb.ConfState // on the disk
	began    time.Duration
	read     time.Duration // its clock
	readAt   time.Duration // when it was set to that
	wakes    time.Duration // paused until then
	busy     bool          // a batch is on its way to the disk
	staging  bool
	pending  bool                 // events are in the core whose effects were not taken yet
	answered map[wire.Ticket]bool // first outcomes that this process has seen
	doom     doom
	program  *program
	durable  durable
	seen     marks
	feed     feed
}

// doom is a place in the loop at which the process will die.
type doom int

const (
	doomNone    doom = iota
	doomTake         // effects were taken, nothing of them was done
	doomWrite        // the messages are out, the write was not begun
	doomStored       // the write is durable, nobody knows yet
	doomStaging      // a snapshot lies half staged
)

func newSimMember(w *world, n int) *simMember {
	return &simMember{w: w, n: n, disk: vfs.NewCrashableMem(), sick: new(sickness)}
}

func (m *simMember) id() uint64 { return uint64(m.n + 1) }

func (m *simMember) open() (*storage.Store, *raftlog.Log) {
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(m.disk, m.sick), Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		m.w.fail("member %d: opening the disk: %v", m.n, err)
	}
	log, err := raftlog.Open(store, group)
	if err != nil {
		m.w.fail("member %d: opening the log: %v", m.n, err)
	}
	return store, log
}

func (m *simMember) bootstrap(n int) {
	store, log := m.open()
	conf := &raftpb.ConfState{}
	for i := range n {
		conf.Voters = append(conf.Voters, uint64(i+1))
	}
	if err := errors.Join(log.Bootstrap(conf), store.Close()); err != nil {
		m.w.fail("bootstrap: %v", err)
	}
}

func (m *simMember) start() {
	m.boot++
	l := &life{simMember: m, began: m.w.now, readAt: m.w.now, answered: make(map[wire.Ticket]bool)}
	l.store, l.log = m.open()
	l.durable = l.found()
	incarnation := m.w.id()
	var err error
	l.core, err = core.New(core.Config{
		ID: m.id(), Incarnation: incarnation, Log: l.log, Machine: l.load(),
		Tick: tick, ElectionTicks: electionTicks,
		Rand:   rand.New(rand.NewPCG(binary.BigEndian.Uint64(incarnation[:]), 0)),
		Logger: quiet, Keep: m.w.faults.keep, KeepBytes: 8 << 20, MaxCalls: 100,
	})
	if err != nil {
		m.w.fail("member %d: %v", m.n, err)
	}
	m.life = l
	l.conf = l.core.Status().Membership
	l.seen = marks{term: l.core.Status().Term, applied: l.core.Status().Applied}
	m.w.say("%d starts, boot %d, applied %d", m.n, m.boot, l.core.Status().Applied)
	l.core.CampaignFirst(m.boot == 1 && m.n == 0)
	l.feed.begins(l.core.Machine())
	l.program = newProgram(l)
	l.at(m.w.between(0, tick), l.tick)
	l.step()
}

// crash ends the process; what it had not synced is gone, or part of it.
func (m *simMember) crash(why string) {
	l := m.life
	if l == nil {
		return
	}
	m.w.say("%d crashes: %s", m.n, why)
	m.w.crashes++
	m.life = nil
	old := m.disk
	m.disk = m.survives(old)
	m.sick = &sickness{} // a new life has a disk that is well
	_ = l.store.Close()  // on the old disk, which nobody looks at any more
	l.program.dies()
}

// stop ends the process in good order.
func (m *simMember) stop() {
	l := m.life
	m.life = nil
	l.program.dies()
	if err := l.store.Close(); err != nil {
		m.w.fail("member %d: closing the disk: %v", m.n, err)
	}
}

func (l *life) load() core.Machine {
	loaded, err := raftlog.Load(l.log, machine.Load)
	if err != nil {
		l.w.fail("member %d: loading the machine: %v", l.n, err)
	}
	return &observed{loaded, l}
}

// at plans something of this process: it does not happen when the process has
// died, and later when it is paused.
func (l *life) at(d time.Duration, run func()) {
	l.w.after(d, func() { l.happen(run) })
}

func (l *life) happen(run func()) {
	switch {
	case l.life != l: // died
	case l.w.now < l.wakes:
		l.at(l.wakes-l.w.now, run)
	default:
		run()
	}
}

// event has the core do something. Like the loop, which drains what peers have
// sent, it sometimes takes the effects of several events together.
func (l *life) event(run func(*core.Core)) {
	l.happen(func() {
		run(l.core)
		if l.w.chance(0.8) {
			l.step()
		} else if !l.pending {
			l.pending = true
			l.at(l.w.between(0, 2*time.Millisecond), l.step)
		}
	})
}

func (l *life) tick() {
	l.core.Tick()
	l.step()
	l.dial()
	if l.life == l {
		l.at(l.lasts(tick), l.tick)
	}
}

func (l *life) pause(d time.Duration) {
	l.w.say("%d pauses for %v", l.n, d)
	l.wakes = l.w.now + d
}

// doomed lets the process die if this is the place.
func (l *life) doomed(here doom, why string) bool {
	if l.doom != here {
		return false
	}
	l.crash(why)
	l.w.faults.restartLater(l.simMember)
	return true
}

// step carries out what the events since the last step have led to.
func (l *life) step() {
	if l.life != l {
		return
	}
	l.pending = false
	out, err := l.core.Take(l.clock())
	if err != nil {
		l.w.fail("member %d: %v", l.n, err)
	}
	if l.doomed(doomTake, "before anything was carried out") {
		return
	}
	before := l.seen.applied
	out.Deliver(driver{l})
	if n := l.core.Status().Applied - before; n > 0 && l.w.faults.busy && !l.w.calm {
		l.wakes = max(l.wakes, l.w.now+l.w.slowApply(n))
	}
	if l.doom == doomWrite && l.busy {
		l.doomed(doomWrite, "before the write")
	}
}

// marks are what only ever grows.
type marks struct{ term, applied, commit uint64 }

// watch runs after each event.
func (m *simMember) watch() {
	l := m.life
	if l == nil {
		return
	}
	status := l.core.Status()
	now := marks{status.Term, status.Applied, status.Commit}
	if now.term < l.seen.term || now.applied < l.seen.applied || now.commit < l.seen.commit || now.commit < now.applied {
		m.w.fail("member %d went from %+v to %+v", m.n, l.seen, now)
	}
	l.seen = now
	m.w.history.digest(l)
	if status.Leads {
		m.w.history.leads(status.Term, m.n)
	}
}
