// Package grouptest runs groups of whole nodes in one process, for the tests of
// this module. It opens nodes with the public API and replaces the rest by
// [cluster.Seams]: disks in memory that lose power, a network with faults, virtual time,
// and short limits.
//
// The tests of whole groups stand beside it: here in real time, in virtualtime
// inside bubbles of testing/synctest, in crash with a power loss at every operation
// of a disk, in process with processes that are killed and stopped.
package grouptest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/memnet"
	"github.com/conclave-go/conclave/internal/testport"
)

// Group is a group of members, numbered from 0. Its methods belong on the test's
// own goroutine, except where they say otherwise.
type Group struct {
	T       testing.TB
	Net     *memnet.Network   // nil: TCP on loopback
	Configs []conclave.Config // for the next start of each member
	Seams   []cluster.Seams
	Nodes   []*conclave.Node // nil: not running

	inBubble  bool
	newcomers int // the last ones, which do not form the group and are not started

	patience time.Duration // bounds waits for the group, for example for an election
	interval time.Duration // between two polls of a snapshot
	edits    []func(i int, c *conclave.Config, s *cluster.Seams)
	listener func(i int, l net.Listener) net.Listener // of the network in memory; nil: as it is

	mu      sync.Mutex
	members []*cluster.Member // guarded by mu; of the latest start
}

// Option changes how a group is formed.
type Option func(*Group)

// Edit changes each member's configuration and seams before its first start.
func Edit(edit func(i int, c *conclave.Config, s *cluster.Seams)) Option {
	return func(g *Group) { g.edits = append(g.edits, edit) }
}

// MemoryNetwork connects the members by a network in memory, which has faults.
func MemoryNetwork(g *Group) { g.Net = memnet.New(len(g.Nodes)) }

// Newcomers is how many of the members, the last ones, do not form the group. Start has them
// join it.
func Newcomers(n int) Option { return func(g *Group) { g.newcomers = n } }

// ShortLog keeps so few entries that a lagging member soon needs a snapshot.
func ShortLog(g *Group) {
	Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.KeepEntries = 20 })(g)
}

// ShortSessions sets a session TTL for tests that wait for its end.
func ShortSessions(g *Group) {
	Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.SessionTTL = 10 * time.Second })(g)
}

// LongElections sets an election timeout that a busy machine does not take.
func LongElections(g *Group) {
	Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.ElectionTimeout = 5 * time.Second })(g)
}

// PoweredDisks gives each member a disk in memory for Crash.
func PoweredDisks(g *Group) {
	Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		c.Dir, s.FS = "data", NewPoweredDisk()
	})(g)
}

// Start forms a group of n members in real time, with directories on the disk. All
// members are killed when the test ends.
func Start(t testing.TB, n int, opts ...Option) *Group {
	t.Helper()
	g := newGroup(t, n, opts)
	g.patience, g.interval = patience, time.Millisecond
	for i := range n {
		c := &g.Configs[i]
		*c = conclave.Config{
			Name: fmt.Sprint("member-", i), Dir: filepath.Join(t.TempDir(), "data"),
			HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond, SessionTTL: time.Minute,
		}
		if g.Net == nil {
			c.Listener = listenOnLoopback(t)
			c.Bind = c.Listener.Addr().String()
		}
	}
	g.form()
	return g
}

func newGroup(t testing.TB, n int, opts []Option) *Group {
	g := &Group{
		T: t, Configs: make([]conclave.Config, n), Seams: make([]cluster.Seams, n),
		Nodes: make([]*conclave.Node, n), members: make([]*cluster.Member, n),
	}
	for _, opt := range opts {
		opt(g)
	}
	return g
}

func listenOnLoopback(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", testport.Addr(t)) // where a member that is started again listens again
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// form completes the configurations with the settings that all members share, and starts
// the members.
func (g *Group) form() {
	g.T.Helper()
	n := len(g.Nodes)
	founders := n - g.newcomers
	var join []string
	for i := range n {
		c := &g.Configs[i]
		if g.Net != nil {
			c.Bind = fmt.Sprintf("127.0.0.1:%d", 7001+i)
			c.Dial = g.Net.Dialer(i)
		}
		if i < founders {
			join = append(join, c.Bind)
		}
	}
	for i := range n {
		c := &g.Configs[i]
		c.Expect, c.Voters, c.Logger = founders, min(founders|1, 7), logger(g.T, i)
		if n > 1 {
			c.Join = join
		}
		switch {
		case i >= founders:
			c.Expect = 0
		case founders == 1:
			c.Join = nil
		}
		for _, edit := range g.edits {
			edit(i, c, &g.Seams[i])
		}
	}
	g.T.Cleanup(g.cleanUp)
	g.Start(g.All()[:founders]...)
}

// logger is silent without CONCLAVE_TEST_LOG=1.
func logger(t testing.TB, i int) *slog.Logger {
	if os.Getenv("CONCLAVE_TEST_LOG") == "" {
		return nil
	}
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	return slog.New(slog.NewTextHandler(os.Stderr, options)).With("member", i, "test", t.Name())
}

// All lists all members, running or not.
func (g *Group) All() []int {
	list := make([]int, len(g.Nodes))
	for i := range list {
		list[i] = i
	}
	return list
}

// Others lists all members but one.
func (g *Group) Others(i int) []int {
	return slices.DeleteFunc(g.All(), func(j int) bool { return j == i })
}

// Running lists the members that run.
func (g *Group) Running() []int {
	return slices.DeleteFunc(g.All(), func(i int) bool { return g.Nodes[i] == nil })
}

// Start starts members at the same time and returns when all of them are open.
func (g *Group) Start(members ...int) {
	g.T.Helper()
	var starting sync.WaitGroup
	for _, i := range members {
		starting.Go(func() {
			node, err := g.Open(i, g.patience)
			if err != nil {
				g.T.Errorf("member %d does not start: %v", i, err)
				return
			}
			g.Nodes[i] = node
		})
	}
	starting.Wait()
	if g.T.Failed() {
		g.T.FailNow()
	}
}

// Open opens a member and leaves its node to the caller. It may be called on any
// goroutine.
func (g *Group) Open(i int, patience time.Duration) (*conclave.Node, error) {
	ctx, cancel := context.WithTimeout(g.T.Context(), patience)
	defer cancel()
	return g.OpenWith(ctx, i)
}

// OpenWith is Open with a context of the caller's.
func (g *Group) OpenWith(ctx context.Context, i int) (*conclave.Node, error) {
	c, seams := g.Configs[i], g.Seams[i]
	g.Configs[i].Listener = nil // for one start; then Bind is listened on
	if g.Net != nil {
		c.Listener = g.Net.Listen(i, c.Bind)
		if g.listener != nil {
			c.Listener = g.listener(i, c.Listener)
		}
	}
	seams.Started = func(m *cluster.Member) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.members[i] = m
	}
	return conclave.Open(cluster.WithSeams(ctx, seams), &c)
}

// Kill ends members' processes at the same time, as kill -9 does: without a
// graceful shutdown, while the others see the connections break.
func (g *Group) Kill(members ...int) {
	var closing sync.WaitGroup
	for _, i := range members {
		if n := g.Nodes[i]; n != nil {
			g.Nodes[i] = nil
			closing.Go(func() { Kill(n) })
		}
	}
	closing.Wait()
}

// Disconnect breaks all connections of a member and lets it have no others until
// Net.Rejoin. The group needs MemoryNetwork.
func (g *Group) Disconnect(i int) {
	g.Net.Isolate(i)
	g.Net.Reset(i)
}

// cleanUp is KillAll for the end of a test, and reports members that do not end. Those of a
// bubble are watched from outside.
func (g *Group) cleanUp() {
	if g.inBubble {
		g.KillAll()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.KillAll()
	}()
	bound := time.NewTimer(patience)
	defer bound.Stop()
	select {
	case <-ended:
	case <-bound.C:
		g.T.Errorf("the members have not ended %v after they were killed:\n\n%s", patience, allStacks())
	}
}

// KillAll kills all members that run.
func (g *Group) KillAll() { g.Kill(g.All()...) }

// Close shuts a member down gracefully.
func (g *Group) Close(i int) {
	n := g.Nodes[i]
	g.Nodes[i] = nil
	if err := n.Close(g.T.Context()); err != nil {
		g.T.Errorf("closing member %d: %v", i, err)
	}
}

// Leader returns the member that all running members follow. It blocks until
// there is one.
func (g *Group) Leader() int {
	g.T.Helper()
	return g.LeaderWithout(-1)
}

// LeaderWithout is Leader for all members but one.
func (g *Group) LeaderWithout(except int) int {
	g.T.Helper()
	i, ok := g.AwaitLeader(except)
	if !ok {
		g.T.Fatalf("no leader within %v", g.patience)
	}
	return i
}

// AwaitLeader is LeaderWithout for any goroutine.
func (g *Group) AwaitLeader(except int) (leader int, ok bool) {
	g.poll(g.patience, func() bool {
		leader, ok = g.FollowedLeader(except)
		return ok
	})
	return leader, ok
}

// FollowedLeader is AwaitLeader without waiting.
func (g *Group) FollowedLeader(except int) (leader int, ok bool) {
	var id conclave.MemberID
	leader = -1
	for i, n := range g.Nodes {
		if n == nil || i == except {
			continue
		}
		s := n.Status()
		if s.Leader == 0 || id != 0 && s.Leader != id {
			return 0, false
		}
		id = s.Leader
		if s.Leader == s.ID {
			leader = i
		}
	}
	return leader, leader >= 0
}

// MustTransfer has member to lead, by transfers that a node or a client requests. A leader gives
// one up after an election timeout, which a busy machine may take, and another member may be
// elected instead.
func (g *Group) MustTransfer(by interface {
	TransferLeadership(ctx context.Context, to conclave.MemberID) error
}, to int) {
	g.T.Helper()
	for ctx := Within(g.T, g.patience); ; {
		err := by.TransferLeadership(ctx, g.ID(to))
		if err == nil && g.Leader() == to {
			return
		}
		if err != nil && !errors.Is(err, conclave.ErrInvalid) {
			g.T.Fatal(err)
		}
	}
}

// ID returns a running member's ID.
func (g *Group) ID(i int) conclave.MemberID { return g.Nodes[i].Status().ID }

// AwaitApplied blocks until a member has applied what is committed now. A new leader may know of less than the last one.
func (g *Group) AwaitApplied(i int) {
	g.T.Helper()
	var target uint64
	for _, m := range g.Running() {
		target = max(target, g.Nodes[m].Status().Commit)
	}
	if !g.poll(patience, func() bool { return g.Nodes[i].Status().Applied >= target }) {
		g.T.Fatalf("member %d has applied %d; want %d: %v", i, g.Nodes[i].Status().Applied, target, g.Nodes[i].Err())
	}
}

// AwaitMembers blocks until all running members see so many members.
func (g *Group) AwaitMembers(want int) {
	g.T.Helper()
	for _, i := range g.Running() {
		if !g.poll(g.patience, func() bool { return len(g.Nodes[i].Status().Members) == want }) {
			g.T.Fatalf("member %d sees %d members; want %d", i, len(g.Nodes[i].Status().Members), want)
		}
	}
}

// WantWorking checks that each running member can lock and unlock.
func (g *Group) WantWorking() {
	g.T.Helper()
	for _, i := range g.Running() {
		l := g.Nodes[i].FencedLock("working")
		MustLock(g.T, l)
		MustUnlock(g.T, l)
	}
}
