package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

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

	mu      sync.Mutex
	reaches map[uint64]*reach // guarded by mu; by member, of the present connection from it
}

// reach is which voters a member reaches, as it has reported.
type reach struct {
	voters []uint64
	looks  int // that have used it
}

// reachLooks is how many looks use a report, as each member that reports does so at each look of its own.
const reachLooks = 3

// peers is the transport as leaderSpread uses it.
type peers interface {
	Send(member uint64, f *wire.Frame) bool
	PeerError(member uint64) error // see removalsConfig
	LeaderPriority(member uint64) (priority int32, connected bool)
	Connected(member uint64) (incarnation wire.ID, ok bool)
}

// view implements spread.Config.View.
func (l *leaderSpread) view() spread.View {
	of := l.defaults.Status()
	voters := votersToFollow(of)
	v := spread.View{Leaders: []spread.Leader{{Member: of.Leader, Term: of.Term}}, Same: isConfOf(of.Conf, voters), Voters: l.describe(voters)}
	for _, further := range l.groups.Status() {
		leader := spread.Leader{Group: further.Record.Number}
		if s := further.Status; s != nil {
			leader.Member, leader.Term = s.Leader, s.Term
			v.Same = v.Same && isConfOf(s.Conf, voters)
		}
		v.Leaders = append(v.Leaders, leader)
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
	var up []uint64
	for _, id := range ids {
		v := spread.Voter{ID: id}
		if id == l.groups.self {
			v.Priority, v.Up = l.priority, true
		} else if seen.IsAlive(id) && seen.Unconnected(id) == 0 && l.port.PeerError(id) == nil {
			v.Priority, v.Up = l.port.LeaderPriority(id)
			v.Process, _ = l.port.Connected(id)
			v.Reaches = l.reported(id)
		}
		if v.Up {
			up = append(up, id)
		}
		voters = append(voters, v)
	}
	if i := slices.Index(ids, l.groups.self); i >= 0 {
		voters[i].Reaches = up
	}
	return voters
}

// reported returns which voters a member reaches, if it has reported lately.
func (l *leaderSpread) reported(member uint64) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reaches[member]
	if r == nil {
		return nil
	}
	if r.looks++; r.looks > reachLooks {
		delete(l.reaches, member)
		return nil
	}
	return r.voters
}

// receive notes which voters a member reaches.
func (l *leaderSpread) receive(from uint64, m *wire.Reach) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reaches[from] = &reach{voters: m.GetVoters()}
}

// lost forgets what a member has reported on a connection that has ended.
func (l *leaderSpread) lost(member uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reaches, member)
}

// report implements spread.Config.Report.
func (l *leaderSpread) report(v spread.View) {
	self := slices.IndexFunc(v.Voters, func(voter spread.Voter) bool { return voter.ID == l.groups.self })
	if self < 0 {
		return // a standby leads nothing
	}
	for _, voter := range v.Voters {
		if voter.Up && voter.ID != l.groups.self { // a report that is lost is followed by the next one
			l.port.Send(voter.ID, &wire.Frame{Body: &wire.Frame_Reach{Reach: &wire.Reach{Voters: v.Voters[self].Reaches}}})
		}
	}
}

// transfer implements spread.Config.Transfer.
func (l *leaderSpread) transfer(ctx context.Context, number uint32, voter uint64, byPriority bool) spread.Outcome {
	of, logger := l.leading(number)
	if of == nil {
		return spread.Refused
	}
	self := l.groups.self
	err := of.StepDownTo(ctx, voter)
	failed := errors.Is(err, ErrNoSuccessor)
	switch {
	case err == nil && byPriority:
		logger.Info("leadership transferred to a voter of higher priority", "from", wire.MemberID(self), "to", wire.MemberID(voter))
	case err == nil:
		logger.Info("leadership transferred to spread the leaders", "from", wire.MemberID(self), "to", wire.MemberID(voter))
	case failed && byPriority:
		logger.Info("leadership not transferred to a voter of higher priority", "to", wire.MemberID(voter), "error", err)
	case failed:
		logger.Info("leadership not transferred to spread the leaders", "to", wire.MemberID(voter), "error", err)
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
