package conclave

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// shortLog makes members fall behind the log soon.
func shortLog(_ int, c *Config, h *cluster.Seams) { h.KeepEntries = 20 }

// A member that was away for longer than the log reaches back gets the state as
// a snapshot, and is as good as the others then.
func TestSnapshotCatchUpAfterRestart(t *testing.T) {
	g := group(t, 3, shortLog)
	held := g.nodes[0].FencedLock("held")
	f := mustLock(t, held)
	away := 2
	g.kill(away)
	busy(t, g.nodes[0], 300)
	g.start(away)
	g.awaitApplied(away)
	g.wantInstalled(away, 1)
	info, err := g.nodes[away].FencedLock("held").Info(within(t, 20*time.Second))
	if err != nil || !info.Held || info.Fence != f {
		t.Fatalf("%+v %v", info, err)
	}
	// It votes with the others: with one of them gone the two agree.
	g.kill(1)
	mustUnlock(t, held)
	if again := mustLock(t, g.nodes[away].FencedLock("held")); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}

// busy makes n entries.
func busy(t *testing.T, n *Node, cycles int) {
	t.Helper()
	l := n.FencedLock("busy")
	for range cycles {
		mustLock(t, l)
		mustUnlock(t, l)
	}
}

// awaitApplied blocks until a member has applied what the leader has now.
func (g *testGroup) awaitApplied(i int) {
	g.t.Helper()
	target := g.nodes[g.leader()].Status().Commit
	for g.nodes[i].Status().Applied < target {
		if g.t.Context().Err() != nil {
			g.t.Fatal("the test ends first")
		}
		<-time.After(time.Millisecond) // Applied is a view; nothing says when it moves
	}
}

// A member that is cut off while its call waits for a grant, and comes back by a
// snapshot, skips the entry that granted it. It must find the grant in the state;
// and a session that ended meanwhile must be told as ended.
func TestSnapshotSkipsOutcomes(t *testing.T) {
	var wires [3]cable
	g := group(t, 3, func(i int, c *Config, h *cluster.Seams) {
		shortLog(i, c, h)
		c.SessionTTL = time.Minute
		c.Dial = wires[i].dial
		c.Listener = listener{c.Listener, &wires[i]}
	})
	away := (g.leader() + 1) % 3
	other := g.nodes[(away+1)%3]
	granted := other.FencedLock("granted")
	mustLock(t, granted)

	waiting := g.nodes[away].FencedLock("granted")
	done := make(chan Fence, 1)
	go func() {
		f, err := waiting.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		done <- f
	}()
	awaitWaiters(t, granted, 1)

	wires[away].unplug()
	mustUnlock(t, granted) // the grant that the member away does not see
	busy(t, other, 300)
	wires[away].plug()
	f := <-done
	g.wantInstalled(away, 1)
	if got, err := waiting.Fence(); err != nil || got != f {
		t.Fatal(got, err)
	}
	info, err := granted.Info(within(t, 20*time.Second))
	if err != nil || info.Fence != f || info.Node != g.nodes[away].id {
		t.Fatalf("%+v %v", info, err)
	}
	mustUnlock(t, waiting)
	mustLock(t, waiting)

	wires[away].unplug()
	if err := other.CloseSession(within(t, 20*time.Second), g.nodes[away].own.ID()); err != nil {
		t.Fatal(err)
	}
	busy(t, other, 300)
	wires[away].plug()
	<-waiting.Lost()
	g.wantInstalled(away, 2)
	wantError(t, waiting.Unlock(t.Context()), ErrLockOwnershipLost)
	mustLock(t, waiting)
}

// Members come and go under load, some by log, some by snapshot.
func TestSnapshotsUnderLoad(t *testing.T) {
	g := group(t, 3, shortLog)
	ctx := within(t, 60*time.Second)
	var book ledger
	for round := range 6 {
		away := round % 3
		g.kill(away)
		var wg sync.WaitGroup
		for i, n := range g.nodes {
			if n == nil {
				continue
			}
			l := n.FencedLock(fmt.Sprint("load-", i))
			wg.Go(func() {
				for range 60 {
					f, err := l.Lock(ctx)
					if errors.Is(err, ErrSessionExpired) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					book.acknowledged(t, l.name, f)
					_ = l.Unlock(ctx)
				}
			})
		}
		wg.Wait()
		g.start(away)
		if t.Failed() {
			t.FailNow()
		}
		g.awaitApplied(away)
		g.wantInstalled(away, 1)
	}
}

// wantInstalled fails unless so many snapshots have reached the member since
// its start: or the test would show something else than it says.
func (g *testGroup) wantInstalled(i int, n uint64) {
	g.t.Helper()
	if got := g.nodes[i].member.Status().Installed; got < n {
		g.t.Fatalf("%d snapshots were installed, not %d", got, n)
	}
}
