package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// shardTask is the work on a shard under one fence.
type shardTask struct {
	worker *shardWorker
	set    string // that of the worker at the beginning; it may join another one while stray work goes on (seed 40182)
	shard  uint32
	fence  uint64
	state  taskState
	lost   bool // it has been released although the work goes on
	// A release had no outcome, as the registration of the process has expired: the group may have carried it out (seed 6002105).
	maybeReleased bool
}

// mustBeOwned reports whether the group has the worker as the owner in any case.
func (t *shardTask) mustBeOwned() bool { return t.state <= workEnded && !t.maybeReleased }

type taskState int

const (
	workUnderWay  taskState = iota
	workEnding              // its context has ended, and it has not returned yet
	workEnded               // to be released
	workReleasing           // a ReleaseShards is in flight
)

// longestWork is how long work goes on after its context has ended.
const longestWork = 600 * time.Millisecond

func (t *shardTask) name() shardName { return shardName{t.set, t.shard} }

// learn handles that the worker has a shard under a fence. A fence whose work has ended here never begins again.
func (w *shardWorker) learn(shard uint32, fence uint64, moving bool) {
	sim := w.session.program.sim
	i := slices.IndexFunc(w.tasks, func(t *shardTask) bool { return t.shard == shard && t.fence == fence })
	switch {
	case i >= 0:
		if moving {
			w.tasks[i].end()
		}
		return
	case fence <= w.ended[shard]:
		sim.shards.late++
		return
	}
	t := &shardTask{worker: w, set: w.set, shard: shard, fence: fence}
	for _, o := range w.tasks {
		if o.shard == shard && o.state != workReleasing {
			sim.fail("member %d: shard %d of %s is granted with fence %d, and was with %d", w.session.program.n, shard, w.set, fence, o.fence)
		}
	}
	w.tasks = append(w.tasks, t)
	if moving || w.state == leavingWorker {
		t.state = workEnded
		sim.shards.unbegun++
		return
	}
	sim.checkWork(t)
	t.write()
}

// end ends the context of the work, which returns some time later. At times it does not, and is given up.
func (t *shardTask) end() {
	if t.state != workUnderWay {
		return
	}
	t.state = workEnding
	p := t.worker.session.program
	t.lost = p.sim.shardsRNG.IntN(10) == 0
	p.after(p.simulatedTime(randomDuration(p.sim.shardsRNG, longestWork)), func() {
		if t.state == workEnding {
			t.state = workEnded
		}
		if t.lost { // the work goes on, as does that of a session that is lost
			p.strays = append(p.strays, &shardTask{worker: t.worker, set: t.set, shard: t.shard, fence: t.fence, state: workEnding, lost: true})
		}
	})
}

// release releases what has ended. One release is in flight at a time.
func (w *shardWorker) release() {
	p := w.session.program
	first := slices.IndexFunc(w.tasks, func(t *shardTask) bool { return t.state == workEnded })
	if first < 0 || w.releasing || p.sim.shardsRNG.IntN(3) == 0 {
		return
	}
	c := &wire.ReleaseShards{Set: w.set, Session: w.session.id[:], Handle: w.n, Lost: w.tasks[first].lost}
	var released []*shardTask
	for _, t := range w.tasks {
		if t.state == workEnded && t.lost == c.Lost {
			t.state = workReleasing
			released = append(released, t)
			c.Shards, c.Fences = append(c.Shards, t.shard), append(c.Fences, t.fence)
			w.ended[t.shard] = max(w.ended[t.shard], t.fence)
		}
	}
	w.releasing = true
	p.submit(&wire.Command{Op: &wire.Command_ReleaseShards{ReleaseShards: c}}, true, func(reply *wire.Reply) {
		w.releasing = false
		switch {
		case reply == nil:
			for _, t := range released {
				t.state, t.maybeReleased = workEnded, true
			}
			return
		case reply.GetCode() != wire.Code_OK:
			w.checkRefusal(reply)
		}
		w.tasks = slices.DeleteFunc(w.tasks, func(t *shardTask) bool { return slices.Contains(released, t) })
	})
}

// work has one of the works write to its resource.
func (w *shardWorker) work() {
	if len(w.tasks) > 0 {
		if t := w.tasks[w.session.program.sim.shardsRNG.IntN(len(w.tasks))]; t.state <= workEnding {
			t.write()
		}
	}
}

// actLost has the works of lost sessions go on for a while, as processes may that have not noticed.
func (p *program) actLost() {
	if len(p.workers) == 0 && len(p.strays) == 0 {
		return
	}
	rng := p.sim.shardsRNG
	p.workers = slices.DeleteFunc(p.workers, func(w *shardWorker) bool {
		lost := w.session.lost || w.session != p.session && w.session != p.noTTL
		for _, t := range w.tasks {
			if lost && t.state <= workEnding {
				p.strays = append(p.strays, t)
			}
		}
		return lost
	})
	if len(p.strays) > 0 {
		i := rng.IntN(len(p.strays))
		if p.strays[i].write(); rng.IntN(8) == 0 || p.sim.draining {
			p.strays = slices.Delete(p.strays, i, i+1)
		}
	}
}

// trustsWork reports whether the process works on the shard, and relies on its session.
func (t *shardTask) trustsWork() bool {
	return t.state <= workEnding && !t.lost && t.worker.session.trusted()
}

// checkWork runs when a process begins to work on a shard: no other process trusts such work, by its own clock, unless clocks are
// coarse, and fences ascend.
func (sim *simulation) checkWork(t *shardTask) {
	if !t.trustsWork() {
		return
	}
	p, name := t.worker.session.program, t.name()
	for _, m := range sim.allHosts() {
		if m.process == nil {
			continue
		}
		for _, w := range m.process.program.workers {
			for _, o := range w.tasks {
				if o != t && o.name() == name && o.trustsWork() {
					sim.fail("%d.%d and %d.%d both work on %v, with fences %d and %d", p.n, t.worker.n, m.n, w.n, name, t.fence, o.fence)
				}
			}
		}
	}
	if last := sim.works.last[name]; t.fence < last || t.fence == last && !t.worker.kept {
		sim.fail("%d.%d works on %v with fence %d, which is not above %d", p.n, t.worker.n, name, t.fence, last)
	}
	sim.works.last[name] = t.fence
	sim.shards.begun++
	sim.trace("%d.%d works on %v, fence %d", p.n, t.worker.n, name, t.fence)
}

// write writes to the external resource of the shard, which refuses fences that are smaller than one that it has seen.
func (t *shardTask) write() {
	sim, name := t.worker.session.program.sim, t.name()
	last := sim.works.resources[name]
	switch {
	case last == nil || t.fence > last.fence:
		sim.works.resources[name] = t
	case t.fence < last.fence:
		if sim.shards.refused++; t.trustsWork() {
			sim.fail("a write to %v with fence %d is refused, as there was %d", name, t.fence, last.fence)
		}
	case t.worker.session.id != last.worker.session.id:
		sim.fail("sessions %s and %s write to %v, both with fence %d", t.worker.session.id, last.worker.session.id, name, t.fence)
	}
}
