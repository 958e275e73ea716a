package core

import (
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// raftNode is raft of this member with its log, and what the core has last learned from it. The
// other types of this package read it; only Core changes it.
type raftNode struct {
	id            uint64
	electionTicks uint64
	logger        *slog.Logger
	node          *raft.RawNode
	log           *raftlog.Log                                     // the core uses its state in memory only
	priority      func(id uint64) (priority int32, connected bool) // Config.Priority

	ticks       uint64
	role        raft.SoftState // as of the last Ready, and so is term
	term        uint64
	last        uint64 // the log's last index, durable or not
	applied     uint64
	appliedTerm uint64 // of that entry
	conf        *raftpb.ConfState
}

const (
	maxMessageSize   = 1 << 20
	maxInflight      = 256
	maxInflightBytes = 8 << 20 // the port queues more for a peer, and the peer keeps more, of one group
	// sharedInflightBytes is that of a group that shares budgets. A member keeps what is on the way to its disk: of a thousand groups and a
	// slow disk 2 GiB. What exceeds a smaller bound than the leader's cannot be dropped: the leader would send it again at each heartbeat.
	sharedInflightBytes = 2 << 20
	maxUncommitted      = 64 << 20
)

// newRaftNode starts raft from the log of cfg, whose hard state it returns.
func newRaftNode(cfg Config) (n raftNode, hard *raftpb.HardState, err error) {
	applied := cfg.Log.Applied()
	n = raftNode{
		id: cfg.ID, electionTicks: uint64(cfg.ElectionTicks), logger: cfg.Logger, log: cfg.Log, priority: cfg.Priority,
		applied: applied.Index, appliedTerm: applied.Term,
	}
	n.last, _ = cfg.Log.LastIndex() // in memory: never fails
	if hard, n.conf, err = cfg.Log.InitialState(); err != nil {
		return n, nil, fmt.Errorf("reading the log's state: %w", err)
	}
	n.term = hard.GetTerm()
	inflightBytes := uint64(maxInflightBytes)
	if cfg.Budgets.Logs != nil {
		inflightBytes = sharedInflightBytes
	}
	n.node, err = newRawNode(&raft.Config{
		ID:                        cfg.ID,
		ElectionTick:              cfg.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   cfg.Log,
		Applied:                   n.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessageSize,
		MaxCommittedSizePerReady:  4 * maxMessageSize,
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           maxInflight,
		MaxInflightBytes:          inflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    raftLogger{cfg.Logger},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	if err != nil {
		return n, nil, fmt.Errorf("starting raft: %w", err)
	}
	return n, hard, nil
}

// newRawNode starts raft from a log. raft panics at an inconsistent log or an invalid
// configuration, and this runs on the goroutine that called Start.
func newRawNode(cfg *raft.Config) (node *raft.RawNode, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: raft does not start from this log: %v", storage.ErrCorrupt, p)
		}
	}()
	return raft.NewRawNode(cfg)
}

// step passes a message to raft. raft refuses those of removed members, and proposals
// without a leader; their senders retry.
func (n *raftNode) step(m *raftpb.Message) { n.ignore(n.node.Step(m)) }

func (n *raftNode) ignore(err error) {
	if err != nil {
		n.logger.Debug("raft", "refused", err)
	}
}

// isLeader reads raft's own role, which may have changed since the last Ready: a follower
// would forward a transfer to the new leader in the successor's name.
func (n *raftNode) isLeader() bool { return n.node.BasicStatus().RaftState == raft.StateLeader }

// isFollowed reports whether a message is of the leader that this member follows.
func (n *raftNode) isFollowed(m *raftpb.Message) bool {
	now := n.node.BasicStatus()
	return m.GetTerm() == now.GetTerm() && m.GetFrom() == now.Lead
}

func (n *raftNode) isVoter(id uint64) bool { return slices.Contains(n.conf.GetVoters(), id) }

// mayVote reports whether a member is a voter, of a joint configuration in either half.
func (n *raftNode) mayVote(id uint64) bool {
	return n.isVoter(id) || slices.Contains(n.conf.GetVotersOutgoing(), id)
}

func (n *raftNode) isMember(id uint64) bool {
	return n.mayVote(id) || slices.Contains(n.conf.GetLearners(), id)
}

// isCurrent reports whether a member with that progress needs no more than a few messages to catch up with this leader.
func (n *raftNode) isCurrent(p tracker.Progress) bool {
	return p.State == tracker.StateReplicate && p.Match+maxLag >= n.applied
}

// isNear reports whether a member with that progress is current, and lacks no more than a leader sends ahead in a further group: 1024 large entries
// take long, in which a leader that transfers its leadership proposes nothing.
func (n *raftNode) isNear(p tracker.Progress) bool {
	last, _ := n.log.LastIndex() // in memory: never fails
	if !n.isCurrent(p) || p.Match >= last {
		return n.isCurrent(p)
	}
	entries, err := n.log.Entries(p.Match+1, last+1, sharedInflightBytes)
	return err == nil && uint64(len(entries)) == last-p.Match
}

// successor returns the most up-to-date of these voters, preferably one that was recently
// active: raft resets RecentActive once in each election timeout. Of several that are equally fit it is the one of the highest priority.
func (n *raftNode) successor(voters []uint64) uint64 {
	var best candidate
	progress := n.node.Status().Progress
	for _, id := range voters {
		p, ok := progress[id]
		if !ok || id == n.id {
			continue
		}
		c := candidate{id: id, active: p.RecentActive, match: p.Match}
		if n.priority != nil {
			c.priority, c.connected = n.priority(id)
		}
		if best.id == raft.None || c.precedes(best) {
			best = c
		}
	}
	return best.id
}

// candidate is a voter that may become the leader by a leadership transfer.
type candidate struct {
	id        uint64
	active    bool
	match     uint64
	connected bool
	priority  int32 // if it is connected
}

// precedes orders candidates: what the group needs of a leader goes before the operator's preference.
func (c candidate) precedes(other candidate) bool {
	switch {
	case c.active != other.active:
		return c.active
	case c.match != other.match:
		return c.match > other.match
	case c.connected != other.connected:
		return c.connected
	case c.priority != other.priority:
		return c.priority > other.priority
	}
	return c.id < other.id
}
