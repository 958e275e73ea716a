package core

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// raft trusts its input: about thirty kinds of malformed messages make it panic. This
// check admits only messages that a correct peer can send.

// ErrInadmissible: no correct peer sends such a message.
var ErrInadmissible = errors.New("inadmissible raft message")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInadmissible, fmt.Sprintf(format, args...))
}

// maxTermStep bounds how far a peer's term may be ahead. An election takes at least a
// heartbeat interval, so no correct peer gets there.
const maxTermStep = 1 << 32

// maxIndex keeps arithmetic on indexes from overflowing. No correct log gets there.
const maxIndex = 1 << 62

func (n *raftNode) admissible(from uint64, m *raftpb.Message) error {
	switch {
	case m.GetFrom() != from:
		return refuse("member %v sends in the name of member %v", wire.MemberID(from), wire.MemberID(m.GetFrom()))
	case m.GetTo() != n.id:
		return refuse("addressed to member %v", wire.MemberID(m.GetTo()))
	case m.GetTerm() > n.term+maxTermStep:
		return refuse("term %d is too far ahead of this member's, %d", m.GetTerm(), n.term)
	case len(m.GetResponses()) > 0:
		return refuse("carries responses")
	case m.GetType() != raftpb.MsgSnap && m.GetSnapshot() != nil && m.GetSnapshot().GetMetadata().GetIndex() != 0:
		return refuse("%v carries a snapshot", m.GetType())
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return admissibleAppend(m)
	case raftpb.MsgHeartbeat:
		if err := n.checkCommit(m); err != nil {
			return err
		}
	case raftpb.MsgAppResp:
		if m.GetIndex() > n.last {
			return refuse("acknowledges index %d, the log ends at %d", m.GetIndex(), n.last)
		}
	case raftpb.MsgReadIndex:
		if m.GetTerm() != 0 || len(m.GetEntries()) != 1 || len(m.GetEntries()[0].GetData()) == 0 {
			return refuse("read index request with a term or without a context")
		}
	case raftpb.MsgReadIndexResp:
		if len(m.GetEntries()) != 1 {
			return refuse("read index response without a context")
		}
	case raftpb.MsgHeartbeatResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow, raftpb.MsgSnap:
	default:
		return refuse("a peer may not send %v", m.GetType())
	}
	if m.GetType() != raftpb.MsgReadIndex && m.GetTerm() == 0 {
		return refuse("%v without a term", m.GetType())
	}
	return nil
}

// checkCommit checks the commit index of a heartbeat: raft panics beyond the log's end. A
// leader sends none beyond what the follower has acknowledged to it. So one of the leader
// that this member follows proves that the log has lost entries; from any other member it
// is a lie or, in a later term, a claim to lead that its first message must not prove.
func (n *raftNode) checkCommit(m *raftpb.Message) error {
	commit := m.GetCommit()
	last, _ := n.log.LastIndex() // in memory: never fails
	switch {
	case commit <= last || m.GetTerm() < n.node.BasicStatus().GetTerm(): // raft ignores that of an earlier term
		return nil
	case n.isFollowed(m):
		return fmt.Errorf("heartbeat of member %v: %w: %w", wire.MemberID(m.GetFrom()), forgot(last, commit), ErrForgot)
	}
	return refuse("heartbeat of no leader that this member follows, with commit %d, the log ends at %d", commit, last)
}

func admissibleAppend(m *raftpb.Message) error {
	if m.GetTerm() == 0 {
		return refuse("append without a term")
	}
	index, term := m.GetIndex(), m.GetLogTerm()
	if index > maxIndex {
		return refuse("append behind index %d", index)
	}
	for _, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index {
			return refuse("entry %d, want entry %d", e.GetIndex(), index)
		}
		if e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return refuse("entry %d of term %d behind term %d in term %d", index, e.GetTerm(), term, m.GetTerm())
		}
		term = e.GetTerm()
		if e.GetType() != raftpb.EntryNormal {
			if _, err := confChange(e); err != nil {
				return refuse("entry %d: %v", index, err)
			}
		}
	}
	return nil
}

func confChange(e *raftpb.Entry) (raftpb.ConfChangeI, error) {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		change := new(raftpb.ConfChange)
		return change, proto.Unmarshal(e.GetData(), change)
	case raftpb.EntryConfChangeV2:
		change := new(raftpb.ConfChangeV2)
		return change, proto.Unmarshal(e.GetData(), change)
	}
	return nil, fmt.Errorf("entry of unknown type %d", e.GetType())
}
