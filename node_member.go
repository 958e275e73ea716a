package conclave

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// How a node is put together: the member of package cluster orders commands, the
// machine gives them meaning, and the client is this process's side of them.

func (n *Node) memberConfig(supported uint32) cluster.Config {
	return cluster.Config{
		Name: n.cfg.Name, Group: n.cfg.Group,
		Dir:        n.cfg.Dir,
		Listener:   n.cfg.Listener,
		Advertise:  n.cfg.Advertise,
		Join:       n.cfg.Join,
		Expect:     n.cfg.Expect,
		Voters:     n.cfg.Voters,
		Small:      n.cfg.Small,
		TLS:        n.cfg.TLS,
		Insecure:   n.cfg.Insecure,
		Dial:       n.cfg.Dial,
		Calls:      n.app.calls,
		VerifyPeer: n.app.verifyPeer(n.cfg.VerifyPeer),
		Heartbeat:  n.cfg.HeartbeatInterval,
		Election:   n.cfg.ElectionTimeout,
		Logger:     n.log,
		Named:      n.app.names.Set,
		MaxCalls:   n.cfg.Limits.Calls,

		MaxCallBytes: n.cfg.Limits.CallBytes, LeaderPriority: int32(n.cfg.LeaderPriority),

		Commands: machine.Commands{},
		Clients:  n.clientHandlers(func() *Group { return n.Group }),
		LoadMachine: func(state iter.Seq2[[]byte, []byte]) (cluster.Machine, error) {
			return machine.LoadAt(state, supported)
		},
		FirstState: machine.FirstState, FirstStateOf: machine.FirstStateOf, UseGroup: n.groups.use,
		Stopping: n.stopping,
		Callbacks: replica.Callbacks{
			Ended: func(e fact.Ended) {
				n.history.sessionEnded(e)
				n.client.SessionEnded(e)
			},
			Changed: n.client.Changed, ShardsChanged: n.client.ShardsChanged,
			Recalled: n.client.Recalled,
			Woke:     n.client.Woke,
			Ticked:   func(m cluster.Machine) { n.state.look(m, n.jobs) },
			Restored: func(m cluster.Machine) {
				n.history.snapshotInstalled() // or the state is loaded, before the history begins
				n.client.StateReplaced(func(q machine.Query) any { return q.Begin(m.(*machine.Machine))() })
			},
			LeaderChanged: func(leader, term uint64) {
				n.history.leaderChanged(leader, term)
				n.events.leaderChanged(leader, term)
			},
		},
		ListsChanged: n.client.ListsChanged,
		RoleChanged: func(r cluster.RoleEvent) {
			n.history.roleChanged(r)
			n.events.roleChanged(r)
		},
		RedundancyChanged: func(voters int) {
			n.history.redundancyChanged(voters)
			n.events.redundancyChanged(voters)
		},
		LivenessChanged: n.history.livenessChanged,
	}
}

// stopping implements cluster.Config.Stopping.
func (n *Node) stopping(why error) {
	n.groups.close()
	n.eachClient(func(c *client.Client) { c.Stopping(why, why == nil) })
}

// clientConfig returns the configuration of this process's side of the default group, and but for some of the others.
func (n *Node) clientConfig() client.Config {
	return client.Config{
		Name: n.cfg.Name, TTL: n.cfg.SessionTTL, Checks: n.cfg.SessionChecks, IncarnationTTL: incarnationTTL, Logger: n.log,
		Patience:   n.cfg.ElectionTimeout,
		LeaseEnded: func(id wire.ID, why error) { n.events.sessionEnded(SessionID(id), convert(why)) },
		HoldLost:   func(name string, fence uint64) { n.holdLost(n.history, name, Fence(fence)) },
	}
}

func (n *Node) holdLost(of *history, name string, fence Fence) {
	of.holdLost(n.id, name, fence)
	n.events.holdLost(of.group, name, fence)
}

// group is the client's door to the group: the replica of this process, and its member.
type group struct {
	*replica.Replica
	member *cluster.Member
	client *client.Client
	id     uint64
}

func (g group) Submit(size int, encode func() []byte, c client.Call, urgent bool) {
	g.Replica.Submit(size, encode, c, urgent)
}

func (g group) Cancel(c client.Call) { g.Replica.Cancel(c) }

func (g group) Query(ctx context.Context, q machine.Query, opts client.QueryOptions) (any, error) {
	var begun func() (any, error) // not to be touched after an error: a read that was abandoned may still run
	read := g.Replica.Read
	if opts.Stale {
		read = g.Replica.ReadStale
	}
	err := read(ctx, func(m cluster.Machine) {
		begun = beginQuery(m.(*machine.Machine), q)
		if opts.Fixed != nil {
			opts.Fixed()
		}
	})
	if err != nil {
		return nil, err
	}
	return begun()
}

// beginQuery begins a query, which a group that is being deleted answers no more: all that it has ends with it, and it may
// have been deleted already, which this member is to apply yet.
func beginQuery(m *machine.Machine, q machine.Query) func() (any, error) {
	if f := m.Following(); f != nil && f.Sealed {
		return func() (any, error) { return nil, noGroup() }
	}
	finish := q.Begin(m)
	return func() (any, error) { return finish(), nil }
}

func (g group) Reregister(expired wire.ID, register func() ([]byte, client.Call)) {
	g.Replica.Reregister(expired, func() ([]byte, cluster.Call) { return register() })
}

func (g group) Renew(size int, encode func() []byte, c client.Call) {
	g.Submit(size, encode, c, true)
}

func (g group) Watch(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error {
	return g.client.FollowKeys(ctx, prefix, after, yield)
}

func (g group) FollowShards(ctx context.Context, set string, yield func(client.ShardsUpdate) bool) error {
	return g.client.FollowShards(ctx, set, yield)
}

func (g group) Observe(ctx context.Context, election string, yield func(*fact.Leader) bool) error {
	return g.client.FollowLeader(ctx, election, yield)
}

func (g group) Process() uint64 { return g.id }

func (g group) Registered(r *wire.Reply) { g.member.Registered(r) }

func (g group) Unreachable() string { return g.member.Unreachable() }

// registration makes the command that registers this process of a member.
func registration(process *wire.Register) func(attempt uint32, ttl time.Duration) *wire.Command {
	return func(attempt uint32, ttl time.Duration) *wire.Command {
		r := proto.CloneOf(process)
		r.Attempt, r.Ttl = attempt, int64(ttl)
		return &wire.Command{Op: &wire.Command_Register{Register: r}}
	}
}
