package virtualtime

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// The changes that remove a member never reach that member, so its own log does not
// contain its removal. It stops once a majority of the voters refuse it, again after each
// restart.
func TestLeave_RemovalNotInOwnLog(t *testing.T) {
	for _, members := range []int{3, 4, 5} { // of two, the other needs its acknowledgement
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			var leaving atomic.Uint64
			inMembershipBubble(t, members, func(g *membership) {
				x := (g.Leader() + 1) % members
				leaving.Store(uint64(g.Nodes[x].Status().ID))
				g.leave(x)
				g.wantRemoved(x)
				g.wantRemoved(x)
				g.wantLock()
			}, voters(members|1), withoutRemovals(&leaving))
		})
	}
}

// A majority of the voters is needed: while too few of them are reachable, a member whose
// log does not contain its removal keeps waiting for the others.
func TestLeave_TooFewRefusals(t *testing.T) {
	t.Parallel()
	var leaving atomic.Uint64
	inMembershipBubble(t, 5, func(g *membership) {
		leader := g.Leader()
		x := (leader + 1) % 5
		leaving.Store(uint64(g.Nodes[x].Status().ID))
		g.leave(x)
		g.Kill(g.Others(x)[:2]...)
		_, err := g.Open(x, 20*election)
		grouptest.WantError(t, err, conclave.ErrUnavailable)
		g.Start(g.Others(x)[:2]...)
		g.wantRemoved(x)
		g.wantLock()
	}, voters(5), withoutRemovals(&leaving))
}

// withoutRemovals loses each message to a member that contains a change which demotes
// or removes a member.
func withoutRemovals(to *atomic.Uint64) grouptest.Option {
	return grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) {
		s.Effects = func(e *cluster.Effects) {
			e.Messages = slices.DeleteFunc(e.Messages, func(m *raftpb.Message) bool {
				return m.GetTo() == to.Load() && slices.ContainsFunc(m.GetEntries(), removesMember)
			})
		}
	})
}

func removesMember(e *raftpb.Entry) bool {
	change := new(raftpb.ConfChangeV2)
	if e.GetType() != raftpb.EntryConfChangeV2 || proto.Unmarshal(e.GetData(), change) != nil {
		return false
	}
	return slices.ContainsFunc(change.GetChanges(), func(c *raftpb.ConfChangeSingle) bool {
		return c.GetType() == raftpb.ConfChangeRemoveNode || c.GetType() == raftpb.ConfChangeAddLearnerNode
	})
}
