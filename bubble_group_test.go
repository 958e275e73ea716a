package conclave

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/cluster"
)

// bubbleGroup is a group of whole nodes, as production runs them, in a bubble of
// testing/synctest: with their goroutines, timers, transport, gossip and
// database, on a network and disks in memory, in virtual time. That a bubble
// ends shows that every goroutine in it has.
type bubbleGroup struct {
	t       *testing.T
	net     *bubbleNet
	configs []Config
	seams []cluster.Seams
	nodes   []*Node // nil: not running
}

// The times of all bubbles but the long one: bounds of what the members have.
const (
	bubbleBeat     = 104 * time.Millisecond
	bubbleElection = 10 * bubbleBeat
	bubbleTTL      = 10 * time.Second
)

// beatOf differs between the members. In virtual time equal clocks would tick in
// the same instant, for ever: members would campaign against each other as often
// as they draw the same delay.
func beatOf(i int) time.Duration { return time.Duration(100+2*i) * time.Millisecond }

// inBubble runs a test with a group of n members in virtual time.
func inBubble(t *testing.T, n int, edit func(*Config, *cluster.Seams), test func(g *bubbleGroup)) {
	synctest.Test(t, func(t *testing.T) {
		g := &bubbleGroup{t: t, net: newBubbleNet(), configs: make([]Config, n), seams: make([]cluster.Seams, n), nodes: make([]*Node, n)}
		var addrs []string
		for i := range n {
			addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", 7001+i))
		}
		for i := range n {
			g.seams[i].FS = vfs.NewCrashableMem()
			g.configs[i] = Config{
				Name: fmt.Sprint("member-", i), Dir: "data", Bind: addrs[i], Join: addrs, Expect: n, Voters: n,
				HeartbeatInterval: beatOf(i), ElectionTimeout: 10 * beatOf(i), SessionTTL: bubbleTTL, Logger: testLogger(t, i),
				Dial: func(ctx context.Context, addr string) (net.Conn, error) { return g.net.dial(ctx, i, addr) },
			}
			if n == 1 {
				g.configs[i].Join = nil
			}
			if edit != nil {
				edit(&g.configs[i], &g.seams[i])
			}
		}
		t.Cleanup(g.closeAll)
		g.startAll(allOf(n)...)
		test(g)
	})
}

func allOf(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func (g *bubbleGroup) startAll(members ...int) {
	g.t.Helper()
	var wg sync.WaitGroup
	for _, i := range members {
		wg.Go(func() { g.start(i) })
	}
	wg.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
}

func (g *bubbleGroup) start(i int) {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	c := g.configs[i]
	c.Listener = g.net.listen(i, c.Bind)
	node, err := Open(cluster.WithSeams(ctx, g.seams[i]), &c)
	if err != nil {
		g.t.Errorf("member %d: %v", i, err)
		return
	}
	g.nodes[i] = node
}

// kill ends a process like kill -9 does: without a farewell, and the others see
// its connections break.
func (g *bubbleGroup) kill(i int) {
	n := g.nodes[i]
	g.nodes[i] = nil
	n.Close(expired)
}

// crash takes the power away from members' machines, in one moment: nothing more
// of them is heard, not even the end of their connections, and what they had not
// synced is lost.
func (g *bubbleGroup) crash(members ...int) {
	for _, i := range members {
		g.isolate(i, true)
		disk := g.seams[i].FS.(interface {
			CrashClone(vfs.CrashCloneCfg) *vfs.MemFS
		})
		g.seams[i].FS = disk.CrashClone(vfs.CrashCloneCfg{})
	}
	var wg sync.WaitGroup
	for _, i := range members {
		wg.Go(func() { g.kill(i) })
	}
	wg.Wait()
}

func (g *bubbleGroup) close(i int) {
	n := g.nodes[i]
	g.nodes[i] = nil
	if err := n.Close(g.t.Context()); err != nil {
		g.t.Errorf("closing member %d: %v", i, err)
	}
}

// isolate cuts a member off from all others, or lets it back.
func (g *bubbleGroup) isolate(i int, cut bool) {
	for j := range g.nodes {
		if j != i {
			g.net.set(i, j, cut)
		}
	}
}

func (g *bubbleGroup) closeAll() {
	var wg sync.WaitGroup
	for i, n := range g.nodes {
		if n != nil {
			wg.Go(func() { g.kill(i) })
		}
	}
	wg.Wait()
}

// leader is the member that all which run follow, but for one that is left out
// and is not what is looked for either: -1 is none. It lets time pass until
// there is one.
func (g *bubbleGroup) leader(except int) int {
	g.t.Helper()
	i := g.awaitLeader(except)
	if i < 0 {
		g.t.Fatal("no leader in a minute")
	}
	return i
}

// awaitLeader is leader for a goroutine that is not the test's: -1 is that there
// was none in a minute.
func (g *bubbleGroup) awaitLeader(except int) int {
	for range 600 {
		if i := g.followed(except); i >= 0 {
			return i
		}
		<-time.After(bubbleBeat) // virtual: a leader is there after some beats
	}
	return -1
}

func (g *bubbleGroup) followed(except int) int {
	var id MemberID
	for i, n := range g.nodes {
		if n == nil || i == except {
			continue
		}
		s := n.Status()
		if s.Leader == 0 || id != 0 && id != s.Leader {
			return -1
		}
		id = s.Leader
	}
	return slices.IndexFunc(g.nodes, func(n *Node) bool { return n != nil && n.id == id && n != g.nodeOf(except) })
}

func (g *bubbleGroup) nodeOf(i int) *Node {
	if i < 0 {
		return nil
	}
	return g.nodes[i]
}
