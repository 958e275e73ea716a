package virtualtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// roles returns which members vote and which are standbys, as member i sees it.
func (g *membership) roles(i int) (voters, standbys []int) {
	for _, m := range g.Nodes[i].Status().Members {
		k := slices.IndexFunc(g.Nodes, func(n *conclave.Node) bool { return n != nil && n.Status().ID == m.ID })
		if m.Role == conclave.Voter {
			voters = append(voters, k)
		} else {
			standbys = append(standbys, k)
		}
	}
	slices.Sort(voters)
	slices.Sort(standbys)
	return voters, standbys
}

// awaitVoters waits until that many members vote, and that many are standbys, as all running
// members see it.
func (g *membership) awaitVoters(voters, standbys int) {
	g.T.Helper()
	done := func() bool {
		for _, i := range g.Running() {
			v, s := g.roles(i)
			if len(v) != voters || len(s) != standbys {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(3 * time.Minute); !done(); grouptest.Pass(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, i := range g.Running() {
				v, s := g.roles(i)
				g.T.Errorf("member %d: voters %d, standbys %d", i, v, s)
			}
			g.T.Fatalf("want %d voters and %d standbys", voters, standbys)
		}
	}
}

// wantGrant checks that a lock is granted and released.
func (g *membership) wantGrant() {
	g.T.Helper()
	ctx := grouptest.Within(g.T, time.Minute)
	l := g.Nodes[g.Running()[0]].FencedLock("grant")
	_, err := l.Lock(ctx)
	grouptest.Must(g.T, err)
	grouptest.Must(g.T, l.Unlock(ctx))
}

// A group of one grows to nine members, of which five vote, and shrinks to one.
func TestJoin_GrowAndShrink(t *testing.T) {
	inMembershipBubble(t, 9, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		want := func(voters, standbys int) {
			t.Helper()
			g.awaitVoters(voters, standbys)
			g.wantGrant()
		}
		want(1, 0)
		g.Start(1)
		want(1, 1)
		g.Start(2)
		want(3, 0)
		grouptest.Must(t, g.Nodes[1].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 5, ReplaceAfter: time.Minute}))
		g.Start(3, 4)
		want(5, 0)
		g.Start(5, 6, 7, 8)
		want(5, 4)
		for i := range 6 {
			g.leave(i)
		}
		want(3, 0)
		g.leave(6)
		want(2, 0)
		g.leave(7)
		want(1, 0)
		_, err := g.Open(0, 30*time.Second)
		grouptest.WantError(t, err, conclave.ErrRemoved)
	}, grouptest.Newcomers(8), voters(3))
}

// A standby replaces a voter that is dead for ReplaceAfter; the voter comes back as a standby.
func TestReplace_DeadVoter(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		g.Start(3)
		g.awaitVoters(3, 1)
		grouptest.Must(t, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3, ReplaceAfter: 20 * time.Second}))
		g.Kill(1)
		start := time.Now()
		for {
			if v, _ := g.roles(0); slices.Contains(v, 3) {
				break
			}
			grouptest.Pass(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 25*time.Second || took < 15*time.Second {
			t.Errorf("replaced after %v", took)
		}
		// Member 3 votes from the joint configuration on, in which member 1 still counts: with
		// member 2 it would be two dead of three voters.
		g.awaitRedundancy(1)
		g.Kill(2) // two of three voters remain
		g.wantGrant()
		g.Start(1, 2)
		g.awaitVoters(3, 1)
		if _, s := g.roles(0); !slices.Equal(s, []int{1}) {
			t.Errorf("standbys %d", s)
		}
	}, grouptest.Newcomers(1))
}

// A second voter is lost while a standby replaces the first one, in the joint configuration. A majority of the voters
// before is needed until that is left, so there is none, and each member says so, until one of the two returns.
func TestReplace_SecondVoterLostMeanwhile(t *testing.T) {
	disks, slow := slowDisks(4)
	inMembershipBubble(t, 4, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		g.Start(3)
		g.awaitVoters(3, 1)
		grouptest.Must(t, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3, ReplaceAfter: 20 * time.Second}))
		g.Kill(1)
		for _, d := range disks {
			d.slow.Store(true) // several syncs pass until the joint configuration is left
		}
		replaces := func(i int) bool {
			v, _ := g.roles(i)
			return slices.Contains(v, 3)
		}
		for !replaces(0) || !replaces(2) || !replaces(3) {
			grouptest.Pass(10 * time.Millisecond)
		}
		g.Kill(2)
		for _, d := range disks {
			d.slow.Store(false)
		}
		pass(time.Minute)
		for _, i := range g.Running() {
			h := g.Nodes[i].Health()
			if h.Redundancy != -1 || !strings.Contains(fmt.Sprint(h), "this member reaches 1 of 3 voters, no majority") {
				t.Errorf("member %d: %+v", i, h)
			}
		}
		g.Start(1)
		g.awaitVoters(3, 1)
		g.wantGrant()
	}, grouptest.Newcomers(1), slow)
}

// A member in memory that died is replaced by one that joins, and removed.
func TestReplace_MemberWithoutDirectory(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		t := g.T
		dead := g.Nodes[1].Status().ID
		g.Kill(1)
		g.Start(3)
		g.awaitVoters(3, 0)
		for _, m := range g.Nodes[0].Status().Members {
			if m.ID == dead {
				t.Error("the dead member is still there")
			}
		}
	}, grouptest.Newcomers(1), inMemory)
}

func inMemory(g *grouptest.Group) {
	grouptest.Edit(func(_ int, c *conclave.Config, s *cluster.Seams) { c.Dir, s.FS = "", nil })(g)
}

// A voter whose directory was wiped joins as a new member, under its old name and address,
// and the lock that it had acknowledged stays granted.
func TestJoin_WipedVoter(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		leader := g.Leader()
		others := g.Others(leader)
		s, err := g.Nodes[leader].NewSession(ctx, &conclave.SessionConfig{TTL: time.Hour, NoChecks: true})
		grouptest.Must(t, err)
		lock := s.FencedLock("x")
		fence, err := lock.Lock(ctx)
		grouptest.Must(t, err)
		wiped, away := others[0], others[1]
		old := g.Nodes[wiped].Status().ID
		g.Kill(wiped, away)
		g.Seams[wiped].FS = vfs.NewCrashableMem()
		// It can be admitted only by a quorum of the old voters, which there is not.
		if _, err := g.Open(wiped, 20*time.Second); err == nil {
			t.Fatal("admitted without a quorum")
		}
		g.Start(away)
		g.Start(wiped)
		if g.Nodes[wiped].Status().ID == old {
			t.Fatal("it has its old ID")
		}
		if _, err := g.Nodes[wiped].FencedLock("x").TryLock(ctx); err == nil {
			t.Error("the lock is granted twice")
		}
		grouptest.Must(t, lock.Unlock(ctx))
		next, err := g.Nodes[wiped].FencedLock("x").Lock(ctx)
		if grouptest.Must(t, err); next <= fence {
			t.Errorf("fence %v after %v", next, fence)
		}
		grouptest.Must(t, g.Nodes[leader].RemoveMember(ctx, old))
		g.awaitVoters(3, 0)
	})
}

// A member that was down while another one joined and took the lead knows nothing of it. The
// members that it knows vouch for the leader, so it accepts its connections and catches up.
func TestJoin_LeaderUnknownToLaggingMember(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		ctx := grouptest.Within(g.T, time.Hour)
		grouptest.Must(g.T, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3, ReplaceAfter: 10 * time.Second}))
		g.Kill(2)
		g.Start(3)
		g.awaitVoters(3, 1)
		for deadline := time.Now().Add(time.Minute); ; grouptest.Pass(100 * time.Millisecond) {
			if v, _ := g.roles(0); slices.Contains(v, 3) {
				break
			}
			if time.Now().After(deadline) {
				g.T.Fatal("not replaced")
			}
		}
		newcomer := g.Nodes[3].Status().ID
		grouptest.Must(g.T, g.Nodes[0].TransferLeadership(ctx, newcomer))
		g.Start(2)
		g.awaitVoters(3, 1)
		g.wantGrant()
		if leader := g.Nodes[2].Status().Leader; leader != newcomer {
			g.T.Errorf("member 2 follows %v, want %v", leader, newcomer)
		}
	}, grouptest.Newcomers(1))
}

// While a voter is down, more members have joined, each by the one before, than endorsements reach back. One of the
// members that it knows is still there, and vouches for the leader, which it knows nothing of.
func TestJoin_LeaderBehindEndorsements(t *testing.T) {
	const newcomers = identity.MaxEndorsements + 1
	inMembershipBubble(t, 3+newcomers, func(g *membership) {
		ctx := grouptest.Within(g.T, time.Hour)
		grouptest.Must(g.T, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3}))
		g.Kill(2)
		last := 1
		for i := 3; i < 3+newcomers; i++ {
			g.Configs[i].Join = []string{g.Configs[last].Bind}
			g.Start(i)
			g.awaitVoters(3, 1)
			g.leave(last)
			g.awaitVoters(3, 0)
			last = i
		}
		leader := g.Nodes[last].Status().ID
		if g.Nodes[0].Status().Leader != leader {
			grouptest.Must(g.T, g.Nodes[0].TransferLeadership(ctx, leader))
		}
		g.Start(2)
		g.awaitRedundancy(1)
		g.wantGrant()
		if got := g.Nodes[2].Status().Leader; got != leader {
			g.T.Errorf("member 2 follows %v, want %v", got, leader)
		}
	}, grouptest.Newcomers(newcomers))
}

// While a voter is down, all members that it knows leave and others take their places. It is
// needed for the quorum when it returns: the new members are endorsed by those that it knows.
// They dial it, or it has moved and dials one of them.
func TestJoin_AllKnownMembersReplacedMeanwhile(t *testing.T) {
	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprintf("moved=%v", moved), func(t *testing.T) {
			inMembershipBubble(t, 5, func(g *membership) {
				ctx := grouptest.Within(g.T, time.Hour)
				grouptest.Must(g.T, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3}))
				g.Kill(2)
				for i := range 2 {
					g.Start(3 + i)
					g.awaitVoters(3, 1)
					g.leave(i)
					g.awaitVoters(3, 0)
				}
				g.Kill(3)
				if moved {
					g.Configs[2].Bind, g.Configs[2].Join = "127.0.0.1:7009", []string{g.Configs[4].Bind}
				}
				g.Start(2)
				g.awaitVoters(3, 0)
				g.wantGrant()
				g.Start(3)
				g.awaitRedundancy(1)
			}, grouptest.Newcomers(2))
		})
	}
}
