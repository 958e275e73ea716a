package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/spread"
	"github.com/conclave-go/conclave/internal/wire"
)

// leaderSpread is what package spread needs of a member. It may be used on any goroutine.
type leaderSpread struct {
	groups   *Groups
	defaults *replica.Replica
	priority int32 // this member's
	port     peers
	log      *slog.Logger
}

// peers is the transport as leaderSpread uses it.
type peers interface {
	PeerError(member uint64) error // see removalsConfig
	LeaderPriority(member uint64) (priority int32, connected bool)
}

// view implements spread.Config.View.
func (l *leaderSpread) view() spread.View {
	of := l.defaults.Status()
	voters := votersToFollow(of)
	v := spread.View{Leaders: []spread.Leader{{Member: of.Leader, Term: of.Term}}}
	same := isConfOf(of.Conf, voters)
	for _, further := range l.groups.Status() {
		leader := spread.Leader{Group: further.Record.Number}
		if s := further.Status; s != nil {
			leader.Member, leader.Term = s.Leader, s.Term
			same = same && isConfOf(s.Conf, voters)
		}
		v.Leaders = append(v.Leaders, leader)
	}
	if same {
		v.Voters = l.describe(voters)
	}
	return v
}

// isConfOf reports whether a configuration has these voters, which are ascending, and is not joint.
func isConfOf(conf *raftpb.ConfState, voters []uint64) bool {
	return len(conf.GetVotersOutgoing()) == 0 && slices.Equal(slices.Sorted(slices.Values(conf.GetVoters())), voters)
}

// describe returns the voters as this member sees them.
func (l *leaderSpread) describe(ids []uint64) (voters []spread.Voter) {
	seen := l.groups.roster.Snapshot()
	for _, id := range ids {
		v := spread.Voter{ID: id, Priority: l.priority, Up: true}
		if id != l.groups.self {
			v.Priority, v.Up = l.port.LeaderPriority(id)
			if !seen.IsAlive(id) || seen.Unconnected(id) > 0 || l.port.PeerError(id) != nil {
				v.Priority, v.Up = 0, false
			}
		}
		voters = append(voters, v)
	}
	return voters
}

// transfer implements spread.Config.Transfer.
func (l *leaderSpread) transfer(ctx context.Context, number uint32, m spread.Move) spread.Outcome {
	of, logger := l.leading(number)
	if of == nil {
		return spread.Refused
	}
	self := l.groups.self
	err := of.StepDownTo(ctx, m.To)
	failed := errors.Is(err, ErrNoSuccessor)
	switch {
	case err == nil && m.Priority:
		logger.Info("leadership transferred to a voter of higher priority", "from", wire.MemberID(self), "to", wire.MemberID(m.To))
	case err == nil:
		logger.Info("leadership transferred to spread the leaders", "from", wire.MemberID(self), "to", wire.MemberID(m.To))
	case failed && m.Priority:
		logger.Info("leadership not transferred to a voter of higher priority", "to", wire.MemberID(m.To), "error", err)
	case failed:
		logger.Info("leadership not transferred to spread the leaders", "to", wire.MemberID(m.To), "error", err)
	}
	switch {
	case err == nil:
		return spread.Moved
	case failed:
		return spread.Failed
	}
	return spread.Refused // or the group or the member ends
}

// leading returns the replica of the group with that number, and its log; nil: it has not started.
func (l *leaderSpread) leading(number uint32) (*replica.Replica, *slog.Logger) {
	if number == 0 {
		return l.defaults, l.log
	}
	if h := l.groups.started(number); h != nil {
		return h.replica, h.logger
	}
	return nil, nil
}
