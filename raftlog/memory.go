package raftlog

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// entryOverhead is about what an entry costs in memory beside its data.
const entryOverhead = 128

// memory is the half of the log that the loop reads: a copy of every entry that
// is durable and not truncated. It implements raft.Storage.
type memory struct {
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	applied   Applied
	truncated mark
	entries   []*raftpb.Entry // those after truncated
	bytes     int
}

func (m *memory) first() uint64 { return m.truncated.index + 1 }

func (m *memory) last() uint64 { return m.truncated.index + uint64(len(m.entries)) }

func (m *memory) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return proto.CloneOf(m.hard), proto.CloneOf(m.conf), nil
}

func (m *memory) FirstIndex() (uint64, error) { return m.first(), nil }

func (m *memory) LastIndex() (uint64, error) { return m.last(), nil }

func (m *memory) Term(index uint64) (uint64, error) {
	switch {
	case index < m.truncated.index:
		return 0, raft.ErrCompacted
	case index == m.truncated.index:
		return m.truncated.term, nil
	case index > m.last():
		return 0, raft.ErrUnavailable
	}
	return m.entries[index-m.first()].GetTerm(), nil
}

// Entries returns those in [low, high) that fit into size, and at least one.
func (m *memory) Entries(low, high, size uint64) ([]*raftpb.Entry, error) {
	if low < m.first() {
		return nil, raft.ErrCompacted
	}
	if high > m.last()+1 || low >= high {
		return nil, raft.ErrUnavailable
	}
	entries := m.entries[low-m.first() : high-m.first()]
	n, total := 0, uint64(0)
	for n < len(entries) {
		total += uint64(proto.Size(entries[n]))
		if total > size && n > 0 {
			break
		}
		n++
	}
	return entries[:n:n], nil // full: raft may append to it
}

// Snapshot returns what a snapshot of the state would say of itself. The state
// is not in it; it is streamed, from a View.
func (m *memory) Snapshot() (*raftpb.Snapshot, error) {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: proto.CloneOf(m.conf),
		Index:     new(m.applied.Index),
		Term:      new(m.applied.Term),
	}}, nil
}

func (a Append) remember(m *memory) {
	if a.HardState != nil {
		m.hard = proto.CloneOf(a.HardState)
	}
	if len(a.Entries) == 0 {
		return
	}
	keep := a.Entries[0].GetIndex() - m.first()
	if keep < uint64(len(m.entries)) {
		m.bytes -= size(m.entries[keep:])
		// Full: raft may still read the entries that are replaced.
		m.entries = m.entries[:keep:keep]
	}
	m.entries = append(m.entries, a.Entries...)
	m.bytes += size(a.Entries)
}

func (a Apply) remember(m *memory) {
	m.applied = Applied{a.Index, a.Term, a.Digest}
	if a.ConfState != nil {
		m.conf = proto.CloneOf(a.ConfState)
	}
}

func (t Truncate) remember(m *memory) {
	if t.Index <= m.truncated.index {
		return
	}
	n := t.Index - m.truncated.index
	m.bytes -= size(m.entries[:n])
	m.truncated = mark{index: t.Index, term: m.entries[n-1].GetTerm()}
	m.entries = append([]*raftpb.Entry(nil), m.entries[n:]...)
}

func (i Install) remember(m *memory) {
	m.applied = Applied{i.Index, i.Term, i.Digest}
	m.conf = proto.CloneOf(i.ConfState)
	if i.HardState != nil {
		m.hard = proto.CloneOf(i.HardState)
	}
	m.hard = committed(m.hard, i.Index)
	m.truncated = mark{index: i.Index, term: i.Term}
	m.entries, m.bytes = nil, 0
}

func size(entries []*raftpb.Entry) int {
	bytes := len(entries) * entryOverhead
	for _, e := range entries {
		bytes += len(e.GetData())
	}
	return bytes
}

// committed returns the hard state with the commit index at index or beyond.
// What is applied or came by snapshot is committed, though the hard state that
// says so may not have been written: raft refuses to start from such a state.
func committed(hard *raftpb.HardState, index uint64) *raftpb.HardState {
	if hard.GetCommit() >= index {
		return hard
	}
	return &raftpb.HardState{Term: new(hard.GetTerm()), Vote: new(hard.GetVote()), Commit: new(index)}
}
