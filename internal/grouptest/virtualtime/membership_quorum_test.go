package virtualtime

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Members leave or are removed in the moment in which another one dies. The dead one does not
// count as active, so no voter is demoted that the group needs.

// wantQuorum checks that a member can use the group.
func (g *membership) wantQuorum(i int) {
	g.T.Helper()
	pass(2 * time.Minute)
	if _, err := g.Nodes[i].FencedLock("x").Lock(grouptest.Within(g.T, time.Minute)); err != nil {
		v, s := g.roles(i)
		g.T.Errorf("the group has lost its quorum, voters %d, standbys %d: %v", v, s, err)
	}
}

// A member calls Leave while all three are up, and the leader dies before it has the command.
func TestLeave_LeaderDies(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 3, func(g *membership) {
		leader := g.Leader()
		leaver, other := g.Others(leader)[0], g.Others(leader)[1]
		pass(3 * time.Second)
		g.Net.PartitionOneWay(leaver, leader)
		left := make(chan error, 1)
		n := g.Nodes[leaver]
		go func() { left <- n.Leave(grouptest.Within(g.T, time.Hour)) }()
		pass(20 * time.Millisecond)
		g.Kill(leader)
		g.wantQuorum(other)
		g.Net.Heal(leaver, leader)
		g.Start(leader)
		grouptest.Must(g.T, <-left)
		g.Nodes[leaver] = nil
	})
}

// A member is removed 300 ms after another one has died.
func TestRemove_AnotherHasJustDied(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 3, func(g *membership) {
		leader := g.Leader()
		removed, dead := g.Others(leader)[0], g.Others(leader)[1]
		pass(3 * time.Second)
		id := g.ID(removed)
		g.Kill(dead)
		pass(300 * time.Millisecond)
		err := g.Nodes[leader].RemoveMember(grouptest.Within(g.T, 30*time.Second), id)
		grouptest.WantError(g.T, err, conclave.ErrUnknown)
		g.wantQuorum(leader)
	})
}

// changesLogged is a handler that keeps the membership changes that leaders propose.
type changesLogged struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (*changesLogged) Enabled(context.Context, slog.Level) bool { return true }
func (c *changesLogged) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c *changesLogged) WithGroup(string) slog.Handler          { return c }
func (c *changesLogged) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "changing the membership" {
		r.Attrs(func(a slog.Attr) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.list = append(c.list, a.Value.String())
			return true
		})
	}
	return nil
}

// The leader leaves a group of three voters and a standby that is up to date, but further away
// than they are. The next leader waits for its answer: the standby takes the place in one joint
// change, so that never only two vote.
func TestLeave_LeaderIsReplacedByDistantStandby(t *testing.T) {
	t.Parallel()
	log := new(changesLogged)
	inMembershipBubble(t, 4, func(g *membership) {
		for i := range 4 {
			for j := range 4 {
				if i != j {
					g.Net.Delay(i, j, time.Duration(1+9*(i/3+j/3))*time.Millisecond)
				}
			}
		}
		g.Start(3)
		g.awaitVoters(3, 1)
		pass(10 * time.Second)
		g.leave(g.Leader())
		g.awaitVoters(3, 0)
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, change := range log.list {
			if strings.HasPrefix(change, "demoting") {
				g.T.Errorf("%q", log.list)
			}
		}
	}, grouptest.Newcomers(1), grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.Logger = slog.New(log) }))
}

// A voter that was down meets a new voter first, which is endorsed, and gets the log from the
// leader while it has no connection to that one. When the leader dies, the two are the quorum:
// the voter must have kept its connection to the new one.
func TestJoin_EndorsedVoterIsKept(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, phase := range []time.Duration{0, 100 * time.Millisecond} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			t.Parallel()
			inMembershipBubble(t, 4, func(g *membership) { endorsedVoterIsKept(g, phase) },
				grouptest.Newcomers(1), grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
					c.HeartbeatInterval = time.Duration(300+2*i) * time.Millisecond
					c.ElectionTimeout = 10 * c.HeartbeatInterval
				}))
		})
	}
}

func endorsedVoterIsKept(g *membership, phase time.Duration) {
	g.replacedWhileDown()
	newcomer := g.Member(3).Status().ID
	g.Net.Partition(0, 2)
	slow := func(d time.Duration) {
		for _, i := range []int{0, 3} {
			g.Net.Delay(i, 2, d)
			g.Net.Delay(2, i, d)
		}
	}
	slow(50 * time.Millisecond)
	earlier := g.Member(2)
	opened := make(chan error, 1)
	go func() {
		n, err := g.Open(2, 5*time.Minute)
		g.Nodes[2] = n
		opened <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; pass(5 * time.Millisecond) {
		if m := g.Member(2); m != earlier && m.IsMember(newcomer) {
			break
		}
		if time.Now().After(deadline) {
			g.T.Fatal("never endorsed")
		}
	}
	g.Net.Partition(3, 2)
	pass(phase)
	g.Net.Heal(0, 2)
	pass(2 * time.Second)
	slow(0)
	g.Net.Heal(3, 2)
	grouptest.Must(g.T, <-opened)
	pass(time.Minute)
	g.Kill(0)
	g.wantQuorum(2)
}

// replacedWhileDown makes a group of the voters 0, 2 and 3, of which 2 was down while 3 took the
// place of 1, and leaves it down. 0 leads, and the log that 2 lacks takes several messages.
func (g *membership) replacedWhileDown() {
	ctx := grouptest.Within(g.T, time.Hour)
	grouptest.Must(g.T, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3}))
	g.Kill(2)
	for k, size := range []int{500, 500, 60} { // the first message has two of them
		_, err := g.Nodes[0].KV().Put(ctx, fmt.Sprint("before-", k), make([]byte, size<<10))
		grouptest.Must(g.T, err)
	}
	g.Start(3)
	g.awaitVoters(3, 1)
	g.leave(1)
	g.awaitVoters(3, 0)
	if g.Leader() != 0 {
		grouptest.Must(g.T, g.Nodes[3].TransferLeadership(ctx, g.ID(0)))
		g.Leader()
	}
}
