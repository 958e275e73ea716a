package conclave

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// ledger is a resource behind a lock, outside the group. It is where mutual
// exclusion shows: fences of accepted writes never go back.
type ledger struct {
	guard Guard

	mu    sync.Mutex
	seen  map[Fence]bool // guarded by mu; every fence that was acknowledged
	stale int            // guarded by mu
}

// acknowledged records a fence that Lock returned: none may come twice, ever.
func (b *ledger) acknowledged(t *testing.T, name string, f Fence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[Fence]bool)
	}
	if b.seen[f] {
		t.Errorf("fence %v of %q was given out twice", f, name)
	}
	b.seen[f] = true
}

// write is refused when a later holder has written. That is allowed only to who
// has lost the lock.
func (b *ledger) write(t *testing.T, l *FencedLock, f Fence) {
	if b.guard.Check(l.name, f) == nil {
		return
	}
	if _, err := l.Fence(); err == nil {
		t.Errorf("%q with fence %v: a later holder has written, and this one does not know that it lost the lock", l.name, f)
	}
	b.mu.Lock()
	b.stale++
	b.mu.Unlock()
}

// work locks, writes and unlocks until ctx ends or the node goes.
func (b *ledger) work(ctx context.Context, t *testing.T, n *Node, name string) (cycles int) {
	l := n.FencedLock(name)
	for ctx.Err() == nil {
		f, err := l.Lock(ctx)
		if err != nil {
			if errors.Is(err, ErrClosed) {
				return cycles
			}
			continue
		}
		b.acknowledged(t, name, f)
		b.write(t, l, f)
		b.write(t, l, f)
		_ = l.Unlock(ctx) // may be lost with the session: that is the story here
		cycles++
	}
	return cycles
}

// The power fails, on one machine or on all at once, at random moments under
// load. Everything that was not synced is gone. Nothing that was acknowledged
// may be forgotten: no fence comes twice, and a hold that was acknowledged and
// neither released nor lost keeps others out.
func TestPowerCut(t *testing.T) {
	g := group(t, 3, crashable)
	ctx := within(t, 80*time.Second)
	random := rand.New(rand.NewPCG(3, 4))
	var book ledger
	total := 0
	for cut := range 12 {
		round, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		cycles := make([]int, 6)
		for w := range cycles {
			n := g.nodes[w%3]
			wg.Go(func() { cycles[w] = book.work(round, t, n, fmt.Sprint("lock-", w%2)) })
		}
		<-time.After(time.Duration(50+random.IntN(200)) * time.Millisecond) // the moment of the cut is what is random here
		victims := []int{random.IntN(3)}
		if cut%3 == 2 {
			victims = []int{0, 1, 2}
		}
		g.cutPower(victims)
		end()
		wg.Wait()
		for _, c := range cycles {
			total += c
		}
		var starting sync.WaitGroup
		for _, i := range victims {
			starting.Go(func() { g.start(i) })
		}
		starting.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d cycles, %d late writes refused", total, book.stale)
	for _, n := range g.nodes {
		f := mustLock(t, n.FencedLock("lock-0"))
		book.acknowledged(t, "lock-0", f)
		break
	}
}

// cutPower takes the power of the victims' machines away, as far as they are
// concerned all in the same moment, and leaves their disks for the next start.
func (g *testGroup) cutPower(victims []int) {
	g.t.Helper()
	var dead []*mainsFS
	for _, i := range victims {
		disk := g.seams[i].FS.(*mainsFS)
		dead = append(dead, disk)
		g.seams[i].FS = disk.cut()
	}
	var closing sync.WaitGroup
	for _, i := range victims {
		closing.Go(func() { g.kill(i) })
		g.awaitPortClosed(i)
	}
	// Nothing of them can be heard any more; now their remains may end.
	for _, disk := range dead {
		disk.bury()
	}
	closing.Wait()
}

func (g *testGroup) awaitPortClosed(i int) {
	for g.t.Context().Err() == nil {
		conn, err := net.Dial("tcp", g.configs[i].Bind)
		if err != nil {
			return
		}
		conn.Close()
	}
}

// A hold survives the power cut of every machine but the holder's own: what was
// acknowledged is on the disks of a majority.
func TestHoldSurvivesPowerCutOfTheOthers(t *testing.T) {
	g := group(t, 3, crashable)
	holder := g.nodes[0].FencedLock("x")
	f := mustLock(t, holder)
	g.cutPower([]int{1, 2})
	var starting sync.WaitGroup
	starting.Go(func() { g.start(1) })
	starting.Go(func() { g.start(2) })
	starting.Wait()
	other := g.nodes[1].FencedLock("x")
	_, err := other.TryLock(within(t, 20*time.Second))
	if _, held := holder.Fence(); held == nil {
		wantError(t, err, ErrLocked)
		mustUnlock(t, holder)
	}
	if again := mustLock(t, other); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}
