package virtualtime

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member does not come to what the others send it in one group. All other groups go on, over the same connections: a lock is granted
// without delay, by a leader there that needs the answers of the others, and no session ends.
func TestGroups_LoopOfOneStandsStill(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		const still, other, down = 0, 1, 2
		g.tenants(other, "a")
		g.MustTransfer(g.Nodes[other], other)
		g.transferIn("a", still)
		a := g.Nodes[other].WithGroup("a")
		held := a.FencedLock("held")
		grouptest.MustLock(t, held)
		g.Kill(down)

		begun, end := make(chan struct{}), make(chan struct{})
		g.Member(still).Replica().Post(func(*core.Core) { close(begun); <-end })
		<-begun
		defer close(end)
		before := time.Now()
		put := make(chan error, 1)
		go func() { // it is sent to the other voters, and not committed by a majority
			_, err := g.Nodes[other].KV().Put(grouptest.Within(t, election), "k", []byte(strings.Repeat("v", 400<<10)))
			put <- err
		}()
		if err := <-put; err == nil {
			t.Fatal("a member that stands still has acknowledged an entry")
		}
		for range 100 {
			began := time.Now()
			l := a.FencedLock("taken and released")
			if _, err := l.Lock(grouptest.Within(t, time.Minute)); err != nil {
				t.Fatalf("%v after the loop began to stand still: %v", time.Since(before), err)
			}
			grouptest.MustUnlock(t, l)
			if took := time.Since(began); took >= election {
				t.Errorf("locked and unlocked in %v", took)
			}
			pass(heartbeat)
		}
		if _, err := held.Fence(); err != nil {
			t.Error(err)
		}
	})
}
