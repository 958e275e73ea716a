package core

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A leader must not spread a wrong state: a voter that installs it agrees with the leader
// from then on, and the two outvote a healthy third. So a snapshot is sent once a
// majority of the voters has agreed with the leader's digest at the snapshot's index or
// later, since states that differ once differ at every later index.
//
// No majority can agree in a group of two whose other voter needs the snapshot, or if
// the voters that could agree are down. So without agreement a snapshot is sent after
// confirmationElections election timeouts, unless voters are known to differ. As long as
// they do, and no majority agrees, no snapshot is sent: one of the states is wrong, and it
// is unknown which.
const confirmationElections = 3

// Nor is one sent that shows a membership change which this leader has not applied durably
// (commit_notice.go), whichever voters agree with it and however long it waits.

// ErrUnconfirmed: no majority of the voters agrees with this member's state.
var ErrUnconfirmed = errors.New("no majority of the voters agrees with this member's state")

var errRemoved = errors.New("the member is not in the configuration any more")

// unconfirmed is a snapshot of a state with which no majority has agreed yet.
type unconfirmed struct {
	index uint64      // of the state
	since uint64      // tick
	done  func(error) // nil: it is sent meanwhile
}

// snapshotSending is the snapshots that this leader sends.
type snapshotSending struct {
	*raftNode
	peers       *peers
	arbitration *arbitration
	notices     *commitNotices
	out         *Effects
}

// ConfirmSnapshot calls done once: with nil when the state at index, read from the disk,
// may be sent to the peer, or with an error if it must not be: ErrUnconfirmed, or that the peer
// was removed. A later call for the peer replaces this one.
func (s *snapshotSending) ConfirmSnapshot(peer, index uint64, done func(error)) {
	p := s.peers.byID[peer]
	if p == nil {
		done(errRemoved)
		return
	}
	if s.arbitration.agreed < index {
		s.arbitration.startComparison()
	}
	p.unconfirmed = &unconfirmed{index, s.ticks, done}
}

// SnapshotWaits reports that a snapshot waits until others have been sent. The log does not wait for it meanwhile: that
// ends after a time without progress, and with a log that has grown too much it would cancel what has not begun.
func (s *snapshotSending) SnapshotWaits(peer uint64) {
	if p := s.peers.byID[peer]; p != nil && p.catchUp != nil {
		p.catchUp.kept = false
	}
}

// SnapshotBegins reports that the state at index is sent now, by one that has waited. It is cancelled if this member leads no
// more, the peer was removed, or the log has been truncated behind it meanwhile: the peer could not continue.
func (s *snapshotSending) SnapshotBegins(peer, index uint64) {
	p := s.peers.byID[peer]
	if first, _ := s.log.FirstIndex(); p == nil || !s.isLeader() || first > index+1 { // in memory: never fails
		s.out.Cancelled = append(s.out.Cancelled, peer)
		return
	}
	p.snapshotBegan(index, s.ticks)
}

// SnapshotSent reports how sending a snapshot ended.
func (s *snapshotSending) SnapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	s.node.ReportSnapshot(peer, status)
	if p := s.peers.byID[peer]; p != nil {
		p.snapshotEnded()
	}
}

// confirmSnapshots runs in each Take.
func (s *snapshotSending) confirmSnapshots() {
	for _, p := range s.peers.all {
		u := p.unconfirmed
		switch {
		case u == nil:
		case !s.isLeader() || s.arbitration.contested() || !s.notices.mayTell(p.id, u.index):
			s.refuseSnapshot(p, ErrUnconfirmed)
		case s.notices.changes.unsynced(u.index):
		case s.arbitration.agreed >= u.index:
			p.unconfirmed = nil
			if u.done != nil {
				u.done(nil)
			}
		case u.done != nil && s.ticks >= u.since+confirmationElections*s.electionTicks:
			u.done(nil)
			u.done = nil
		}
	}
}

// refuseSnapshot refuses a snapshot with which no majority has agreed, or cancels it if it is
// already sent.
func (s *snapshotSending) refuseSnapshot(p *peer, why error) {
	switch u := p.unconfirmed; {
	case u == nil:
	case u.done == nil:
		s.out.Cancelled = append(s.out.Cancelled, p.id)
	default:
		u.done(why)
	}
	p.unconfirmed = nil
}

// probe asks a member for the position of its log, in place of raft's message with a
// snapshot. raft also falls back to a snapshot when the log suffices: an answer to a
// message of an earlier term has index 0, which raft takes for all that the member has.
// The answer to the probe corrects that. If the member does need a snapshot, raft asks
// again at the next heartbeat.
func (s *snapshotSending) probe(m *raftpb.Message) {
	s.node.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
	first, _ := s.log.FirstIndex() // in memory: never fails
	before := first - 1
	term, err := s.log.Term(before)
	if err != nil {
		return
	}
	s.out.Messages = append(s.out.Messages, &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: m.From, To: m.To, Term: m.Term, Index: &before, LogTerm: &term, Commit: new(uint64),
	})
}
