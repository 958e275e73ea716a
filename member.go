package conclave

import (
	"context"
	"errors"
	"iter"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// How a node is put together: the member of package cluster orders commands, the
// machine gives them meaning, and the client is this process's side of them.

func (n *Node) memberConfig(supported uint32) cluster.Config {
	return cluster.Config{
		Name:       n.cfg.Name,
		Group:      n.cfg.Group,
		Dir:        n.cfg.Dir,
		Listener:   n.cfg.Listener,
		Advertise:  n.cfg.Advertise,
		Join:       n.cfg.Join,
		Expect:     n.cfg.Expect,
		Voters:     n.cfg.Voters,
		TLS:        n.cfg.TLS,
		Insecure:   n.cfg.Insecure,
		Dial:       n.cfg.Dial,
		VerifyPeer: n.cfg.verifyPeer(),
		Heartbeat:  n.cfg.HeartbeatInterval,
		Election:   n.cfg.ElectionTimeout,
		Logger:     n.log,
		MaxCalls:   n.cfg.Limits.Calls,

		MaxCallBytes: n.cfg.Limits.CallBytes,

		Commands: machine.Commands{},
		LoadMachine: func(state iter.Seq2[[]byte, []byte]) (cluster.Machine, error) {
			return machine.LoadAt(state, supported)
		},
		Ended:    n.client.SessionEnded,
		Changed:  n.client.Changed,
		Recalled: n.client.Recalled,
		Woke:     n.client.Woke,
		Ticked:   func(m cluster.Machine) { n.ticked(m.(*machine.Machine)) },
		Restored: func(m cluster.Machine) {
			n.client.StateReplaced(func(q machine.Query) any { return q.Begin(m.(*machine.Machine))() })
		},
		LeaderChanged: n.events.leaderChanged,
		RoleChanged:   n.events.roleChanged,

		RedundancyChanged: n.events.redundancyChanged,
	}
}

// group is the client's door to the group: the member of this process.
type group struct{ *cluster.Member }

func (g group) Submit(size int, encode func() []byte, c client.Call, urgent bool) {
	g.Member.Submit(size, encode, c, urgent)
}

func (g group) Cancel(c client.Call) { g.Member.Cancel(c) }

func (g group) Query(ctx context.Context, q machine.Query, opts client.QueryOptions) (any, error) {
	var begun func() any // not to be touched after an error: a read that was abandoned may still run
	read := g.Member.Read
	if opts.Stale {
		read = g.Member.ReadStale
	}
	err := read(ctx, func(m cluster.Machine) {
		begun = q.Begin(m.(*machine.Machine))
		if opts.Fixed != nil {
			opts.Fixed()
		}
	})
	if err != nil {
		return nil, err
	}
	return begun(), nil
}

func (g group) Reregister(expired wire.ID, register func() ([]byte, client.Call)) {
	g.Member.Reregister(expired, func() ([]byte, cluster.Call) { return register() })
}

func (g group) Level() uint32 { return g.Member.Level() }

func (g group) Unreachable() string { return g.Member.Unreachable() }

func (group) Unregistered(err error) bool { return errors.Is(err, cluster.ErrUnregistered) }
