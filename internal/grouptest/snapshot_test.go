package grouptest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A member that was away for longer than the log reaches back gets the state as
// a snapshot, and is as good as the others then.
func TestSnapshotCatchUpAfterRestart(t *testing.T) {
	g := Start(t, 3, ShortLog)
	held := g.Nodes[0].FencedLock("held")
	f := MustLock(t, held)
	away := 2
	g.Kill(away)
	Busy(t, g.Nodes[0], 300)
	g.Start(away)
	g.AwaitApplied(away)
	g.WantInstalled(away, 1)
	info, err := g.Nodes[away].FencedLock("held").Info(Within(t, 20*time.Second))
	if err != nil || !info.Held || info.Fence != f {
		t.Fatalf("%+v %v", info, err)
	}
	// It votes with the others: with one of them gone the two agree.
	g.Kill(1)
	MustUnlock(t, held)
	if again := MustLock(t, g.Nodes[away].FencedLock("held")); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}

// A member that is cut off while its call waits for a grant, and comes back by a
// snapshot, skips the entry that granted it. It must find the grant in the state;
// and a session that ended meanwhile must be told as ended.
func TestSnapshotSkipsOutcomes(t *testing.T) {
	g := Start(t, 3, ShortLog, LongSessions, MemoryNetwork)
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
	MustUnlock(t, granted) // the grant that the member away does not see
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	f := <-done
	g.WantInstalled(away, 1)
	if got, err := waiting.Fence(); err != nil || got != f {
		t.Fatal(got, err)
	}
	info, err := granted.Info(Within(t, 20*time.Second))
	if err != nil || info.Fence != f || info.Node != g.Nodes[away].Status().ID {
		t.Fatalf("%+v %v", info, err)
	}
	MustUnlock(t, waiting)
	MustLock(t, waiting)

	own := OwnSession(t, g.Nodes[away])
	g.Disconnect(away)
	if err := other.CloseSession(Within(t, 20*time.Second), own); err != nil {
		t.Fatal(err)
	}
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	<-waiting.Lost()
	g.WantInstalled(away, 2)
	WantError(t, waiting.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
	MustLock(t, waiting)
}

// Members come and go under load, some by log, some by snapshot.
func TestSnapshotsUnderLoad(t *testing.T) {
	g := Start(t, 3, ShortLog)
	ctx := Within(t, 60*time.Second)
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

// A member that is cut off skips, by a snapshot, the entries in which its waiters
// were granted permits and the lead, and in which a session without TTL was
// ended. It finds all of it in the state.
func TestSnapshotSkipsOutcomesOfAllKinds(t *testing.T) {
	g := Start(t, 3, ShortLog, LongSessions, MemoryNetwork)
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
		_, err := next.Campaign(Within(t, 60*time.Second), []byte("ours"))
		leads <- err
	}()
	MustLock(t, cut.FencedLock("behind the campaign"))

	g.Disconnect(away)
	Must(t, theirs.Release(Within(t, 20*time.Second)))
	Must(t, lead.Resign(Within(t, 20*time.Second)))
	Must(t, other.CloseSession(Within(t, 20*time.Second), ended.ID()))
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
	l, err := lead.Leader(Within(t, 20*time.Second))
	if err != nil || string(l.Value) != "ours" || l.Node != cut.Status().ID {
		t.Fatalf("%+v %v", l, err)
	}
	Must(t, p.Release(Within(t, 20*time.Second)))
	Must(t, next.Resign(Within(t, 20*time.Second)))
}
