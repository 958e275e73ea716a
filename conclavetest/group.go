package conclavetest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// patience is how long anything may take that the group does by itself.
const patience = 30 * time.Second

// Group is a group of members that run in this process.
type Group struct {
	t       testing.TB
	net     *network
	edit    []func(i int, cfg *conclave.Config)
	leaders *leaders

	members []*member
	mu      sync.Mutex // guards what says so in each member
}

// Option changes what Start does.
type Option func(*Group)

// Configure edits each member's settings, of which i is the index, before the
// member starts and before each restart. Join, Expect and Listener are the
// group's business and are set afterwards. Connections that a Dial set here
// opens are cut by Partition all the same. A member whose Dir is made empty
// lives in memory, which is faster, and can not be restarted.
func Configure(edit func(i int, cfg *conclave.Config)) Option {
	return func(g *Group) { g.edit = append(g.edit, edit) }
}

// Start forms a group of n members with a directory each and returns when all of
// them are open. They are numbered from 0.
func Start(t testing.TB, n int, opts ...Option) *Group {
	t.Helper()
	if n < 1 {
		t.Fatalf("conclavetest: a group of %d members; it has to be at least 1", n)
	}
	g := &Group{t: t, net: newNetwork(n), leaders: newLeaders(n)}
	for _, opt := range opts {
		opt(g)
	}
	all := make([]int, n)
	for i := range n {
		all[i] = i
		g.members = append(g.members, &member{dir: t.TempDir()})
	}
	before := goroutines()
	t.Cleanup(func() { g.close(before) }) // before the directories are removed: last in, first out
	g.open(all)
	return g
}

// Node returns a member's node. After Kill it is the one that was killed.
func (g *Group) Node(i int) *conclave.Node {
	g.t.Helper()
	g.check(i)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[i].node
}

// Nodes returns the nodes of the members that run, by index.
func (g *Group) Nodes() []*conclave.Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	var nodes []*conclave.Node
	for _, m := range g.members {
		if m.running {
			nodes = append(nodes, m.node)
		}
	}
	return nodes
}

// Leader waits until some member leads, which means that a majority follows it
// that it can reach, and returns its index. By the time that it is looked at,
// another one may lead.
func (g *Group) Leader() int {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	i, err := g.leaders.wait(ctx, g.net.connected)
	if err != nil {
		g.t.Fatalf("conclavetest: no member leads after %v: %v", patience, g.leaders)
	}
	return i
}

// Partition cuts the network: members of different groups do not reach each
// other, and those that are not named form one more group. It replaces what an
// earlier Partition cut. As in real networks the cut is silent: what is sent
// across is gone, nothing is refused or reset, and who dials across waits.
//
//	Partition([]int{0})            // member 0 is alone
//	Partition([]int{0, 1}, []int{2, 3}) // and 4, if there is one, as well
func (g *Group) Partition(groups ...[]int) {
	g.t.Helper()
	sides := make([]int, len(g.members))
	for side, group := range groups {
		for _, i := range group {
			g.check(i)
			if sides[i] != 0 {
				g.t.Fatalf("conclavetest: member %d is named twice in a partition", i)
			}
			sides[i] = side + 1
		}
	}
	g.net.arrange(sides)
	g.leaders.reconsider()
}

// Heal lets all members reach each other again. Connections that were cut break
// now, since what was sent on them is lost.
func (g *Group) Heal() {
	g.net.arrange(make([]int, len(g.members)))
	g.leaders.reconsider()
}

func (g *Group) check(i int) {
	g.t.Helper()
	if i < 0 || i >= len(g.members) {
		g.t.Fatalf("conclavetest: there is no member %d; they are numbered from 0 to %d", i, len(g.members)-1)
	}
}

// defaults are fast, but not so fast that a busy machine mistakes itself for a
// broken one.
func (g *Group) defaults(i int) conclave.Config {
	logger := slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return conclave.Config{
		Name:              fmt.Sprintf("member-%d", i),
		Dir:               g.members[i].dir,
		Bind:              "127.0.0.1:0",
		SessionTTL:        2 * time.Second,
		HeartbeatInterval: 30 * time.Millisecond,
		ElectionTimeout:   300 * time.Millisecond,
		Logger:            logger.With("member", i),
	}
}
