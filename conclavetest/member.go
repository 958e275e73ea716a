package conclavetest

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// member is one member of a group, through all its starts.
type member struct {
	dir     string
	addr    string         // of its latest start; the test's goroutine's own
	node    *conclave.Node // guarded by the group's mu
	running bool           // guarded by the group's mu
}

// start is one start of a member: what is made for it and what came of it.
type start struct {
	index int
	cfg   conclave.Config
	node  *conclave.Node
	err   error
}

// Kill ends members all at once and without farewell, as a crash of their
// processes would: the group finds out from their silence. What was
// acknowledged is on their disks.
func (g *Group) Kill(members ...int) {
	g.t.Helper()
	var nodes []*conclave.Node
	for _, i := range members {
		g.check(i)
		nodes = append(nodes, g.strike(i))
	}
	kill(nodes)
}

// strike takes a member off those that run, before it is killed, so that nobody
// takes it for the leader any more.
func (g *Group) strike(i int) *conclave.Node {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[i]
	if !m.running {
		g.t.Fatalf("conclavetest: member %d does not run", i)
	}
	m.running = false
	g.leaders.stopped(i)
	return m.node
}

// Kill ends a node without a graceful shutdown, so that its group finds out as if the
// process had crashed. It returns when nothing of the node is left.
func Kill(node *conclave.Node) {
	_ = node.Close(cluster.WithCrash(context.Background())) // reports only the lack of a graceful shutdown
}

// kill kills nodes, all at once.
func kill(nodes []*conclave.Node) {
	var closing sync.WaitGroup
	for _, node := range nodes {
		closing.Go(func() { Kill(node) })
	}
	closing.Wait()
}

// Restart starts members again that were killed, in their directories and on
// other ports, all at once. It returns when they have found their group and
// caught up, so enough members have to be named for a majority to be there.
func (g *Group) Restart(members ...int) {
	g.t.Helper()
	for _, i := range members {
		g.check(i)
		g.mu.Lock()
		running := g.members[i].running
		g.mu.Unlock()
		if running {
			g.t.Fatalf("conclavetest: member %d runs already", i)
		}
	}
	g.open(members)
}

// open starts members and waits until all of them are there.
func (g *Group) open(members []int) {
	g.t.Helper()
	starts := g.prepare(members)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var opening sync.WaitGroup
	for _, s := range starts {
		opening.Go(func() {
			if s.node, s.err = conclave.Open(ctx, &s.cfg); s.err != nil {
				cancel() // the others would wait for it in vain
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

// prepare gives each member a port first, so that all can know of all.
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
		g.t.Fatalf("conclavetest: member %d lived in memory and can not be restarted", i)
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

// close ends everything and reports what is left. The nodes have to be gone
// before the network, since only they end the dials that wait in it.
func (g *Group) close(before map[string]bool) {
	g.t.Helper()
	kill(g.Nodes())
	g.net.close()
	if left := leaked(before, 5*time.Second); len(left) > 0 {
		g.t.Errorf("conclavetest: %d goroutines are left after the group was closed:\n\n%s", len(left), strings.Join(left, "\n\n"))
	}
}
