package virtualtime

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// awaitLed waits until these members lead all groups, as many each but for one, as all running ones see it.
func (g *membership) awaitLed(within time.Duration, by ...int) {
	g.T.Helper()
	g.awaitFollowed()
	led := func(seenBy int) bool {
		_, counts := g.leaderships(seenBy)
		var preferred []int
		for at, i := range g.Running() {
			switch {
			case counts == nil:
				return false
			case slices.Contains(by, i):
				preferred = append(preferred, counts[at])
			case counts[at] > 0:
				return false
			}
		}
		return slices.Max(preferred) <= slices.Min(preferred)+1
	}
	for deadline := time.Now().Add(within); !all(g.Running(), led); pass(heartbeat) {
		if time.Now().After(deadline) {
			state, counts := g.leaderships(g.Running()[0])
			g.T.Fatalf("the running members %v lead %v groups, want all by %v: %s", g.Running(), counts, by, state)
		}
	}
}

func all(members []int, is func(int) bool) bool {
	return !slices.ContainsFunc(members, func(i int) bool { return !is(i) })
}

// ledAtOnce creates groups, and fails the test unless each has a leader among these members within half of an election timeout, on the member that has created it. In
// that time no leadership is transferred for its priority, and no follower's election timeout ends.
func (g *membership) ledAtOnce(names []string, by ...int) {
	g.T.Helper()
	seenBy := g.Running()[0]
	for _, name := range names {
		g.tenants(seenBy, name)
		pass(election / 2)
		at := slices.IndexFunc(g.Member(seenBy).Groups().Status(), func(s cluster.GroupStatus) bool { return s.Record.Name == name })
		s := g.Member(seenBy).Groups().Status()[at].Status
		if s == nil || !slices.ContainsFunc(by, func(i int) bool { return uint64(g.ID(i)) == s.Leader }) {
			g.T.Errorf("group %s: %+v, want it to be led by one of the members %v", name, s, by)
		}
	}
}

// The first leader of a new group is a voter of the highest priority, and there is one as soon if such a voter is down.
func TestLeaderPriority_FirstLeader(t *testing.T) {
	skipIfShort(t)
	priorities := grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) { c.LeaderPriority = []int{0, 1, 1, 2, 2}[i] })
	inMembershipBubble(t, 5, func(g *membership) {
		g.ledAtOnce([]string{"a", "b", "c", "d", "e"}, 3, 4)
		g.Kill(3)
		pass(time.Minute)
		g.ledAtOnce([]string{"f", "g", "h", "i", "j"}, 4)
		g.Kill(4)
		pass(time.Minute)
		g.ledAtOnce([]string{"k", "l", "m", "n", "o"}, 1, 2)
	}, priorities)
}

// Voters of the highest priority lead all groups, the default one among them, evenly, after each election and transfer. No session
// ends for it. While the ones with a higher priority are down others lead, and a restarted process counts with its new priority.
func TestLeaderPriority(t *testing.T) {
	skipIfShort(t)
	low := grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		if i == 2 {
			c.LeaderPriority = -1
		}
	})
	inMembershipBubble(t, 3, func(g *membership) {
		names := []string{"a", "b", "c", "d", "e"}
		within := time.Minute + spreadWithin(2*(1+len(names))) // each moves twice at most, and once a transfer may fail
		allTo := func(i int) {
			g.MustTransfer(g.Nodes[i], i)
			for _, name := range names {
				g.transferIn(name, i)
			}
		}
		g.tenants(0, names...)
		held := g.Nodes[0].WithGroup("a").FencedLock("held")
		grouptest.MustLock(g.T, held)
		allTo(2)
		g.awaitLed(within, 0, 1)
		g.wantNoMove(2)
		allTo(0)
		g.awaitLed(within, 0, 1)
		if _, err := held.Fence(); err != nil {
			g.T.Error(err)
		}
		allTo(2)
		g.Kill(0)
		g.awaitLed(within, 1)
		g.Configs[0].LeaderPriority = 5
		g.Start(0)
		g.awaitLed(within, 0)
		g.wantNoMove(1)
		g.Kill(0)
		g.awaitLed(within, 1)
		g.Configs[0].LeaderPriority = -5
		g.Start(0)
		g.awaitLed(within, 1)
		g.Configs[1].LeaderPriority = -5
		g.Kill(1)
		g.awaitLed(within, 2)
		g.Start(1)
		g.awaitLed(within, 2)
		g.wantTenants(names...)
	}, low)
}

// A voter that another one does not reach is given no leadership, whatever its priority: that one would have no leader. Nor is it given any to spread the leaders.
// Once they reach each other it is.
func TestLeaderPriority_VotersApart(t *testing.T) {
	skipIfShort(t)
	high := grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		if i == 2 {
			c.LeaderPriority = 1
		}
	})
	for name, options := range map[string][]grouptest.Option{"priority": {high}, "spread": nil} {
		t.Run(name, func(t *testing.T) {
			inMembershipBubble(t, 3, func(g *membership) {
				g.Net.Partition(1, 2)
				pass(time.Minute)
				g.MustTransfer(g.Nodes[0], 0)
				g.tenants(0, "a", "b", "c", "d")
				for _, name := range []string{"a", "b", "c", "d"} {
					g.transferIn(name, 0)
				}
				held := g.Nodes[1].WithGroup("a").FencedLock("held")
				grouptest.MustLock(g.T, held)
				pass(election) // until each leader knows that it leads
				g.wantNoMove(0)
				if _, err := held.Fence(); err != nil {
					g.T.Error(err)
				}
				g.Net.Heal(1, 2)
				within := 2*time.Minute + spreadWithin(5)
				if len(options) > 0 {
					g.awaitLed(within, 2)
				} else {
					g.awaitSpread(within)
				}
			}, options...)
		})
	}
}

// A leader that steps down transfers leadership to a voter of the highest priority, of those that are as up to date.
func TestLeaderPriority_Successor(t *testing.T) {
	for low := range 3 {
		t.Run(fmt.Sprint(low), func(t *testing.T) {
			inMembershipBubble(t, 3, func(g *membership) {
				others := g.Others(low)
				for _, from := range []int{others[0], others[1]} {
					g.MustTransfer(g.Nodes[from], from)
					pass(election) // until both have acknowledged everything
					if err := g.Nodes[from].TransferLeadership(g.T.Context(), 0); err != nil {
						g.T.Fatal(err)
					}
					if leader := g.Nodes[from].Status().Leader; leader == g.ID(low) {
						g.T.Errorf("%v leads next, which has the lowest priority", leader)
					}
				}
			}, grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
				if i == low {
					c.LeaderPriority = -1
				}
			}))
		})
	}
}
