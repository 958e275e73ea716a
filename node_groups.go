package conclave

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/survey"
	"github.com/conclave-go/conclave/internal/wire"
)

// How a node uses the further groups. Each group of which its member runs a replica has a client of its own, which
// this process registers at once: the replica's leader submits commands as well. Before the replica runs, a handle to the group has
// a client that is not connected, which connect when it does.

// nodeGroups is the further groups as a node uses them.
type nodeGroups struct {
	node    *Node
	changes *client.FeedRoom // what the groups keep for watchers

	routines sync.WaitGroup // no more begin once the member has stopped

	mu      sync.Mutex
	handles handles[furtherGroup]    // guarded by mu; or with a replica
	used    map[uint32]*furtherGroup // guarded by mu; those with a replica, by number
	closed  bool                     // guarded by mu: the node shuts down
}

func newNodeGroups(n *Node) *nodeGroups {
	return &nodeGroups{
		node: n, changes: client.NewFeedRoom(maxGroupChanges), handles: newHandles[furtherGroup](), used: make(map[uint32]*furtherGroup),
	}
}

// maxGroupChanges bounds, in bytes, the changes that a node keeps for watchers of all further groups together: as many as of 8 groups. Else each group
// that was ever written to would keep 32 MiB on each member, however long ago that was.
const maxGroupChanges = 256 << 20

// furtherGroup is a further group as a node uses it.
type furtherGroup struct {
	node    *Node
	name    string
	group   *Group // the handle
	client  *client.Client
	door    furtherDoor
	state   groupState
	history *history
	number  uint32                          // guarded by nodeGroups.mu; 0: none yet
	replica atomic.Pointer[replica.Replica] // nil: none runs yet
	crash   atomic.Bool                     // its state has a session that depends on the check process of this member
	open    chan struct{}                   // closed when there is a replica
	ready   chan struct{}                   // closed when this process is registered in the group
	ended   context.Context                 // done when the group is deleted, or the node stops
	end     context.CancelFunc
}

// door returns the group of that name.
func (g *nodeGroups) door(name string) *furtherGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.handles.get(name, g.newGroup)
}

// numbered returns the group of that name and number. An earlier one of the name has been deleted.
func (g *nodeGroups) numbered(name string, number uint32) *furtherGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.handles.get(name, g.newGroup)
	if f.number != 0 {
		g.handles.forget(name, f)
		f = g.handles.get(name, g.newGroup)
	}
	f.number, g.used[number] = number, f
	if g.closed {
		f.client.BeginShutdown()
	}
	return f
}

// close refuses the use of groups that start from now on.
func (g *nodeGroups) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *nodeGroups) newGroup(name string) *furtherGroup {
	n := g.node
	f := &furtherGroup{node: n, name: name, history: n.history.of(name), open: make(chan struct{}), ready: make(chan struct{})}
	f.ended, f.end = context.WithCancel(context.Background())
	cfg := n.clientConfig()
	cfg.Enter, cfg.Idle, cfg.Beside, cfg.FeedRoom = f.enter, f.idle, n.client, g.changes
	cfg.Logger = ofGroup(n.log, name)
	cfg.HoldLost = func(name string, fence uint64) { n.holdLost(f.history, name, Fence(fence)) }
	cfg.Checks = slices.DeleteFunc(slices.Clone(cfg.Checks), func(name string) bool { return name != gossipCheck && name != ProcessCheck })
	f.client = client.New(cfg)
	f.door.defaults = func() client.Group { return group{n.replica, n.member, n.client, uint64(n.id)} }
	f.client.Connect(&f.door, func(attempt uint32, ttl time.Duration) *wire.Command {
		c := registration(n.member.Registration())(attempt, ttl)
		r := c.GetRegister()
		r.Tokens, r.Voters = nil, 0 // the default group has checked the succession
		return c
	})
	f.group = &Group{client: f.client, calls: newCalls(), jobs: survey.NewJobs(n.cfg.MeasuredGroupJobs[name]), isNode: true, dir: n.dir, admin: furtherAdmin{f}}
	f.group.tracing = n.tracing.of(name, n.tracing.node)
	return f
}

// ofGroup returns the log for lines about what this process does in a further group, whose number it may not know yet.
func ofGroup(log *slog.Logger, name string) *slog.Logger { return log.With("groupName", name) }

// idle is client.Config.Idle. The group records the crash of a registered process only.
func (f *furtherGroup) idle() bool {
	r := f.replica.Load()
	if r == nil || f.crash.Load() {
		return false
	}
	calls, _ := r.Backlog()
	return calls == 0
}

// use implements cluster.Config.UseGroup.
func (g *nodeGroups) use(number uint32) cluster.GroupUse {
	var used atomic.Pointer[furtherGroup] // set on the replica's loop
	group := func(do func(*furtherGroup)) {
		if f := used.Load(); f != nil {
			do(f)
		}
	}
	with := func(do func(*client.Client)) { group(func(f *furtherGroup) { do(f.client) }) }
	return cluster.GroupUse{
		Callbacks: replica.Callbacks{
			Restored: func(m cluster.Machine) {
				group(func(f *furtherGroup) {
					f.history.snapshotInstalled()
					replaced(f.client, m)
				})
			},
			Changed: func(keys []fact.KeyChange, leaders []fact.LeaderChange) {
				with(func(c *client.Client) { c.Changed(keys, leaders) })
			},
			Recalled:      func(r []fact.Recall) { with(func(c *client.Client) { c.Recalled(r) }) },
			ShardsChanged: func(s []fact.ShardChange) { with(func(c *client.Client) { c.ShardsChanged(s) }) },
			Ended: func(e fact.Ended) {
				group(func(f *furtherGroup) {
					f.history.sessionEnded(e)
					f.client.SessionEnded(e)
				})
			},
			LeaderChanged: func(leader, term uint64) { group(func(f *furtherGroup) { f.history.leaderChanged(leader, term) }) },
			Woke:          func() { with((*client.Client).Woke) },
			Ticked:        func(m cluster.Machine) { group(func(f *furtherGroup) { f.look(m) }) },
		},
		Clients:      g.node.clientHandlers(func() *Group { return g.group(number) }),
		ListsChanged: func(applied uint64) { with(func(c *client.Client) { c.ListsChanged(applied) }) },
		Submitting:   func() { with((*client.Client).Use) },
		Started: func(name string, r *replica.Replica) {
			f := g.numbered(name, number)
			g.routines.Go(func() { f.join(r, &used) })
		},
		Ended: func(why error) { g.gone(number, why) },
	}
}

// look looks at the group's state at each tick.
func (f *furtherGroup) look(m cluster.Machine) {
	f.state.look(m, f.group.jobs)
	f.crash.Store(machine.CrashMatters(m.(*machine.Machine), uint64(f.node.id)))
}

// replaced passes on a machine that has been loaded or installed.
func replaced(c *client.Client, m cluster.Machine) {
	c.StateReplaced(func(q machine.Query) any { return q.Begin(m.(*machine.Machine))() })
}

// join connects the group's client to the replica, and registers this process.
func (f *furtherGroup) join(r *replica.Replica, used *atomic.Pointer[furtherGroup]) {
	select {
	case <-f.node.started:
	case <-f.ended.Done():
		return
	}
	n := f.node
	err := r.ReadStale(f.ended, func(m cluster.Machine) {
		replaced(f.client, m)
		f.replica.Store(r)
		f.door.open(group{r, n.member, f.client, uint64(n.id)})
		close(f.open)
		used.Store(f)
		f.client.ListsChanged(r.Status().Applied) // those of before had no receiver
	})
	for pause := 50 * time.Millisecond; err == nil; pause = min(2*pause, 2*time.Second) {
		if f.client.Register(f.ended) == nil {
			_ = r.ReadStale(f.ended, func(cluster.Machine) { // on the loop, as each change of the leader
				f.history.begin(r.Status().Leader, r.Status().Term)
			})
			close(f.ready)
			return
		}
		retry := time.NewTimer(pause)
		select {
		case <-retry.C:
		case <-f.ended.Done():
			retry.Stop()
			return
		}
	}
}

// gone ends the use of a group that is deleted.
func (g *nodeGroups) gone(number uint32, why error) {
	g.mu.Lock()
	f := g.used[number]
	delete(g.used, number)
	if f != nil {
		g.handles.forget(f.name, f)
	}
	g.mu.Unlock()
	if f != nil {
		f.end()
		f.client.Stopping(why, false)
		f.client.Stopped(why, false)
		g.routines.Go(f.client.Wait)
	}
}

// all returns those with a replica.
func (g *nodeGroups) all() (list []*furtherGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.used {
		list = append(list, f)
	}
	return list
}

// shutDown ends the registrations of this process in all further groups, and with them its sessions, and transfers the leaderships, until ctx is done.
// It reports whether each group has answered.
func (g *nodeGroups) shutDown(ctx context.Context) (answered bool) {
	var all sync.WaitGroup
	var missing atomic.Bool
	for _, f := range g.all() {
		r := f.replica.Load()
		if r == nil {
			continue
		}
		all.Go(func() {
			if err := f.client.Deregister(ctx); err != nil && ctx.Err() != nil {
				missing.Store(true) // the group finds out as after a crash
			}
			_ = r.StepDown(ctx) // if it leads
		})
	}
	all.Wait()
	return !missing.Load()
}

// each calls do with the client of each group with a replica.
func (g *nodeGroups) each(do func(*client.Client)) {
	for _, f := range g.all() {
		do(f.client)
	}
}

// stopped ends all when the member has stopped. When it returns, nothing of the groups is reported or logged any more.
func (g *nodeGroups) stopped(why error) {
	for _, f := range g.all() {
		f.end()
		f.client.Stopped(why, why == nil)
		f.client.Wait()
	}
	g.routines.Wait()
}

// group returns the handle to a group with a replica; nil: it is deleted.
func (g *nodeGroups) group(number uint32) *Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.used[number]; f != nil {
		return f.group
	}
	return nil
}

// enter is client.Config.Enter.
func (f *furtherGroup) enter(ctx context.Context, stale bool) (leave func(), err error) {
	leave = func() {}
	if stale {
		return leave, f.reachUntil(ctx, f.open, stale)
	}
	return leave, f.reach(ctx)
}

// reach blocks until this process is registered in the group, or ctx is done.
func (f *furtherGroup) reach(ctx context.Context) error { return f.reachUntil(ctx, f.ready, false) }

// reachUntil blocks until a channel is closed by the start of the use of the group, or ctx is done. stale is as in findGroup.
func (f *furtherGroup) reachUntil(ctx context.Context, reached <-chan struct{}, stale bool) error {
	select {
	case <-reached:
		return nil
	default:
	}
	number, err := findGroup(ctx, f.node.Group, f.name, stale)
	if err != nil {
		return err
	}
	if _, err := f.node.member.Groups().Replica(ctx, number); err != nil {
		return f.node.groups.unreached(ctx, err)
	}
	return f.await(ctx, reached)
}

// await is reachUntil for a group whose replica runs here.
func (f *furtherGroup) await(ctx context.Context, reached <-chan struct{}) error {
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return f.node.groups.unreached(ctx, ctx.Err())
	case <-f.ended.Done():
	case <-f.node.member.Done():
	}
	select {
	case <-f.node.member.Done(): // which ends the use of each group, too
		return &client.Fault{Kind: client.Closed, Cause: f.node.member.Err()}
	default:
		return noGroup()
	}
}

// unreached is the fault of a call that has not reached a further group.
func (g *nodeGroups) unreached(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, cluster.ErrGroupDeleted):
		return noGroup()
	case ctx.Err() != nil:
		return &client.Fault{Kind: client.Unavailable, Detail: g.node.member.Unreachable(), Cause: client.ContextError(ctx)}
	}
	return err
}
