package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// task is what a session does that stands for one task: it takes locks, shares and sets inside each other, one at a time, refuses
// deadlocks, and gives everything back after a refusal. In a group all of whose callers do so no task waits for ever, so none gives up
// waiting when the faults are over.
type task struct {
	session *simSession
	taken   []*handle // each inside the one before; the last one may be on its way
	yields  bool      // since a refusal, until it has nothing
	last    uint64    // number of a handle
}

// taskNames are the names of the locks that tasks take, and nothing else.
var taskNames = []string{"task-0", "task-1", "task-2", "task-3", "task-4"}

// mostTaken is how many locks and sets a task has inside each other.
const mostTaken = 3

// taskCounts counts what became of the requests of tasks.
type taskCounts struct {
	granted, nested int // of these, those of a task that had something
	refused         int // because of a cycle
	longest         int // of the cycles
	unreserved      int // sets that were passed over once more, and whose names could not be reserved without a cycle
	reserved        int // sets whose names were reserved
}

func (c *taskCounts) add(o taskCounts) {
	c.granted += o.granted
	c.nested += o.nested
	c.refused += o.refused
	c.longest = max(c.longest, o.longest)
	c.unreserved += o.unreserved
	c.reserved += o.reserved
}

// occurred reports whether there was some of each.
func (c taskCounts) occurred() bool {
	return c.granted > 0 && c.nested > 0 && c.refused > 0 && c.longest > 2 && c.unreserved > 0 && c.reserved > 0
}

// addTask makes the session that of a task, if those of this world are.
func (s *simSession) addTask() bool {
	if s.program.sim.faults.tasks {
		s.task = &task{session: s}
	}
	return s.task != nil
}

// act does one of the things that the current state permits.
func (t *task) act() {
	p := t.session.program
	rng, n := p.sim.tasksRNG, len(t.taken)
	switch {
	case p.gateway.level() < wire.LevelReserve:
	case n > 0 && t.taken[n-1].state == idle:
		t.taken = t.taken[:n-1]
		t.yields = t.yields && n > 1
	case n > 0 && t.taken[n-1].state != held:
		t.wait(t.taken[n-1])
	case n > 0 && (t.yields || n == mostTaken || rng.IntN(3) == 0):
		t.taken[n-1].release()
	case !p.sim.draining || p.cycles < 2:
		t.take()
	case n > 0:
		t.taken[n-1].release()
	}
}

// wait gives the last request up at times.
func (t *task) wait(h *handle) {
	sim := t.session.program.sim
	switch {
	case sim.draining || sim.tasksRNG.IntN(100) > 0:
	case h.state == acquiring:
		h.cancel()
	case h.state == queued:
		h.withdraw()
	}
}

// take asks for a lock, a share or a set of names of which the task has none.
func (t *task) take() {
	sim := t.session.program.sim
	rng, names := sim.tasksRNG, slices.Clone(taskNames)
	for _, h := range t.handles() {
		names = slices.DeleteFunc(names, func(name string) bool { return name == h.lock })
	}
	if len(names) == 0 {
		t.yields = true
		return
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	t.last++
	h := &handle{session: t.session, n: t.last, space: wire.Space_LOCK, refuses: true}
	if rng.IntN(2) == 0 {
		h.lock, h.shared = names[0], rng.IntN(3) == 0
	} else {
		h.set = new(setRequest)
		for _, name := range names[:1+rng.IntN(min(3, len(names)))] {
			if rng.IntN(4) == 0 {
				h.set.shared = append(h.set.shared, name)
			} else {
				h.set.names = append(h.set.names, name)
			}
		}
	}
	t.taken = append(t.taken, h)
	h.request(sim.draining || rng.IntN(16) > 0, 0)
}

// granted counts a grant to the task, if it is one.
func (t *task) granted(sim *simulation) {
	if t != nil {
		sim.tasks.granted++
		sim.tasks.nested += btoi(len(t.taken) > 1)
	}
}

// refused handles that a request would have closed a cycle.
func (h *handle) refused(r *wire.Reply) {
	t := h.session.task
	if t == nil || !h.refuses || len(t.taken) < 2 {
		h.session.program.sim.fail("member %d: handle %d, lock %s, which holds nothing or refuses no deadlock: %v", h.session.program.n, h.n, h.lock, r)
	}
	t.yields = true
}

// handles returns those of what the task has, or asks for.
func (t *task) handles() (all []*handle) {
	if t == nil {
		return nil
	}
	for _, h := range t.taken {
		if h.isSet() {
			all = append(all, h.withParts()...)
		} else {
			all = append(all, h)
		}
	}
	return all
}
