package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// shardWorker is a handle of a session that works on shards of a set, as Shards.Run does: it joins, follows the set, works on what it is
// granted, releases what is to move, and leaves.
type shardWorker struct {
	session   *simSession
	n         uint64
	kept      bool // the session has no TTL, and a later process may attach it
	state     workerState
	set       string
	count     uint32
	tasks     []*shardTask
	ended     map[uint32]uint64 // by shard: the largest fence under which its work has ended here
	releasing bool
	asking    bool
	stale     bool   // the set is to be read again
	viewed    uint64 // index of the state that was read last, on the own member
	leaves    bool   // a LeaveShards is in flight
	changes   int    // of the set's count in the log, when it asked to join
}

type workerState int

const (
	absentWorker workerState = iota
	joiningWorker
	presentWorker
	leavingWorker
)

// The sets. Later processes of a session without a TTL join the first.
var shardSets = []string{"shards-0", "shards-1"}

// works is what processes know of their work on shards, whatever the log says.
type works struct {
	counts     map[string]uint32    // of sets, as processes believe them agreed
	changes    map[string]int       // of their counts, in the log
	resizes    map[string]int       // that processes have asked for
	last       map[shardName]uint64 // the largest fence under which a process has worked that trusted its session
	resources  map[shardName]*shardTask
	lastHandle uint64
	disturbed  int // processes that crashed with shards, and sessions that were closed with some
}

// shardName is a shard of a set.
type shardName struct {
	set    string
	number uint32
}

// Most of what makes runs longer or sets restless: crashes and closes, and changes of a count.
const (
	mostUpset   = 4
	mostResizes = 3
)

func newWorks() works {
	return works{
		counts: make(map[string]uint32), changes: make(map[string]int), resizes: make(map[string]int), last: make(map[shardName]uint64),
		resources: make(map[shardName]*shardTask),
	}
}

// addWorkers has the session work on shards, if the processes of this world do. Sessions of a host have one name, or none.
func (s *simSession) addWorkers(n int, kept bool) {
	p := s.program
	if !p.sim.faults.shards {
		return
	}
	if p.n%3 != 2 || p.remote != nil {
		s.name = fmt.Sprint("worker-", p.n)
	}
	for range n {
		w := &shardWorker{session: s, kept: kept, ended: make(map[uint32]uint64)}
		s.workers, p.workers = append(s.workers, w), append(p.workers, w)
	}
}

// actWorkers has one of the workers act at times.
func (s *simSession) actWorkers() {
	p := s.program
	if len(s.workers) == 0 || p.gateway.level() < wire.LevelShards || p.sim.shardsRNG.IntN(2) == 0 {
		return
	}
	s.workers[p.sim.shardsRNG.IntN(len(s.workers))].act()
}

// act does one of the things that the current state permits.
func (w *shardWorker) act() {
	sim := w.session.program.sim
	rng := sim.shardsRNG
	switch w.state {
	case absentWorker:
		if pending := w.leaves || w.releasing || w.asking; !pending && (sim.draining || rng.IntN(8) == 0) {
			w.join()
		}
		return
	case joiningWorker:
		return
	}
	w.read()
	w.work()
	w.release()
	if w.state == presentWorker && !sim.draining {
		w.disturb()
	}
}

// disturb ends something that could go on.
func (w *shardWorker) disturb() {
	p := w.session.program
	sim, rng := p.sim, p.sim.shardsRNG
	switch n := rng.IntN(400); {
	case n < 2:
		w.leave()
	case n < 5 && len(w.tasks) > 0: // it gives a shard up
		w.tasks[rng.IntN(len(w.tasks))].end()
	case n < 7 && sim.works.resizes[w.set] < mostResizes && rng.IntN(3) == 0:
		w.resize()
	case len(w.tasks) == 0 || sim.works.disturbed >= mostUpset:
	case sim.faults.crashes && n < 9:
		sim.works.disturbed++
		p.crashHolding("shards")
	case sim.faults.forcedCloses && n < 10:
		sim.works.disturbed++
		p.forceClose(w.session.id, rng.IntN(4) == 0, func() {})
	}
}

// join joins a set, with a count that is wrong at times.
func (w *shardWorker) join() {
	p := w.session.program
	sim, rng := p.sim, p.sim.shardsRNG
	w.set = shardSets[0]
	if !w.kept {
		w.set = shardSets[rng.IntN(len(shardSets))]
	}
	if sim.works.counts[w.set] == 0 {
		sim.works.counts[w.set] = 1 + rng.Uint32N(40)
	}
	w.count = sim.works.counts[w.set]
	if !sim.draining && rng.IntN(20) == 0 {
		w.count = 1 + rng.Uint32N(40)
	}
	sim.works.lastHandle++
	if w.n = sim.works.lastHandle; w.kept && rng.IntN(2) == 0 {
		w.n = 1_000_000 // that of an earlier process too
	}
	capacity, settle := uint32(1), int64(randomDuration(rng, 4*time.Second))
	if rng.IntN(3) == 0 {
		capacity = 1 + rng.Uint32N(4)
	}
	if rng.IntN(5) == 0 {
		settle = 0
	}
	w.state, w.changes, w.viewed, w.stale = joiningWorker, sim.works.changes[w.set], 0, true
	p.submit(&wire.Command{Op: &wire.Command_JoinShards{JoinShards: &wire.JoinShards{
		Set: w.set, Count: w.count, Session: w.session.id[:], Handle: w.n, Capacity: capacity, Settle: settle,
	}}}, false, w.joined)
}

func (w *shardWorker) joined(reply *wire.Reply) {
	sim := w.session.program.sim
	switch w.state = absentWorker; {
	case reply == nil:
	case reply.GetCode() == wire.Code_OK && reply.GetLimit() == w.count:
		w.state = presentWorker
	case reply.GetCode() == wire.Code_LIMIT_MISMATCH && reply.GetLimit() != w.count:
		sim.works.counts[w.set] = reply.GetLimit()
	default:
		w.checkRefusal(reply)
	}
}

// leave ends the work: what the worker has it releases one by one.
func (w *shardWorker) leave() {
	w.state, w.leaves = leavingWorker, true
	for _, t := range w.tasks {
		t.end()
	}
	w.session.program.submit(&wire.Command{Op: &wire.Command_LeaveShards{LeaveShards: &wire.LeaveShards{
		Set: w.set, Session: w.session.id[:], Handle: w.n,
	}}}, true, func(reply *wire.Reply) {
		w.leaves, w.stale = false, true
		switch {
		case reply == nil && w.state == leavingWorker: // it may not have been sent: then the worker is found to be there still
			w.state = presentWorker
		case reply != nil && reply.GetCode() != wire.Code_OK && !(reply.GetCode() == wire.Code_NOT_HELD && w.wasResized()):
			w.checkRefusal(reply)
		}
	})
}

// wasResized reports whether the count of the set has changed since the worker joined: it may have been removed.
func (w *shardWorker) wasResized() bool {
	return w.session.program.sim.works.changes[w.set] > w.changes
}

func (w *shardWorker) resize() {
	p := w.session.program
	count := 1 + p.sim.shardsRNG.Uint32N(40)
	p.sim.works.resizes[w.set]++
	p.sim.works.counts[w.set] = count
	p.submit(&wire.Command{Op: &wire.Command_ResizeShards{ResizeShards: &wire.ResizeShards{Set: w.set, Count: count}}}, false, func(*wire.Reply) {})
}

// checkRefusal accepts an outcome only if the session has ended or the registration has expired.
func (w *shardWorker) checkRefusal(reply *wire.Reply) {
	s, p := w.session, w.session.program
	switch reply.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_NOT_HELD:
		if _, alive := liveSession(p.sim.history.oracle, s.id); !alive || !registered(p.sim.history.oracle, s.incarnation) {
			return
		}
	}
	p.sim.fail("member %d: worker %d of %s, state %d: %v", p.n, w.n, w.set, w.state, reply)
}

// workersAtRest reports whether all workers of the process work on all that they have, and on nothing else.
func (p *program) workersAtRest() bool {
	if !p.sim.faults.shards {
		return true
	}
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s != nil && slices.ContainsFunc(s.workers, func(w *shardWorker) bool { return !w.atRest() }) {
			return false
		}
	}
	return len(p.strays) == 0
}

func (w *shardWorker) atRest() bool {
	if w.state != presentWorker || w.releasing || w.asking {
		return false
	}
	set := w.session.program.sim.history.audit.shards.sets[w.set]
	if set == nil {
		return false
	}
	own := set.find(w.session.id, w.n)
	owned, _ := set.owned(own)
	return own != nil && owned == len(w.tasks) && !slices.ContainsFunc(w.tasks, func(t *shardTask) bool {
		return t.state != workUnderWay || set.shards[t.shard].owner != own || set.shards[t.shard].fence != t.fence
	})
}
