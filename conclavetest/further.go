package conclavetest

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/conclave-go/conclave"
)

// LeaderOf is [Group.Leader] for a further group, which [conclave.Node.CreateGroup] has created: it blocks until a running member leads
// that group, with a majority that it can reach, and returns its index. By then another member may lead. Each group has a leader
// of its own, so to fail the leader of a further group:
//
//	group.Kill(group.LeaderOf("tenant-7"))
func (g *Group) LeaderOf(group string) int {
	g.t.Helper()
	if group == g.Node(0).Status().Group {
		return g.Leader()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leader, err := leaderOf(ctx, group, g.Nodes())
	switch {
	case errors.Is(err, conclave.ErrGroupNotFound):
		g.t.Fatalf("conclavetest: there is no group %q: create it first", group)
	case err != nil:
		g.t.Fatalf("conclavetest: no member leads group %q after %v: %v", group, patience, err)
	}
	return g.index(leader)
}

// index returns the index of a running member.
func (g *Group) index(node *conclave.Node) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, m := range g.members {
		if m.node == node {
			return i
		}
	}
	return -1
}

var errNoneRuns = errors.New("no member runs")

// leaderOf asks all nodes at once, since those on the side without a majority do not answer, and returns the leader as the first one that
// answers knows it.
func leaderOf(ctx context.Context, group string, nodes []*conclave.Node) (*conclave.Node, error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	leaders, failed := make(chan *conclave.Node, len(nodes)), make(chan error, len(nodes))
	for _, n := range nodes {
		asking.Go(func() {
			if leader, err := leaderAsOf(ctx, group, n, nodes); err != nil {
				failed <- err
			} else {
				leaders <- leader
			}
		})
	}
	var all []error
	for range nodes {
		select {
		case leader := <-leaders:
			return leader, nil
		case err := <-failed:
			if all = append(all, err); errors.Is(err, conclave.ErrGroupNotFound) {
				return nil, err
			}
		}
	}
	return nil, cmp.Or(errors.Join(all...), errNoneRuns)
}

// leaderAsOf returns the leader of a group as one of the nodes knows it, if it leads by its own view as well.
func leaderAsOf(ctx context.Context, group string, n *conclave.Node, nodes []*conclave.Node) (*conclave.Node, error) {
	for {
		// A majority confirms this read to a leader that this node reaches.
		if _, err := n.WithGroup(group).GroupConfig(ctx); err != nil {
			return nil, err
		}
		known := viewOf(n, group)
		for _, other := range nodes {
			if own := viewOf(other, group); own.Leads && own.Term == known.Term && own.Leader == known.Leader {
				return other, nil
			}
		}
	}
}

// viewOf returns what a node knows of a further group; the zero value: it has no replica of it.
func viewOf(n *conclave.Node, group string) conclave.GroupMetrics {
	for _, g := range n.Metrics().Groups {
		if g.Name == group {
			return g
		}
	}
	return conclave.GroupMetrics{}
}
