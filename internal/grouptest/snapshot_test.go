package grouptest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
)

// A member that is behind the log catches up by a snapshot, and votes then.
func TestSnapshot_CatchUpAfterRestart(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog)
	held := g.Nodes[0].FencedLock("held")
	f := MustLock(t, held)
	away := 2
	g.Kill(away)
	Busy(t, g.Nodes[0], 300)
	g.Start(away)
	g.AwaitApplied(away)
	g.WantInstalled(away, 1)
	info, err := g.Nodes[away].FencedLock("held").Info(Bounded(t))
	if err != nil || !info.Held || info.Fence != f {
		t.Fatalf("%+v %v", info, err)
	}
	// With another member killed, its vote is needed.
	g.Kill(1)
	MustUnlock(t, held)
	if again := MustLock(t, g.Nodes[away].FencedLock("held")); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}

// A snapshot skips the entry that granted a waiting call, and later the entry that
// ended a session. The member finds both in the state.
func TestSnapshot_SkipsGrantAndSessionEnd(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork)
	away := (g.Leader() + 1) % 3
	other := g.Nodes[(away+1)%3]
	granted := other.FencedLock("granted")
	MustLock(t, granted)

	waiting := g.Nodes[away].FencedLock("granted")
	done := make(chan conclave.Fence, 1)
	go func() {
		f, err := waiting.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		done <- f
	}()
	AwaitWaiters(t, granted, 1)

	g.Disconnect(away)
	MustUnlock(t, granted) // grants it to the disconnected member
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	f := <-done
	g.WantInstalled(away, 1)
	if got, err := waiting.Fence(); err != nil || got != f {
		t.Fatal(got, err)
	}
	info, err := granted.Info(Bounded(t))
	if err != nil || info.Fence != f || info.Node != g.Nodes[away].Status().ID {
		t.Fatalf("%+v %v", info, err)
	}
	MustUnlock(t, waiting)
	MustLock(t, waiting)

	own := OwnSession(t, g.Nodes[away])
	g.Disconnect(away)
	if err := other.CloseSession(Bounded(t), own); err != nil {
		t.Fatal(err)
	}
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	<-waiting.Lost()
	g.WantInstalled(away, 2)
	WantError(t, waiting.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
	MustLock(t, waiting)
}

// Members are killed and catch up by snapshots, under load.
func TestSnapshot_UnderLoad(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog)
	ctx := Bounded(t)
	var book Ledger
	for round := range 6 {
		away := round % 3
		g.Kill(away)
		var wg sync.WaitGroup
		for i, n := range g.Nodes {
			if n == nil {
				continue
			}
			name := fmt.Sprint("load-", i)
			l := n.FencedLock(name)
			wg.Go(func() {
				for range 60 {
					f, err := l.Lock(ctx)
					if errors.Is(err, conclave.ErrSessionExpired) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					book.Acknowledged(t, name, f)
					_ = l.Unlock(ctx)
				}
			})
		}
		wg.Wait()
		g.Start(away)
		if t.Failed() {
			t.FailNow()
		}
		g.AwaitApplied(away)
		g.WantInstalled(away, 1)
	}
}

// A snapshot skips the entries in which waiters of a disconnected member got permits
// and leadership, and in which a session without a TTL ended. The member finds all of
// it in the state.
func TestSnapshot_SkipsPermitsAndLeadership(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork)
	away := (g.Leader() + 1) % 3
	cut, other := g.Nodes[away], g.Nodes[(away+1)%3]
	theirs := MustAcquire(t, other.Semaphore("x", 2), 2)
	lead := other.Election("x")
	MustCampaign(t, lead, "theirs")
	ended := MustSession(t, cut, Lasting())
	MustLock(t, ended.FencedLock("x"))

	permits := StartAcquire(t, cut.Semaphore("x", 2), 1)
	next := cut.Election("x")
	leads := make(chan error, 1)
	go func() {
		_, err := next.Campaign(Bounded(t), []byte("ours"))
		leads <- err
	}()
	MustLock(t, cut.FencedLock("after the campaign"))

	g.Disconnect(away)
	Must(t, theirs.Release(Bounded(t)))
	Must(t, lead.Resign(Bounded(t)))
	Must(t, other.CloseSession(Bounded(t), ended.ID()))
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	p := permits.Granted(t)
	Must(t, <-leads)
	<-ended.Done()
	WantError(t, ended.Err(), conclave.ErrSessionExpired)
	g.WantInstalled(away, 1)
	f, err := p.Fence()
	if info := SemaphoreInfo(t, other.Semaphore("x", 2)); err != nil || len(info.Holders) != 1 || info.Holders[0].Fence != f {
		t.Fatalf("%v %v %+v", f, err, info)
	}
	l, err := lead.Leader(Bounded(t))
	if err != nil || string(l.Value) != "ours" || l.Node != cut.Status().ID {
		t.Fatalf("%+v %v", l, err)
	}
	Must(t, p.Release(Bounded(t)))
	Must(t, next.Resign(Bounded(t)))
}
