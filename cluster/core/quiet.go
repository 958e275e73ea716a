package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/internal/wire"
)

// A further group that has nothing to do is quiet: no member of it ticks raft, so that it sends no heartbeats and holds no
// elections, and costs next to nothing. CockroachDB does the same with idle ranges, and calls it quiescence.
//
// A leader that has had nothing to do for two election timeouts stops to tick, and asks all other members to do so. One that
// has all that the leader has, and nothing to do either, agrees, and is quiet. When all have agreed, the leader is. Where
// one does not, it ticks again after half an election timeout, and its heartbeats wake the members that have agreed.
//
// A member wakes when it gets something to do, when raft has a message for it, and when a connection with another member
// begins or ends: while those stand, the processes of all members run, and none of them can have elected another leader without
// a message to the others. A follower that is awake and has not heard its leader for half an election timeout wakes that too. So a member
// that is quiet by mistake, as a message was lost, costs the others no election.
//
// Quiet changes nothing that safety depends on: to raft, its members are slow. Group time, which no deadline
// waits for, stands still.

// quietState is a member's part in the quiet of its group.
type quietState int

const (
	awake  quietState = iota
	asking            // the leader has asked the others, and does not tick raft
	asleep
)

// quiescence is this member's part in the quiet of its group.
type quiescence struct {
	*raftNode
	peers *peers
	out   *Effects
	may   bool // Config.Quiet

	state quietState
	since uint64          // the tick at which the state began, or this member had something to do last
	round uint64          // of asking
	index uint64          // that all have applied
	agree map[uint64]bool // of this round
}

// wake has this member tick.
func (q *quiescence) wake() { q.state, q.since = awake, q.ticks }

// Quiet reports whether this member is quiet: Tick has no effect until something else happens, or its log has too much of what logs share.
func (c *Core) Quiet() bool { return c.quiet.state == asleep }

// QuietTicks is how many heartbeat intervals there are between two ticks of a quiet group.
const QuietTicks = 100

// Pace is how often the loop of a member ticks: rarely while its group is quiet. The zero value is that of a member that is awake.
type Pace struct{ quiet bool }

// Skips reports whether no effects follow from a tick: the member is quiet, and not only since that tick.
func (p *Pace) Skips(c *Core) bool { return p.quiet && c.Quiet() }

// Adapt runs after each Take, and reports whether Ticks has changed.
func (p *Pace) Adapt(c *Core) bool {
	changed := c.Quiet() != p.quiet
	p.quiet = c.Quiet()
	return changed
}

// Ticks returns how many heartbeat intervals there are between two ticks.
func (p *Pace) Ticks() int {
	if p.quiet {
		return QuietTicks
	}
	return 1
}

// considerQuiet runs in each tick of a member that is not quiet.
func (c *Core) considerQuiet() {
	q := &c.quiet
	switch {
	case !q.may:
	case !c.idle():
		q.wake()
	case q.state == asking && c.ticks >= q.since+c.electionTicks/2:
		q.wake()
	case q.state == awake && c.ticks >= q.since+2*c.electionTicks && c.othersMayBeQuiet():
		q.ask()
	}
	if q.may && q.state == awake {
		q.wakeLeader()
	}
}

// idle reports whether this member has nothing to do, and nothing to wait for.
func (c *Core) idle() bool {
	if _, waits := c.machine.NextDeadline(); waits {
		return false
	}
	now := c.node.BasicStatus()
	return now.Lead != raft.None && now.Lead == c.role.Lead && now.GetTerm() == c.term && now.LeadTransferee == raft.None &&
		c.applied == c.last && c.applied == now.GetCommit() && len(c.conf.GetVotersOutgoing()) == 0 &&
		c.disk.isIdle() && c.gathered.entries == 0 && c.installation.staged == nil && c.installation.installing == nil &&
		!c.tickets.Unanswered() && c.inbox.Empty() && len(c.proposals.inFlight) == 0 && c.reads.isIdle() &&
		len(c.transfers)+len(c.requests) == 0 && !c.attachedClients.any() && c.campaignAt == 0 &&
		c.reconciler.plan.Reason == "" && c.notices.changes.pending() == 0 &&
		c.arbitration.diverged == nil && c.arbitration.disputed == 0 && c.arbitration.agreed == c.applied
}

// othersMayBeQuiet reports whether this member leads, and has heard from each other one that it has the whole log.
func (c *Core) othersMayBeQuiet() bool {
	if !c.isLeader() || !c.clock.running || !c.notices.settled() {
		return false
	}
	for id, p := range c.node.Status().Progress { // order: all must hold
		if id != c.id && (p.Match != c.last || p.State != tracker.StateReplicate || !p.RecentActive || !c.reconciler.isActive(id)) {
			return false
		}
	}
	return true
}

// ask asks the other members to be quiet.
func (q *quiescence) ask() {
	q.state, q.since = asking, q.ticks
	q.round++
	q.index, q.agree = q.applied, make(map[uint64]bool)
	for _, p := range q.peers.all {
		q.send(p.id, wire.Quiet_ASK)
	}
	q.considerAgreed()
}

func (q *quiescence) send(to uint64, step wire.Quiet_Step) {
	q.out.Quiet = append(q.out.Quiet, QuietMessage{to, &wire.Quiet{Step: step, Term: q.term, Index: q.index, Round: q.round}})
}

// considerAgreed makes a leader quiet when all others are.
func (q *quiescence) considerAgreed() {
	if !slices.ContainsFunc(q.peers.all, func(p *peer) bool { return !q.agree[p.id] }) {
		q.state, q.agree = asleep, nil
	}
}

// wakeLeader wakes the leader if this member has not heard it for long.
func (q *quiescence) wakeLeader() {
	lead := q.role.Lead
	if lead != raft.None && lead != q.id && q.ticks >= q.peers.heardAt(lead)+q.electionTicks/2 {
		q.send(lead, wire.Quiet_WAKE)
	}
}

// ReceiveQuiet receives another member's message about the quiet of the group.
func (c *Core) ReceiveQuiet(from uint64, m *wire.Quiet) {
	q := &c.quiet
	switch {
	case !q.may || c.peers.byID[from] == nil:
	case m.GetStep() == wire.Quiet_WAKE:
		if q.state != awake {
			q.wake()
		}
	case m.GetTerm() != c.term:
	case m.GetStep() == wire.Quiet_ASK:
		if from == c.role.Lead && m.GetIndex() == c.applied && c.idle() {
			q.state, q.round, q.index = asleep, m.GetRound(), m.GetIndex()
			q.send(from, wire.Quiet_AGREE)
		}
	case m.GetStep() == wire.Quiet_AGREE:
		if q.state == asking && m.GetRound() == q.round && m.GetIndex() == q.index && c.isLeader() && c.idle() {
			q.agree[from] = true
			q.considerAgreed()
		}
	}
}

// received wakes this member for a message of raft, unless it is a late answer that tells a leader nothing new.
func (q *quiescence) received(m *raftpb.Message) {
	if q.state == awake {
		return
	}
	if q.isLeader() && m.GetTerm() == q.term {
		switch m.GetType() {
		case raftpb.MsgHeartbeatResp:
			return
		case raftpb.MsgAppResp:
			if !m.GetReject() && m.GetIndex() == q.index {
				return
			}
		}
	}
	q.wake()
}
