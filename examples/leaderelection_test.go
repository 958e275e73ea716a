//go:build unix

package examples

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// After the leader is killed another candidate leads with a larger fence. That
// one is interrupted, and the last candidate leads at once.
func TestLeaderElection_LeaderKilledAndInterrupted(t *testing.T) {
	t.Parallel()
	all := startGroup(t, "leaderelection", nil, "-ttl", "10s", "-tick", "100ms")
	leader, fence := elected(t, all[:], 0)
	all[leader].expectKillCommand()
	all[leader].expect(fmt.Sprintf("tick 2 with fence %d$", fence))

	all[leader].kill()
	rest := []*process{all[(leader+1)%3], all[(leader+2)%3]}
	successor, next := elected(t, rest, fence)
	rest[successor].expect(fmt.Sprintf("tick 1 with fence %d$", next))

	// Both have printed the leader, so the last one is a candidate, and the group
	// has a majority until the other one has closed.
	rest[successor].signal(os.Interrupt)
	rest[successor].expect("resigning")
	elected(t, rest[1-successor:2-successor], next)
	rest[successor].expect("closed$")
	if status := rest[successor].wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// elected waits until these processes agree on one of them as the leader, with a
// fence larger than after, and returns it. Meanwhile they may print others, such
// as a candidate whose session has expired by the time it is elected.
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
		t.Fatalf("fence %d: got leaders %v, want exactly one", fence, leads)
	}
	return leader, fence
}
