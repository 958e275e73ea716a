package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// hold is a lock that a process has acknowledged and was not asked to release.
type hold struct {
	holder *process
	lock   string
	fence  conclave.Fence
}

// believed reports whether the holder believes that it still holds the lock. A dead
// one does not.
func (c *hold) believed() bool {
	_, err := c.holder.ask("fence", c.lock)
	return err == nil
}

// auditor sees every acknowledgement of all processes, and is the resource that the
// locks protect.
type auditor struct {
	t     testing.TB
	guard conclave.Guard

	mu      sync.Mutex
	moved   *sync.Cond                // of mu; a cycle was completed
	largest map[string]conclave.Fence // guarded by mu; acknowledged, by lock
	seen    map[conclave.Fence]bool   // guarded by mu
	holds   map[string]*hold          // guarded by mu; by lock
	cycles  map[*process]int          // guarded by mu
	refused int                       // guarded by mu; writes with an old fence, except by a node that closes
	last    time.Time                 // guarded by mu; when the last cycle was completed
	gap     time.Duration             // guarded by mu; the longest between two cycles
}

func newAuditor(t testing.TB) *auditor {
	w := &auditor{t: t, largest: make(map[string]conclave.Fence), seen: make(map[conclave.Fence]bool), holds: make(map[string]*hold), cycles: make(map[*process]int)}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// acknowledged records a grant. before is the latest fence acknowledged before the
// request: the new one has to be larger.
func (w *auditor) acknowledged(c *hold, before conclave.Fence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[c.fence] {
		w.t.Errorf("fence %v of %q was granted twice", c.fence, c.lock)
	}
	if c.fence <= before {
		w.t.Errorf("%q was granted with fence %v after %v had been acknowledged", c.lock, c.fence, before)
	}
	w.seen[c.fence] = true
	w.largest[c.lock] = max(w.largest[c.lock], c.fence)
	if former := w.holds[c.lock]; former == nil || former.fence < c.fence {
		w.holds[c.lock] = c
		w.exclude(former, c)
	} else {
		w.exclude(c, former)
	}
}

// exclude checks two holds of one lock: the process with the smaller fence must know
// of its loss. w.mu is held, so that neither is released meanwhile.
func (w *auditor) exclude(former, latter *hold) {
	if former != nil && former.believed() {
		w.t.Errorf("%q is held with fence %v and was granted again with fence %v: an acknowledged grant was lost",
			former.lock, former.fence, latter.fence)
	}
}

func (w *auditor) releasing(c *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds[c.lock] == c {
		delete(w.holds, c.lock)
	}
}

// write is refused when a later holder has written, of which this one must know.
func (w *auditor) write(c *hold) {
	if w.guard.Check(c.lock, c.fence) == nil {
		return
	}
	if c.believed() {
		w.t.Errorf("%q with fence %v: a later holder has written, and this one does not know that it lost the lock", c.lock, c.fence)
	}
	if c.holder.isClosing() {
		return // Close and Leave release the locks, also those of workers that have not finished
	}
	w.mu.Lock()
	w.refused++
	w.mu.Unlock()
}

// latest is the largest fence acknowledged: for any lock, or of those that linger for that
// lock, since a node takes the fences of one from a block.
func (w *auditor) latest(lock string) (f conclave.Fence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for of, fence := range w.largest { // order: the maximum does not depend on it
		if of == lock || !lingers(lock) {
			f = max(f, fence)
		}
	}
	return f
}

// work has a process lock, write and unlock until ctx or the process ends.
func (w *auditor) work(ctx context.Context, p *process, lock string) {
	for ctx.Err() == nil {
		before := w.latest(lock)
		f, err := p.ask("lock", lock)
		switch {
		case errors.Is(err, errEnded), p.isClosing() && errors.Is(err, conclave.ErrClosed):
			return
		case err != nil: // not held
			if !errors.Is(err, conclave.ErrSessionExpired) && !errors.Is(err, conclave.ErrUnavailable) {
				w.t.Errorf("lock %q: %v", lock, err)
				return
			}
			continue
		}
		c := &hold{holder: p, lock: lock, fence: f}
		w.acknowledged(c, before)
		w.write(c)
		_, _ = p.ask("fence", lock) // the critical section takes some time
		w.write(c)
		w.releasing(c)
		if _, err := p.ask("unlock", lock); err == nil {
			w.cycled(p)
		}
	}
}

func (w *auditor) cycled(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cycles[p]++
	if now := time.Now(); w.last.IsZero() {
		w.last = now
	} else {
		w.gap, w.last = max(w.gap, now.Sub(w.last)), now
	}
	w.moved.Broadcast()
}

// awaitProgress blocks until each process has completed three more cycles.
func (w *auditor) awaitProgress(ctx context.Context, members []*process) {
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

// Three processes lock all the time while the leader is killed at random moments and
// restarted. No acknowledged grant is lost, fences increase, and a process that does
// not know of a loss has not lost its holds.
func TestKill_LeaderUnderLoad(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 5*time.Second)
	w := newAuditor(t)
	ctx := grouptest.Bounded(t)
	load, end := context.WithCancel(ctx)
	locks := []string{"a", "b", "c", lingering}
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
		leader := g.leader()
		survivor := g.members[(leader+1+random.IntN(2))%3]
		kept := &hold{holder: survivor, lock: "kept", fence: survivor.must("lock", "kept")}
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond) // a random moment of the cycles
		g.members[leader].kill()
		g.restart(leader)
		work(g.members[leader])
		g.wantHeld(kept)
		if t.Failed() {
			break
		}
	}
	w.awaitProgress(ctx, g.members)
	end()
	workers.Wait()
	t.Logf("%d grants, %d writes with an old fence refused", len(w.seen), w.refused)
	g.restartAll()
	last := w.latest("a") // of all
	for _, lock := range locks {
		if f := g.members[0].must("lock", lock); f <= last {
			t.Errorf("after all processes were killed %q was granted with fence %v; %v had been acknowledged", lock, f, last)
		}
	}
}

// wantHeld checks that no other process gets a lock unless the holder knows that it
// has lost it, and has the holder unlock.
func (g *processGroup) wantHeld(c *hold) {
	g.t.Helper()
	for i, p := range g.members {
		if p == c.holder {
			continue
		}
		f, err := p.ask("try", c.lock)
		if !errors.Is(err, conclave.ErrLocked) && c.believed() {
			g.t.Errorf("process %d got %q, which another one holds with fence %v: %v, %v", i, c.lock, c.fence, f, err)
		}
		if err == nil {
			p.must("unlock", c.lock)
		}
	}
	if _, err := c.holder.ask("unlock", c.lock); err != nil && !errors.Is(err, conclave.ErrLockOwnershipLost) {
		g.t.Errorf("unlock %q: %v", c.lock, err)
	}
}

// restartAll kills all processes and starts them again.
func (g *processGroup) restartAll() {
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

// listenAgain takes the address that the process had before it was killed, or
// another one if that is in use by now: a member may move.
func listenAgain(addr string) (net.Listener, error) {
	if l, err := net.Listen("tcp", addr); err == nil {
		return l, nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}
