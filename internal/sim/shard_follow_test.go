package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
)

// noteShards passes on, some time later, what an entry has changed of sets of shards: the workers of a member follow it.
func (proc *process) noteShards(index uint64, changes []fact.ShardChange) {
	if len(changes) == 0 || proc.program == nil {
		return
	}
	proc.followed = append(proc.followed, followed{index, changes})
	proc.after(randomDuration(proc.sim.shardsRNG, 20*time.Millisecond), func() {
		all := proc.followed
		proc.followed = nil
		for _, f := range all {
			for _, w := range proc.program.workers {
				w.changed(f)
			}
		}
	})
}

// followed is what an entry has changed of sets.
type followed struct {
	index   uint64
	changes []fact.ShardChange
}

// changed handles what is newer than the state that was read last.
func (w *shardWorker) changed(f followed) {
	if f.index <= w.viewed || w.state != presentWorker && w.state != leavingWorker {
		return
	}
	for _, c := range f.changes {
		switch {
		case c.Set != w.set:
		case c.All:
			w.stale = true
		case c.Session == w.session.id && c.Handle == w.n:
			w.learn(c.Shard, c.Fence, c.Moving)
		}
	}
}

// followAgain has the workers read their sets again: changes may have been skipped.
func (p *program) followAgain() {
	for _, w := range p.workers {
		w.stale = true
	}
}

// read reads the set, if it is time. Those of clients do so again and again, as they get no changes; so does a worker that
// has left and has nothing to release, as no change follows from which it would learn that it is not of the set any more.
func (w *shardWorker) read() {
	p := w.session.program
	often := 60
	if p.remote != nil {
		often = 5
	}
	leftWithNothing := w.state == leavingWorker && len(w.tasks) == 0
	if w.asking || w.leaves || !w.stale && !leftWithNothing && p.sim.shardsRNG.IntN(often) > 0 {
		return
	}
	w.asking, w.stale = true, false
	before := slices.Clone(w.tasks)
	p.query(machine.ShardsQuery{Name: w.set}, func(answer any) {
		v, _ := answer.(*machine.ShardsView)
		if p.remote == nil {
			w.viewed = p.core.Status().Applied
			w.answered(v, before)
			return
		}
		late := time.Duration(0)
		if p.sim.shardsRNG.IntN(3) == 0 {
			late = randomDuration(p.sim.shardsRNG, 500*time.Millisecond)
		}
		p.after(late, func() { w.answered(v, before) })
	})
}

func (w *shardWorker) answered(v *machine.ShardsView, before []*shardTask) {
	if !slices.Contains(w.session.program.workers, w) { // its session is lost, and a later worker may have its number (seed 40696)
		return
	}
	if w.asking = false; w.state == presentWorker || w.state == leavingWorker {
		w.seen(v, before)
	}
}

// seen handles the state of the set, which was read after the works of before had begun.
func (w *shardWorker) seen(v *machine.ShardsView, before []*shardTask) {
	sim := w.session.program.sim
	own := -1
	if v != nil {
		own = slices.IndexFunc(v.Workers, func(o machine.ShardWorkerView) bool {
			return o.Live && !o.Left && o.Session == w.session.id && o.Handle == w.n
		})
	}
	if own < 0 {
		w.dismissed()
		return
	}
	if v.Workers[own].Leaving && w.state == presentWorker { // the count changes
		sim.shards.outdated++
		w.state = leavingWorker
	}
	for _, t := range before {
		if sh := shardOf(v, t.shard); t.mustBeOwned() && slices.Contains(w.tasks, t) && (sh.Worker != v.Workers[own].Number || sh.Fence != t.fence) {
			sim.fail("worker %d has shard %d of %s under fence %d, not released, and reads %+v", w.n, t.shard, w.set, t.fence, sh)
		}
	}
	for i, sh := range v.Shards {
		if sh.Worker == v.Workers[own].Number && sh.Fence != 0 {
			w.learn(uint32(i), sh.Fence, sh.Moving)
		}
	}
}

func shardOf(v *machine.ShardsView, number uint32) (sh machine.ShardView) {
	if int(number) < len(v.Shards) {
		sh = v.Shards[number]
	}
	return sh
}

// dismissed handles that the worker is not one of the set any more: it has left and released all, or its session has ended or is bound to another process.
func (w *shardWorker) dismissed() {
	s, p := w.session, w.session.program
	v, alive := liveSession(p.sim.history.oracle, s.id)
	bound := alive && v.Incarnation == s.incarnation // else this process is about to learn that it is not
	kept := slices.ContainsFunc(w.tasks, (*shardTask).mustBeOwned)
	switch {
	case !bound:
	case kept || w.state == presentWorker && !w.wasResized():
		p.sim.fail("member %d: worker %d is not one of %s any more, with %d shards, state %d", p.n, w.n, w.set, len(w.tasks), w.state)
	case len(w.tasks) > 0: // their release was carried out, and its outcome follows
		w.stale = true
	default:
		w.state = absentWorker
	}
}
