//go:build unix

package examples

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// The leader is killed with -9: nobody leads, then one of the others, under a
// larger fence. That one is interrupted, and the last leads at once.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	all := trio(t, "leaderelection", nil, "-ttl", "2s", "-tick", "100ms")
	leader, fence := elected(t, all[:], 0)
	all[leader].expect(fmt.Sprintf("tick 2 with fence %d$", fence))

	all[leader].kill()
	rest := []*process{all[(leader+1)%3], all[(leader+2)%3]}
	heir, next := elected(t, rest, fence)
	rest[heir].expect(fmt.Sprintf("tick 1 with fence %d$", next))

	// Both know who leads, so the last one is a candidate, and the group has a
	// majority until the other has taken leave.
	rest[heir].signal(os.Interrupt)
	rest[heir].expect("resigning")
	elected(t, rest[1-heir:2-heir], next)
	rest[heir].expect("closed$")
	if status := rest[heir].wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// elected waits until these processes agree on one of them as the leader, with a
// larger fence than after, and returns which. On the way they may name others: a
// candidate that has lost its session by the time that it is its turn, for one.
func elected(t *testing.T, among []*process, after int) (leader, fence int) {
	t.Helper()
	fences, leads := make([]int, len(among)), make([]bool, len(among))
	for fence = after + 1; slices.Min(fences) < fence; {
		for i, p := range among {
			for fences[i] < fence {
				match := p.expect(`(LEADING|leads) with fence (\d+)$`)
				fences[i], leads[i] = number(t, match[1]), match[0] == "LEADING"
			}
			fence = fences[i]
		}
	}
	leader = slices.Index(leads, true)
	if leader < 0 || slices.Contains(leads[leader+1:], true) {
		t.Fatalf("fence %d: who says that it leads: %v", fence, leads)
	}
	return leader, fence
}
