package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// The power fails, on one machine or on all at once, at random moments under
// load. Everything that was not synced is gone. Nothing that was acknowledged
// may be forgotten: no fence comes twice, and a hold that was acknowledged and
// neither released nor lost keeps others out.
func TestPowerCut(t *testing.T) {
	g := group(t, 3, crashable)
	ctx := grouptest.Within(t, 80*time.Second)
	random := rand.New(rand.NewPCG(3, 4))
	var book ledger
	total := 0
	for cut := range 12 {
		round, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		cycles := make([]int, 6)
		for w := range cycles {
			n := g.Nodes[w%3]
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
			starting.Go(func() { g.Start(i) })
		}
		starting.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d cycles, %d late writes refused", total, book.stale)
	for _, n := range g.Nodes {
		f := grouptest.MustLock(t, n.FencedLock("lock-0"))
		book.acknowledged(t, "lock-0", f)
		break
	}
}

// A hold survives the power cut of every machine but the holder's own: what was
// acknowledged is on the disks of a majority.
func TestHoldSurvivesPowerCutOfTheOthers(t *testing.T) {
	g := group(t, 3, crashable)
	holder := g.Nodes[0].FencedLock("x")
	f := grouptest.MustLock(t, holder)
	g.cutPower([]int{1, 2})
	var starting sync.WaitGroup
	starting.Go(func() { g.Start(1) })
	starting.Go(func() { g.Start(2) })
	starting.Wait()
	other := g.Nodes[1].FencedLock("x")
	_, err := other.TryLock(grouptest.Within(t, 20*time.Second))
	if _, held := holder.Fence(); held == nil {
		grouptest.WantError(t, err, conclave.ErrLocked)
		grouptest.MustUnlock(t, holder)
	}
	if again := grouptest.MustLock(t, other); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}
