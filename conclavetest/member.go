package conclavetest

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// member is one member of a group, across restarts.
type member struct {
	dir     string
	addr    string         // of its latest start; used on the test's goroutine only
	node    *conclave.Node // guarded by the group's mu
	running bool           // guarded by the group's mu
}

// start is one start of a member and its result.
type start struct {
	index int
	cfg   conclave.Config
	node  *conclave.Node
	err   error
}

// Kill stops members at the same time without a graceful shutdown, like crashes of their
// processes. Their disks keep all acknowledged writes.
func (g *Group) Kill(members ...int) {
	g.t.Helper()
	var nodes []*conclave.Node
	for _, i := range members {
		g.check(i)
		nodes = append(nodes, g.markStopped(i))
	}
	g.kill(nodes)
}

// markStopped marks a member as stopped before it is killed, so that it does not count
// as the leader any more.
func (g *Group) markStopped(i int) *conclave.Node {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[i]
	if !m.running {
		g.t.Fatalf("conclavetest: member %d is not running", i)
	}
	m.running = false
	g.leaders.stopped(i)
	return m.node
}

// Kill stops a node without a graceful shutdown, so that its group has to detect the
// stop as it detects a crash. It returns when the node has stopped.
func Kill(node *conclave.Node) {
	_ = node.Close(cluster.WithCrash(context.Background())) // reports only the lack of a graceful shutdown
}

// kill kills nodes, all at once, and reports whether they have ended.
func (g *Group) kill(nodes []*conclave.Node) bool {
	g.t.Helper()
	return ends(g.t, 2*patience, func() {
		var closing sync.WaitGroup
		for _, node := range nodes {
			closing.Go(func() { Kill(node) })
		}
		closing.Wait()
	})
}

// ends reports whether f, which kills nodes, returns in time. A function of the test that does
// not return to a node, such as one of Config.Events, keeps the node from ending. That fails
// the test with the stacks, and does not hang it.
func ends(t testing.TB, bound time.Duration, f func()) bool {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		t.Errorf("conclavetest: nodes have not ended %v after they were killed: has each function that the test gave them returned?\n\n%s",
			bound, ourStacks())
		return false
	}
}

// Restart starts killed members at the same time, with their directories, on other
// ports. It returns when they have joined their group and caught up, which requires a
// running majority.
func (g *Group) Restart(members ...int) {
	g.t.Helper()
	for _, i := range members {
		g.check(i)
		g.mu.Lock()
		running := g.members[i].running
		g.mu.Unlock()
		if running {
			g.t.Fatalf("conclavetest: member %d is running", i)
		}
	}
	g.open(members)
}

// open starts members and waits until all of them are open.
func (g *Group) open(members []int) {
	g.t.Helper()
	starts := g.prepare(members)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var opening sync.WaitGroup
	for _, s := range starts {
		opening.Go(func() {
			if s.node, s.err = conclave.Open(ctx, &s.cfg); s.err != nil {
				cancel() // the others would wait for it
			}
		})
	}
	opening.Wait()
	failed := false
	for _, s := range starts {
		if s.err == nil {
			g.opened(s)
			continue
		}
		failed = true
		g.t.Errorf("conclavetest: member %d: %v", s.index, s.err)
	}
	if failed {
		g.t.FailNow()
	}
}

// prepare listens for all members first, so that each knows all addresses.
func (g *Group) prepare(members []int) []*start {
	g.t.Helper()
	listeners := make(map[int]net.Listener)
	for _, i := range members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			g.t.Fatalf("conclavetest: member %d: %v", i, err)
		}
		listeners[i] = l
		g.members[i].addr = l.Addr().String()
		g.net.owns(i, g.members[i].addr)
	}
	var starts []*start
	for _, i := range members {
		starts = append(starts, &start{index: i, cfg: g.configure(i, listeners[i])})
	}
	return starts
}

func (g *Group) configure(i int, l net.Listener) conclave.Config {
	g.t.Helper()
	cfg := g.defaults(i)
	for _, edit := range g.edit {
		edit(i, &cfg)
	}
	if cfg.Dir == "" && g.members[i].node != nil {
		g.t.Fatalf("conclavetest: member %d was in memory and cannot be restarted", i)
	}
	cfg.Listener = l
	cfg.Expect = len(g.members)
	cfg.Join = nil
	for j, m := range g.members {
		if j != i {
			cfg.Join = append(cfg.Join, m.addr)
		}
	}
	cfg.Dial = g.net.dialer(i, cfg.Dial)
	cfg.Events = g.leaders.listen(i, cfg.Events)
	return cfg
}

func (g *Group) opened(s *start) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[s.index]
	m.node, m.running = s.node, true
	g.leaders.started(s.index, s.node.Status().ID)
}

// close stops everything and reports leaked goroutines. The nodes stop before the
// network, as only they end the dials that are blocked in it.
func (g *Group) close(before map[string]bool) {
	g.t.Helper()
	if !g.kill(g.Nodes()) {
		return // the rest would wait for them
	}
	g.net.close()
	if left := leaked(before, time.Minute); len(left) > 0 {
		g.t.Errorf("conclavetest: %d goroutines remain after the group was closed:\n\n%s", len(left), strings.Join(left, "\n\n"))
	}
}
