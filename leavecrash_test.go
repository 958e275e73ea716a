package conclave

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/core"
)

// Who has left is not needed any more, not even to find out that he has: the
// power of all who stay fails as soon as Leave has returned.
func TestAPowerCutAfterLeave(t *testing.T) {
	for _, members := range []int{2, 3, 4} {
		for _, leads := range []bool{true, false} {
			t.Run(fmt.Sprint(members, leads), func(t *testing.T) {
				inBubble(t, members, oddVoters(members), func(g *bubbleGroup) {
					x := g.leader(-1)
					if !leads {
						x = (x + 1) % members
					}
					g.leave(x)
					g.restartAfterPowerCut(g.running()...)
					g.wantLock()
				})
			})
		}
	}
}

// The one who leaves has it on his disk that he is out, and the disks of those
// who stay are slow. That is not enough for Leave to return: without him they
// would still need him when the power of all of them fails then.
func TestAPowerCutAfterLeaveWithSlowDisks(t *testing.T) {
	for _, members := range []int{2, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			var disks []*slowDisk
			inBubble(t, members, withSlowDisks(members, &disks), func(g *bubbleGroup) {
				x := (g.leader(-1) + 1) % members
				for _, i := range g.others(x) {
					disks[i].slow.Store(true)
				}
				g.leave(x)
				g.restartAfterPowerCut(g.running()...)
				g.wantLock()
			})
		})
	}
}

// Of four voters one leaves, and the power of those who stay fails then. Most of
// them come back, and not the one who was the first to know that he is out: they
// decide without both.
func TestAPowerCutAfterLeaveThatNotAllSurvive(t *testing.T) {
	var disks []*slowDisk
	inBubble(t, 4, withSlowDisks(4, &disks), func(g *bubbleGroup) {
		leader := g.leader(-1)
		x := (leader + 1) % 4
		rest := []int{(leader + 2) % 4, (leader + 3) % 4}
		for _, i := range rest {
			disks[i].slow.Store(true)
		}
		g.leave(x)
		g.crash(g.running()...)
		for _, i := range rest {
			g.isolate(i, false)
		}
		g.startAll(rest...)
		g.wantLock()
	})
}

// Two voters and a standby: the one who leaves is not to take a standby's word
// that he is out, as long as the other voter may forget it.
func TestAPowerCutAfterLeaveWithAStandby(t *testing.T) {
	var disks []*slowDisk
	inBubble(t, 4, withSlowDisks(3, &disks), func(g *bubbleGroup) {
		leader := g.leader(-1)
		var others []int // voters
		for i, n := range g.nodes {
			if i != leader && n.Status().Role == Voter {
				others = append(others, i)
			}
		}
		g.leave(others[0])
		disks[leader].slow.Store(true)
		g.leave(others[1])
		g.restartAfterPowerCut(g.running()...)
		g.wantLock()
	})
}

// withSlowDisks gives each member a disk that can be made slow.
func withSlowDisks(voters int, disks *[]*slowDisk) func(*Config, *cluster.Seams) {
	return func(c *Config, h *cluster.Seams) {
		c.Voters = voters | 1
		*disks = append(*disks, newSlowDisk(h.FS.(*vfs.MemFS)))
		h.FS = (*disks)[len(*disks)-1]
	}
}

// slowDisk takes its time, in a bubble, until what is written to the database is
// synced: longer than a member that is out takes to close, and less than what
// makes a leader step down.
type slowDisk struct {
	vfs.FS
	memory *vfs.MemFS
	slow   atomic.Bool
}

func newSlowDisk(memory *vfs.MemFS) *slowDisk {
	d := &slowDisk{memory: memory}
	d.FS = errorfs.Wrap(memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		synced := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		if synced && strings.HasSuffix(op.Path, ".log") && d.slow.Load() {
			<-time.After(bubbleElection * 9 / 10) // virtual
		}
		return nil
	}))
	return d
}

// CrashClone is the disk as it is when the power fails.
func (d *slowDisk) CrashClone(c vfs.CrashCloneCfg) *vfs.MemFS { return d.memory.CrashClone(c) }

// The power fails everywhere when the one who leaves has found out that he is
// out, and before he has noted it: those who stay need him to find out as well.
func TestAPowerCutDuringLeave(t *testing.T) {
	inBubble(t, 2, oddVoters(2), func(g *bubbleGroup) {
		x := 1 - g.leader(-1)
		sayLeft(g.t, g.nodes[x])
		for len(g.nodes[x].Status().Members) > 1 && g.nodes[x].Err() == nil {
			<-time.After(time.Millisecond) // Status is a view; virtual time
		}
		g.crash(x)
		g.crash(1 - x)
		g.isolate(x, false)
		refused := make(chan error, 1)
		go func() {
			_, err := g.open(x, time.Minute)
			refused <- err
		}()
		g.startAll(1 - x)
		g.wantLock()
		wantError(g.t, <-refused, ErrInvalid)
	})
}

// The one who leaves is behind: he hears that he is out from those who stay, and
// of his own command never.
func TestLeaveWithoutAnAnswer(t *testing.T) {
	deaf := make([]bool, 3)
	i := 0
	inBubble(t, 3, func(_ *Config, h *cluster.Seams) {
		member := i
		i++
		h.Effects = func(e *cluster.Effects) {
			e.Notifications = slices.DeleteFunc(e.Notifications, func(n core.Notification) bool { return deaf[member] && n.Call != nil })
		}
	}, func(g *bubbleGroup) {
		x := (g.leader(-1) + 1) % 3
		deaf[x] = true
		g.leave(x)
		g.wantLeft(x)
		g.wantLock()
	})
}

// All leave in the same moment. All but one are out, whoever that is; the last
// stays a member, and is a group of one when it is opened again.
func TestAllLeaveAtOnce(t *testing.T) {
	for _, members := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			inBubble(t, members, oddVoters(members), func(g *bubbleGroup) {
				g.leader(-1)
				outcomes := g.leaveAtOnce(allOf(members)...)
				var last []int // to be closed without having left
				for i, err := range outcomes {
					runsOn := errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnavailable)
					switch {
					case runsOn != (g.nodes[i] != nil):
						t.Errorf("%d runs on: %t; it was told: %v", i, !runsOn, err)
					case err != nil && !runsOn:
						wantError(t, err, ErrUnknown)
						last = append(last, i)
					}
				}
				if len(last)+len(g.running()) == 0 {
					t.Fatal("nobody is left")
				}
				g.startAll(last...)
				g.wantLock()
				for i, err := range outcomes {
					if err == nil {
						g.wantLeft(i)
					}
				}
			})
		})
	}
}

// Two leave in the same moment, and connect slowly. The last one stays until the
// other has heard that it is out: nobody else could tell it.
func TestTheLastToLeaveTellsTheOther(t *testing.T) {
	var slow atomic.Bool
	inBubble(t, 2, func(c *Config, h *cluster.Seams) {
		oddVoters(2)(c, h)
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if slow.Load() {
				<-time.After(2 * bubbleElection) // virtual
			}
			return dial(ctx, addr)
		}
	}, func(g *bubbleGroup) {
		g.leader(-1)
		slow.Store(true)
		outcomes := g.leaveAtOnce(0, 1)
		if (outcomes[0] == nil) == (outcomes[1] == nil) {
			g.t.Errorf("of two one can leave; they are told: %v, %v", outcomes[0], outcomes[1])
		}
	})
}

// Standbys do not decide. Of the voters one stays, though all leave in the same
// moment.
func TestTheLastVoterStays(t *testing.T) {
	inBubble(t, 5, func(c *Config, _ *cluster.Seams) { c.Voters = 3 }, func(g *bubbleGroup) {
		g.leader(-1)
		var voters, standbys []int
		for i, n := range g.nodes {
			if n.Status().Role == Voter {
				voters = append(voters, i)
			} else {
				standbys = append(standbys, i)
			}
		}
		stays := -1
		for i, err := range g.leaveAtOnce(voters...) {
			if err != nil {
				stays = voters[i]
			}
			if err != nil && g.nodes[voters[i]] == nil {
				g.start(voters[i])
			}
		}
		if stays < 0 {
			t.Fatal("no voter is left")
		}
		ctx := within(g.t, time.Minute)
		if _, err := g.nodes[standbys[0]].FencedLock("x").Lock(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A member that has left and whose vote is still needed is not told that it is
// out.
func TestLeftAndStillNeeded(t *testing.T) {
	inBubble(t, 3, nil, func(g *bubbleGroup) {
		leader := g.leader(-1)
		x, other := (leader+1)%3, (leader+2)%3
		g.isolate(other, true)
		<-time.After(2 * bubbleElection) // until the leader has not heard of it lately
		sayLeft(g.t, g.nodes[x])
		g.kill(x)
		_, err := g.open(x, 20*time.Second)
		wantError(t, err, ErrUnavailable)
		wantError(t, err, context.DeadlineExceeded)
		g.isolate(other, false)
		g.wantLeft(x)
		g.wantLock()
	})
}

// Two of three voters leave, and the third is not to be reached: the two go on, for
// the standbys, and do not spend their time on handing leadership to each other.
// When the third is back it goes on alone.
func TestThoseWhoHaveLeftGoOnUntilTheyCanGo(t *testing.T) {
	inBubble(t, 4, func(c *Config, _ *cluster.Seams) { c.Voters = 3 }, func(g *bubbleGroup) {
		g.leader(-1)
		isVoter := func(i int) bool { return g.nodes[i].Status().Role == Voter }
		voters := slices.DeleteFunc(allOf(4), func(i int) bool { return !isVoter(i) })
		standby := g.nodes[slices.IndexFunc(allOf(4), func(i int) bool { return !isVoter(i) })]
		g.isolate(voters[0], true)
		<-time.After(2 * bubbleElection) // until no leader has heard of it lately
		g.leader(voters[0])
		for _, i := range voters[1:] {
			sayLeft(g.t, g.nodes[i])
		}
		if _, err := standby.FencedLock("y").Lock(within(g.t, 10*time.Second)); err != nil {
			g.t.Error(err)
		}
		g.isolate(voters[0], false)
		for _, i := range voters[1:] {
			<-g.nodes[i].Done()
			g.nodes[i] = nil
		}
		g.wantLock()
	})
}

func oddVoters(members int) func(*Config, *cluster.Seams) {
	return func(c *Config, _ *cluster.Seams) { c.Voters = members | 1 }
}

func (g *bubbleGroup) leave(i int) {
	g.t.Helper()
	if err := g.leaveAtOnce(i)[0]; err != nil {
		g.t.Fatal(err)
	}
}

// leaveAtOnce has members leave, and returns what each of them is told.
func (g *bubbleGroup) leaveAtOnce(members ...int) []error {
	g.t.Helper()
	ctx := within(g.t, time.Minute)
	outcomes := make([]error, len(members))
	var leaving sync.WaitGroup
	for k, i := range members {
		n := g.nodes[i]
		leaving.Go(func() { outcomes[k] = n.Leave(ctx) })
	}
	leaving.Wait()
	for _, i := range members {
		if g.nodes[i].Err() != nil {
			g.nodes[i] = nil
		}
	}
	return outcomes
}

func (g *bubbleGroup) open(i int, patience time.Duration) (*Node, error) {
	c := g.configs[i]
	c.Listener = g.net.listen(i, c.Bind)
	return Open(cluster.WithSeams(within(g.t, patience), g.seams[i]), &c)
}

// wantLeft wants a member's directory to be refused, as it has left.
func (g *bubbleGroup) wantLeft(i int) {
	g.t.Helper()
	_, err := g.open(i, time.Minute)
	wantError(g.t, err, ErrInvalid)
}

func (g *bubbleGroup) running() (members []int) {
	for i, n := range g.nodes {
		if n != nil {
			members = append(members, i)
		}
	}
	return members
}

func (g *bubbleGroup) restartAfterPowerCut(members ...int) {
	g.t.Helper()
	g.crash(members...)
	for _, i := range members {
		g.isolate(i, false)
	}
	g.startAll(members...)
}

// wantLock wants a member that runs to get a lock.
func (g *bubbleGroup) wantLock() {
	g.t.Helper()
	if _, err := g.nodes[g.running()[0]].FencedLock("x").Lock(within(g.t, time.Minute)); err != nil {
		g.t.Error(err)
	}
}

// The last of the others says farewell while a question whether it is alive is on
// its way. Close does not leave behind who waits for the answer.
func TestCloseWhenTheOtherHasGone(t *testing.T) {
	inBubble(t, 2, oddVoters(2), func(g *bubbleGroup) {
		g.leader(-1)
		g.isolate(1, true)
		<-time.After(time.Second) // virtual: it is asked twice a second
		g.nodes[1].member.AnnounceShutdown()
		g.kill(1)
		g.isolate(1, false)
		isAlive := func(m Member) bool { return m.Alive && m.ID != g.nodes[0].id }
		for slices.ContainsFunc(g.nodes[0].Status().Members, isAlive) {
			<-time.After(time.Millisecond) // Status is a view; virtual time
		}
		g.kill(0)
	})
}

// A member that can be reached is closed while another is looked for in vain. It does
// not look as well, for somebody else, when it is gone. (gossip once did, for 250 ms.)
func TestCloseWhileAnotherIsLookedFor(t *testing.T) {
	for at := 500 * time.Millisecond; at < 2500*time.Millisecond; at += 50 * time.Millisecond {
		inBubble(t, 3, nil, func(g *bubbleGroup) {
			g.leader(-1)
			g.isolate(1, true)
			<-time.After(at) // virtual
			g.kill(2)
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			for stack := range strings.SplitSeq(string(stacks), "\n\n") {
				if strings.Contains(stack, "handleIndirectPing") {
					g.t.Errorf("after %v this is left behind:\n%s", at, stack)
				}
			}
		})
	}
}
