package virtualtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// leaderships describes which member leads which group since which term, as a running member sees it, and returns how many groups each
// running member leads; nil: a group has no leader among them.
func (g *membership) leaderships(seenBy int) (state string, counts []int) {
	of := g.Member(seenBy).Replica().Status()
	leaders := []uint64{of.Leader}
	state = fmt.Sprintf("default: %x in term %d", of.Leader, of.Term)
	for _, s := range g.Member(seenBy).Groups().Status() {
		if s.Status != nil {
			leaders = append(leaders, s.Status.Leader)
			state += fmt.Sprintf(", %s: %x in term %d", s.Record.Name, s.Status.Leader, s.Status.Term)
		}
	}
	led := 0
	for _, i := range g.Running() {
		id, n := uint64(g.ID(i)), 0
		for _, l := range leaders {
			if l == id {
				n++
			}
		}
		counts = append(counts, n)
		led += n
	}
	if led < len(leaders) {
		return state, nil
	}
	return state, counts
}

// awaitSpread waits until no running member leads two groups more than another one, as all of them see it.
func (g *membership) awaitSpread(within time.Duration) {
	g.T.Helper()
	g.awaitFollowed()
	spread := func() bool {
		for _, i := range g.Running() {
			if _, counts := g.leaderships(i); counts == nil || slices.Max(counts) > slices.Min(counts)+1 {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(within); !spread(); pass(heartbeat) {
		if time.Now().After(deadline) {
			state, counts := g.leaderships(g.Running()[0])
			g.T.Fatalf("the members lead %v groups: %s", counts, state)
		}
	}
}

// wantNoMove checks that no leader changes for some minutes, as a member sees it.
func (g *membership) wantNoMove(seenBy int) {
	g.T.Helper()
	before, _ := g.leaderships(seenBy)
	pass(2 * time.Minute)
	if after, _ := g.leaderships(seenBy); after != before {
		g.T.Errorf("leaders have changed from\n%s to\n%s", before, after)
	}
}

// spreadWithin bounds how long n leaderships take to move after the last disturbance: each waits for at most 7 election timeouts, and for
// as long again if the voter is not up to date at once.
func spreadWithin(n int) time.Duration { return time.Duration(2*7*n) * election }

// A member that was down leads its share of the groups again soon after its return, whether it led the default group or not. No session
// ends and no lock is lost for that, and afterwards leaders stay.
func TestSpread_MemberRestarts(t *testing.T) {
	skipIfShort(t)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for next, what := range []string{"the default group's leader", "a follower"} {
		t.Run(what, func(t *testing.T) {
			inMembershipBubble(t, 3, func(g *membership) {
				t := g.T
				g.tenants(0, names...)
				g.awaitSpread(spreadWithin(len(names)))
				down := (g.Leader() + next) % 3
				other := (down + 1) % 3
				var held []*conclave.FencedLock
				for _, name := range names {
					held = append(held, g.Nodes[other].WithGroup(name).FencedLock("held"))
					grouptest.MustLock(t, held[len(held)-1])
				}
				g.Kill(down)
				pass(time.Minute)
				g.Start(down)
				g.awaitSpread(spreadWithin(len(names)))
				g.wantNoMove(other)
				for i, l := range held {
					if _, err := l.Fence(); err != nil {
						t.Errorf("%s: %v", names[i], err)
					}
				}
				g.wantTenants(names...)
			})
		})
	}
}

// While a voter is partitioned leaders stay, however uneven, and move when it is back.
func TestSpread_MemberPartitioned(t *testing.T) {
	skipIfShort(t)
	const partitioned, leader = 2, 0
	names := []string{"a", "b", "c", "d"}
	option, all := journals(3)
	inMembershipBubble(t, 3, func(g *membership) {
		g.MustTransfer(g.Nodes[leader], leader)
		g.tenants(leader, names...)
		g.awaitSpread(spreadWithin(len(names)))
		g.Disconnect(partitioned)
		for _, name := range names {
			g.transferIn(name, leader)
		}
		pass(election) // until the leader knows that it leads
		g.wantNoMove(leader)
		g.Net.Rejoin(partitioned)
		g.awaitSpread(time.Minute + spreadWithin(len(names)))
		g.wantNoMove(leader)
		moved := lines(g.T, all[leader], 0, `level=INFO msg="leadership transferred to spread the leaders"`)
		if len(moved) == 0 || !strings.Contains(moved[0], " group=") || !strings.Contains(moved[0], " toName=member-") {
			g.T.Errorf("logged: %q", moved)
		}
	}, option)
}
