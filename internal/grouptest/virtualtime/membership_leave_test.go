package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// membership is a group that members leave.
type membership struct{ *grouptest.Group }

func inMembershipBubble(t *testing.T, members int, test func(g *membership), opts ...grouptest.Option) {
	t.Helper()
	grouptest.InBubble(t, members, func(g *grouptest.Group) { test(&membership{g}) }, opts...)
}

func voters(n int) grouptest.Option {
	return grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.Voters = n })
}

// voters lists the members that vote.
func (g *membership) voters() []int {
	return slices.DeleteFunc(g.All(), func(i int) bool { return g.Nodes[i].Status().Role != conclave.Voter })
}

// leave has a member leave.
func (g *membership) leave(i int) {
	g.T.Helper()
	grouptest.Must(g.T, g.leaveAtOnce(i)[0])
}

// leaveAtOnce has members leave at the same time, and returns what each Leave
// returns.
func (g *membership) leaveAtOnce(members ...int) []error {
	g.T.Helper()
	ctx := grouptest.Within(g.T, time.Minute)
	outcomes := make([]error, len(members))
	var leaving sync.WaitGroup
	for k, i := range members {
		n := g.Nodes[i]
		leaving.Go(func() { outcomes[k] = n.Leave(ctx) })
	}
	leaving.Wait()
	for _, i := range members {
		if g.Nodes[i].Err() != nil {
			g.Nodes[i] = nil
		}
	}
	return outcomes
}

// wantRemoved checks that a removed member's directory is refused.
func (g *membership) wantRemoved(i int) {
	g.T.Helper()
	_, err := g.Open(i, time.Minute)
	grouptest.WantError(g.T, err, conclave.ErrRemoved)
}

// wantNoMember checks that a member that has left cannot return. Its directory records the
// removal only if its own log had it. Otherwise a majority of its last known voters
// refuses it, or it waits for them in vain if they have left too.
func (g *membership) wantNoMember(i int) {
	g.T.Helper()
	n, err := g.Open(i, time.Minute)
	if n != nil || !errors.Is(err, conclave.ErrRemoved) && !errors.Is(err, conclave.ErrUnavailable) {
		g.T.Errorf("member %d has left and is opened again: %v", i, err)
	}
}

func (g *membership) restartAfterPowerLoss() {
	g.T.Helper()
	members := g.Running()
	g.Crash(members...)
	g.Restart(members...)
}

// wantLock checks that a running member gets a lock.
func (g *membership) wantLock() {
	g.T.Helper()
	if _, err := g.Nodes[g.Running()[0]].FencedLock("x").Lock(grouptest.Within(g.T, time.Minute)); err != nil {
		g.T.Error(err)
	}
}

// A lagging member learns of its removal from the others, and never of the outcome
// of its own command.
func TestLeave_OutcomeLost(t *testing.T) {
	t.Parallel()
	var lose [3]atomic.Bool
	inMembershipBubble(t, 3, func(g *membership) {
		x := (g.Leader() + 1) % 3
		lose[x].Store(true)
		g.leave(x)
		g.wantRemoved(x)
		g.wantLock()
	}, grouptest.Edit(func(i int, _ *conclave.Config, s *cluster.Seams) {
		grouptest.LoseOutcomes(s, lose[i].Load)
	}))
}

// Leave waits for connections, which a member that has just started may not have yet.
func TestLeave_BeforeConnected(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 3, func(g *membership) {
		x := (g.Leader() + 1) % 3
		g.Disconnect(x)
		pass(time.Millisecond)
		left := make(chan error, 1)
		go func() { left <- g.Nodes[x].Leave(grouptest.Within(g.T, time.Minute)) }()
		pass(time.Millisecond)
		g.Net.Rejoin(x)
		grouptest.Must(g.T, <-left)
		g.Nodes[x] = nil
		g.wantRemoved(x)
		g.wantLock()
	})
}

// All leave at the same time. All but one are removed; the last remains a member,
// and is a group of one when it is opened again.
func TestLeave_AllAtOnce(t *testing.T) {
	for _, members := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			inMembershipBubble(t, members, func(g *membership) {
				g.Leader()
				outcomes := g.leaveAtOnce(g.All()...)
				var closed []int // and not removed
				for i, err := range outcomes {
					runs := errors.Is(err, conclave.ErrLastVoter) || errors.Is(err, conclave.ErrUnavailable)
					switch {
					case runs != (g.Nodes[i] != nil):
						t.Errorf("member %d runs: %t; Leave returned %v", i, !runs, err)
					case err != nil && !runs:
						grouptest.WantError(t, err, conclave.ErrUnknown)
						closed = append(closed, i)
					}
				}
				if len(closed)+len(g.Running()) == 0 {
					t.Fatal("all members were removed")
				}
				g.Start(closed...)
				g.wantLock()
				for i, err := range outcomes {
					if err == nil {
						g.wantNoMember(i)
					}
				}
			})
		})
	}
}

// Two leave at the same time, and dialling is slow. The last one waits until the
// other has learned of its removal, as no other member can tell it.
func TestLeave_TwoAtOnceSlowDial(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	inMembershipBubble(t, 2, func(g *membership) {
		g.Leader()
		slow.Store(true)
		outcomes := g.leaveAtOnce(0, 1)
		if (outcomes[0] == nil) == (outcomes[1] == nil) {
			g.T.Errorf("Leave returned %v and %v; want one success", outcomes[0], outcomes[1])
		}
	}, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if slow.Load() {
				pass(2 * election)
			}
			return dial(ctx, addr)
		}
	}))
}

// All voters leave at once, and standbys vote in their place.
func TestLeave_AllVotersAtOnce(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 5, func(g *membership) {
		g.Leader()
		voters := g.voters()
		ids := make(map[int]conclave.MemberID)
		for _, v := range voters {
			ids[v] = g.Nodes[v].Status().ID
		}
		for i, err := range g.leaveAtOnce(voters...) {
			if err != nil {
				g.T.Errorf("member %d: %v", voters[i], err)
			}
		}
		g.wantGrant()
		for _, i := range g.Running() {
			for _, v := range voters {
				grouptest.Must(g.T, g.Member(i).Removals().AwaitRemoval(grouptest.Within(g.T, time.Minute), uint64(ids[v])))
			}
		}
		for _, i := range voters {
			g.wantNoMember(i)
		}
	}, voters(3))
}

// Two of three voters are to be removed, and the third is unreachable: the two keep
// serving the standby, and do not transfer leadership back and forth. When the third is
// reachable again, it becomes the only voter.
func TestLeave_ServesUntilQuorumReachable(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 4, func(g *membership) {
		g.Leader()
		voters := g.voters()
		standby := g.Nodes[slices.IndexFunc(g.All(), func(i int) bool { return !slices.Contains(voters, i) })]
		g.Net.Isolate(voters[0])
		pass(2 * election) // until no leader counts it as reachable
		g.LeaderWithout(voters[0])
		for _, i := range voters[1:] {
			g.RequestRemoval(i)
		}
		if _, err := standby.FencedLock("y").Lock(grouptest.Within(g.T, 10*time.Second)); err != nil {
			g.T.Error(err)
		}
		g.Net.Rejoin(voters[0])
		for _, i := range voters[1:] {
			<-g.Nodes[i].Done()
			g.Nodes[i] = nil
		}
		g.wantLock()
	}, voters(3))
}
