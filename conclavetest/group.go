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

// patience bounds waits for the group, for example for an election.
const patience = 3 * time.Minute

// Group is a group of members in this process.
type Group struct {
	t       testing.TB
	net     *network
	edit    []func(i int, cfg *conclave.Config)
	leaders *leaders

	members []*member
	mu      sync.Mutex // guards the fields of members that say so
}

// Option changes what Start does.
type Option func(*Group)

// Configure edits the configuration of each member, of which i is the index, before
// each start. Join, Expect and Listener are set afterwards, by the group. Partition
// also affects the connections of a Dial that is set here. A member with an empty Dir
// is in memory, which is faster, and cannot be restarted.
func Configure(edit func(i int, cfg *conclave.Config)) Option {
	return func(g *Group) { g.edit = append(g.edit, edit) }
}

// Start forms a group of n members, numbered from 0, with a directory each. It returns
// when all of them are open.
func Start(t testing.TB, n int, opts ...Option) *Group {
	t.Helper()
	if n < 1 {
		t.Fatalf("conclavetest: invalid group size %d: want at least 1", n)
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

// Node returns a member's node. After Kill that is the killed one.
func (g *Group) Node(i int) *conclave.Node {
	g.t.Helper()
	g.check(i)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[i].node
}

// Nodes returns the nodes of the running members, by index.
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

// Leader blocks until a member leads a majority that it can reach, and returns its
// index. By then another member may lead.
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

// Partition partitions the network: members of different groups do not reach each
// other. Members that are not listed form one more group. It replaces an earlier
// Partition. Across a partition nothing is refused or reset: packets are lost, and
// dialling blocks.
//
//	Partition([]int{0})                 // isolates member 0
//	Partition([]int{0, 1}, []int{2, 3}) // and member 4, if there is one
func (g *Group) Partition(groups ...[]int) {
	g.t.Helper()
	sides := make([]int, len(g.members))
	for side, group := range groups {
		for _, i := range group {
			g.check(i)
			if sides[i] != 0 {
				g.t.Fatalf("conclavetest: member %d is in a partition twice", i)
			}
			sides[i] = side + 1
		}
	}
	g.net.arrange(sides)
	g.leaders.reconsider()
}

// Heal lets all members reach each other again. Connections across the partition break,
// as they have lost data.
func (g *Group) Heal() {
	g.net.arrange(make([]int, len(g.members)))
	g.leaders.reconsider()
}

func (g *Group) check(i int) {
	g.t.Helper()
	if i < 0 || i >= len(g.members) {
		g.t.Fatalf("conclavetest: invalid member %d: want 0 to %d", i, len(g.members)-1)
	}
}

// defaults are short, but long enough for a busy machine.
func (g *Group) defaults(i int) conclave.Config {
	logger := slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return conclave.Config{
		Name:              fmt.Sprintf("member-%d", i),
		Dir:               g.members[i].dir,
		Bind:              "127.0.0.1:0",
		SessionTTL:        10 * time.Second,
		HeartbeatInterval: 30 * time.Millisecond,
		ElectionTimeout:   300 * time.Millisecond,
		Logger:            logger.With("member", i),
	}
}
