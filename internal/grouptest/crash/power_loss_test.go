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

// One machine or all of them lose power at random moments under load, and with it
// what was not synced. No fence is granted twice, and a hold that was acknowledged
// and neither released nor lost excludes others.
func TestPowerLoss_UnderLoad(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3, grouptest.MemoryNetwork, grouptest.PoweredDisks)
	ctx := grouptest.Bounded(t)
	random := rand.New(rand.NewPCG(3, 4))
	var ledger grouptest.Ledger
	total := 0
	for cut := range 12 {
		round, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		cycles := make([]int, 6)
		for w := range cycles {
			n := g.Nodes[w%3]
			linger := conclave.Linger(time.Duration(w%2) * 100 * time.Millisecond)
			wg.Go(func() { ledger.Work(round, t, n, fmt.Sprint("lock-", w%2), func() { cycles[w]++ }, linger) })
		}
		<-time.After(time.Duration(50+random.IntN(200)) * time.Millisecond) // a random moment of the load
		victims := []int{random.IntN(3)}
		if cut%3 == 2 {
			victims = []int{0, 1, 2}
		}
		g.Crash(victims...)
		end()
		wg.Wait()
		for _, c := range cycles {
			total += c
		}
		g.Restart(victims...)
	}
	t.Logf("%d cycles, %d writes with an old fence refused", total, ledger.Refused())
	f := grouptest.MustLock(t, g.Nodes[0].FencedLock("lock-0"))
	ledger.Acknowledged(t, "lock-0", f)
}

// A hold survives a power loss of all machines but the holder's: a majority of the disks
// has the acknowledged grant.
func TestPowerLoss_AllButHolder(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3, grouptest.MemoryNetwork, grouptest.PoweredDisks)
	holder := g.Nodes[0].FencedLock("x")
	f := grouptest.MustLock(t, holder)
	g.Crash(1, 2)
	g.Restart(1, 2)
	other := g.Nodes[1].FencedLock("x")
	_, err := other.TryLock(grouptest.Bounded(t))
	grouptest.WantError(t, err, conclave.ErrLocked)
	_, err = holder.Fence()
	grouptest.Must(t, err)
	grouptest.MustUnlock(t, holder)
	if again := grouptest.MustLock(t, other); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}
