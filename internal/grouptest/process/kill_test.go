package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// claim is an acquire that a process has acknowledged and not been asked to
// give back.
type claim struct {
	holder *process
	lock   string
	fence  conclave.Fence
}

// stands asks the holder itself: false when it knows that it lost the lock, or
// is dead.
func (c *claim) stands() bool {
	_, err := c.holder.ask("fence", c.lock)
	return err == nil
}

// witness is outside all processes. It sees every acknowledgement, and is the
// resource that the locks protect.
type witness struct {
	t     *testing.T
	guard conclave.Guard

	mu      sync.Mutex
	moved   *sync.Cond        // on mu; a cycle is complete
	largest conclave.Fence             // guarded by mu; of all acknowledged ones
	seen    map[conclave.Fence]bool    // guarded by mu
	claims  map[string]*claim // guarded by mu; by lock
	cycles  map[*process]int  // guarded by mu
	refused int               // guarded by mu; late writes
}

func newWitness(t *testing.T) *witness {
	w := &witness{t: t, seen: make(map[conclave.Fence]bool), claims: make(map[string]*claim), cycles: make(map[*process]int)}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// acknowledged takes note of a grant. before is the largest fence that was
// known when the lock was asked for: the new one has to be larger, whatever
// lock they are of.
func (w *witness) acknowledged(c *claim, before conclave.Fence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[c.fence] {
		w.t.Errorf("fence %v of %q was given out twice", c.fence, c.lock)
	}
	if c.fence <= before {
		w.t.Errorf("%q was granted with fence %v after %v had been acknowledged", c.lock, c.fence, before)
	}
	w.seen[c.fence] = true
	w.largest = max(w.largest, c.fence)
	if former := w.claims[c.lock]; former == nil || former.fence < c.fence {
		w.claims[c.lock] = c
		w.exclude(former, c)
	} else {
		w.exclude(c, former)
	}
}

// exclude looks at two that claim one lock: whoever has the smaller fence must
// know that it is not the holder any more. w.mu is held, so that neither gives
// its claim up meanwhile.
func (w *witness) exclude(former, latter *claim) {
	if former != nil && former.stands() {
		w.t.Errorf("%q is held with fence %v and was granted again with fence %v: an acknowledged acquire was forgotten",
			former.lock, former.fence, latter.fence)
	}
}

func (w *witness) givenUp(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims[c.lock] == c {
		delete(w.claims, c.lock)
	}
}

// write is refused when a later holder has written; then this one must know.
func (w *witness) write(c *claim) {
	if w.guard.Check(c.lock, c.fence) == nil {
		return
	}
	if c.stands() {
		w.t.Errorf("%q with fence %v: a later holder has written, and this one was not told that it lost the lock", c.lock, c.fence)
	}
	w.mu.Lock()
	w.refused++
	w.mu.Unlock()
}

func (w *witness) latest() conclave.Fence {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.largest
}

// work has a process lock, write and unlock until ctx or the process ends.
func (w *witness) work(ctx context.Context, p *process, lock string) {
	for ctx.Err() == nil {
		before := w.latest()
		f, err := p.ask("lock", lock)
		switch {
		case errors.Is(err, errGone):
			return
		case err != nil: // nothing is held
			if !errors.Is(err, conclave.ErrSessionExpired) && !errors.Is(err, conclave.ErrUnavailable) {
				w.t.Errorf("lock %q: %v", lock, err)
				return
			}
			continue
		}
		c := &claim{holder: p, lock: lock, fence: f}
		w.acknowledged(c, before)
		w.write(c)
		_, _ = p.ask("fence", lock) // a critical section takes its time
		w.write(c)
		w.givenUp(c)
		if _, err := p.ask("unlock", lock); err == nil {
			w.cycled(p)
		}
	}
}

func (w *witness) cycled(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cycles[p]++
	w.moved.Broadcast()
}

// awaitProgress blocks until each process has completed another few cycles.
func (w *witness) awaitProgress(ctx context.Context, members []*process) {
	w.t.Helper()
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.moved.Broadcast()
	})()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range members {
		for goal := w.cycles[p] + 3; w.cycles[p] < goal; w.moved.Wait() {
			if ctx.Err() != nil {
				w.t.Fatal("no progress after a kill")
			}
		}
	}
}

// Three processes, each with its own disk, all of them locking all the time.
// The leader is killed at random moments and started again. No acknowledged
// acquire may be forgotten, no fence may go back, and who was not told of a loss
// must hold what it believes to hold.
func TestKill9(t *testing.T) {
	g := processesOf(t, 3, 5*time.Second)
	w := newWitness(t)
	ctx := grouptest.Within(t, 150*time.Second)
	load, end := context.WithCancel(ctx)
	locks := []string{"a", "b", "c"}
	var workers sync.WaitGroup
	work := func(p *process) {
		for _, lock := range locks {
			workers.Go(func() { w.work(load, p, lock) })
		}
	}
	for _, p := range g.members {
		work(p)
	}
	random := rand.New(rand.NewPCG(9, 9))
	for range 20 {
		w.awaitProgress(ctx, g.members)
		leader := g.Leader()
		survivor := g.members[(leader+1+random.IntN(2))%3]
		kept := &claim{holder: survivor, lock: "kept", fence: survivor.must("lock", "kept")}
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond) // the moment is what is random here
		g.members[leader].kill()
		g.restart(leader)
		work(g.members[leader])
		g.stillHeld(kept)
		if t.Failed() {
			break
		}
	}
	w.awaitProgress(ctx, g.members)
	end()
	workers.Wait()
	t.Logf("%d grants, %d late writes refused", len(w.seen), w.refused)
	g.killAll()
	for _, lock := range locks {
		if f := g.members[0].must("lock", lock); f <= w.largest {
			t.Errorf("after all were killed %q was granted with fence %v; %v had been acknowledged", lock, f, w.largest)
		}
	}
}

// stillHeld checks that a lock is its holder's in the eyes of everybody, unless
// the holder itself knows better, and has it given back.
func (g *processGroup) stillHeld(c *claim) {
	g.t.Helper()
	for i, p := range g.members {
		if p == c.holder {
			continue
		}
		f, err := p.ask("try", c.lock)
		if !errors.Is(err, conclave.ErrLocked) && c.stands() {
			g.t.Errorf("process %d tries %q, which another one holds with fence %v: %v, %v", i, c.lock, c.fence, f, err)
		}
		if err == nil {
			p.must("unlock", c.lock)
		}
	}
	if _, err := c.holder.ask("unlock", c.lock); err != nil && !errors.Is(err, conclave.ErrLockOwnershipLost) {
		g.t.Errorf("unlock %q: %v", c.lock, err)
	}
}

// killAll kills every process and starts them all again.
func (g *processGroup) killAll() {
	g.t.Helper()
	var wg sync.WaitGroup
	for _, p := range g.members {
		wg.Go(p.kill)
	}
	wg.Wait()
	next := make([]*process, len(g.members))
	for i, p := range g.members {
		next[i] = launch(g.t, p.addr)
	}
	g.members = next
	for i, p := range g.members {
		wg.Go(func() { g.open(i, p) })
	}
	wg.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
}
