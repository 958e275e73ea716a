package virtualtime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Five processes start at about the same time, in any order; some stop in the middle and
// start again with their directory. They form one group, always.
func TestForm_AnyOrderWithRestarts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(often(30)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inMembershipBubble(t, 6, func(g *membership) {
				r := rand.New(rand.NewPCG(seed, 0))
				var starting sync.WaitGroup
				for i := range 5 {
					delay, stops := time.Duration(r.Int64N(int64(3*time.Second))), r.IntN(3)
					var lives []time.Duration
					for range stops {
						lives = append(lives, time.Duration(r.Int64N(int64(2*time.Second))))
					}
					starting.Go(func() { g.formWithStops(i, delay, lives) })
				}
				starting.Wait()
				if g.T.Failed() {
					return
				}
				clusters := make(map[string]bool)
				for i := range 5 {
					clusters[g.Member(i).Status().Cluster.String()] = true
				}
				if len(clusters) != 1 {
					g.T.Errorf("%d groups", len(clusters))
				}
				g.awaitVoters(5, 0)
				g.wantGrant()
			}, noFounders(5))
		})
	}
}

// noFounders has the test start the members that form the group of n.
func noFounders(n int) grouptest.Option {
	return func(g *grouptest.Group) {
		grouptest.Newcomers(len(g.Nodes))(g)
		grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
			c.Expect, c.Voters, c.Join = n, n, nil
			for k := range n {
				c.Join = append(c.Join, fmt.Sprintf("127.0.0.1:%d", 7001+k))
			}
		})(g)
	}
}

// formWithStops starts a member after a delay. For each of lives it stops after that time,
// as if it had crashed, and starts again.
func (g *membership) formWithStops(i int, delay time.Duration, lives []time.Duration) {
	pass(delay)
	for _, life := range lives {
		ctx, cancel := context.WithTimeout(g.T.Context(), life)
		n, err := g.OpenWith(ctx, i)
		if err == nil {
			<-ctx.Done()
			grouptest.Kill(n)
		}
		cancel()
		pass(50 * time.Millisecond)
	}
	n, err := g.Open(i, 2*time.Minute)
	if err != nil {
		g.T.Errorf("member %d: %v", i, err)
		return
	}
	g.Nodes[i] = n
}

// load takes and releases a lock on random members all the time, until stop is called, which
// returns how often. An error of a call that a retry within 30 s does not hide fails the
// test.
func (g *membership) load(nodes func() []*conclave.Node) (stop func() int) {
	ctx, cancel := context.WithCancel(g.T.Context())
	var workers sync.WaitGroup
	var mu sync.Mutex
	granted, last := 0, conclave.Fence(0)
	for w := range 3 {
		workers.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				err := g.cycle(ctx, nodes, w+turn, func(f conclave.Fence) {
					mu.Lock()
					defer mu.Unlock()
					if granted++; f <= last {
						g.T.Errorf("fence %v after %v", f, last)
					}
					last = f
				})
				if err != nil {
					g.T.Errorf("worker %d: %v", w, err)
					return
				}
				pass(100 * time.Millisecond)
			}
		})
	}
	return func() int {
		cancel()
		workers.Wait()
		return granted
	}
}

// cycle acquires and releases the lock, on the next member after each failure.
func (g *membership) cycle(ctx context.Context, nodes func() []*conclave.Node, turn int, held func(conclave.Fence)) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		list := nodes()
		n := list[turn%len(list)]
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		l := n.FencedLock("load")
		f, err := l.Lock(bounded)
		if err == nil {
			held(f)
			_ = l.Unlock(bounded) // pursued in the background, or lost with its member
			cancel()
			return nil
		}
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		turn++
		pass(50 * time.Millisecond)
	}
}

// openNodes is the members that are open.
type openNodes struct {
	mu   sync.Mutex
	list []*conclave.Node
}

func (o *openNodes) add(n *conclave.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, n)
}

func (o *openNodes) remove(n *conclave.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(slices.Clone(o.list), func(other *conclave.Node) bool { return other == n })
}

func (o *openNodes) get() []*conclave.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list
}

// A group grows from one member to nine and shrinks to one under load: no call fails that a
// retry within its context would not hide.
func TestMembership_GrowAndShrinkUnderLoad(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	inMembershipBubble(t, 9, func(g *membership) {
		var open openNodes
		open.add(g.Nodes[0])
		stop := g.load(open.get)
		start := func(members ...int) {
			g.Start(members...)
			for _, i := range members {
				open.add(g.Nodes[i])
			}
		}
		ctx := grouptest.Within(g.T, time.Hour)
		grouptest.Must(g.T, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 5, ReplaceAfter: time.Minute}))
		start(1, 2)
		g.awaitVoters(3, 0)
		start(3, 4)
		g.awaitVoters(5, 0)
		start(5, 6, 7, 8)
		g.awaitVoters(5, 4)
		for _, i := range []int{0, 8, 3, 5, 1, 6, 2, 7} {
			open.remove(g.Nodes[i])
			g.leave(i)
		}
		g.awaitVoters(1, 0)
		if n := stop(); n < 100 {
			g.T.Errorf("%d grants", n)
		}
	}, grouptest.Newcomers(8), voters(3))
}

// A voter dies while its neighbour is being replaced: the group goes on and is complete again
// when standbys have taken both places.
func TestReplace_SecondFailureMeanwhile(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			inMembershipBubble(t, 7, func(g *membership) {
				ctx := grouptest.Within(g.T, time.Hour)
				g.Start(5, 6)
				g.awaitVoters(5, 2)
				grouptest.Must(g.T, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 5, ReplaceAfter: 10 * time.Second}))
				leader := g.Leader()
				voters := slices.DeleteFunc(g.voters(), func(i int) bool { return i == leader })
				g.Kill(voters[0])
				for !replacing(g.Nodes[leader]) {
					pass(time.Millisecond)
				}
				pass(after)
				g.Kill(leader)
				g.wantGrant()
				g.awaitRedundancy(2)
			}, grouptest.Newcomers(2), voters(5))
		})
	}
}

// replacing reports whether a voter is a standby, or about to be one.
func replacing(n *conclave.Node) bool {
	return slices.ContainsFunc(n.Status().Members, func(m conclave.Member) bool { return m.Role == conclave.Standby && !m.Alive })
}

// awaitRedundancy waits until that many voters may fail, as all running members see it.
func (g *membership) awaitRedundancy(n int) {
	g.T.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; pass(10 * time.Millisecond) {
		done := true
		for _, i := range g.Running() {
			done = done && g.Nodes[i].Status().Redundancy == n
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			g.T.Fatalf("no redundancy of %d: %+v", n, g.Nodes[g.Running()[0]].Status())
		}
	}
}
