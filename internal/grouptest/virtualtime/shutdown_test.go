package virtualtime

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave"
)

// The last other member announces its shutdown while a probe of it is under way.
// Close does not leave the goroutine behind that waits for the answer.
func TestClose_OtherShutsDownDuringProbe(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 2, func(g *membership) {
		g.Leader()
		g.Net.Isolate(1)
		pass(time.Second) // it is probed twice a second
		g.AnnounceShutdown(1)
		g.Kill(1)
		g.Net.Rejoin(1)
		self := g.ID(0)
		isAlive := func(m conclave.Member) bool { return m.Alive && m.ID != self }
		for slices.ContainsFunc(g.Nodes[0].Status().Members, isAlive) {
			pass(time.Millisecond) // Status is a snapshot; nothing signals a change
		}
		g.Kill(0)
	})
}

// A reachable member is killed while another one is probed in vain. Its share in
// that probe ends with it; memberlist's indirect probes once outlived it by 250 ms.
// The stacks are those of the whole process, so that no other test may run beside it.
func TestClose_DuringIndirectProbe(t *testing.T) {
	for i := range often(40) {
		at := 500*time.Millisecond + time.Duration(i)*2*time.Second/time.Duration(often(40))
		inMembershipBubble(t, 3, func(g *membership) {
			g.Leader()
			g.Net.Isolate(1)
			pass(at)
			g.Kill(2)
			synctest.Wait() // the other's share in a probe of the killed one may end at this moment
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			for stack := range strings.SplitSeq(string(stacks), "\n\n") {
				if strings.Contains(stack, "handleIndirectPing") {
					g.T.Errorf("still running %v after the isolation:\n%s", at, stack)
				}
			}
		})
	}
}
