package raftlog

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// entryOverhead is the approximate memory of an entry without its data.
const entryOverhead = 128

// memStorage is the loop's half of the log: a copy of every durable entry since
// the last truncation. It implements raft.Storage, like raft.MemoryStorage.
type memStorage struct {
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	applied   Applied
	truncated position        // its chain is unused
	entries   []*raftpb.Entry // entries[i].Index == truncated.index+1+i
	bytes     int             // approximate memory of entries
}

func (m *memStorage) first() uint64 { return m.truncated.index + 1 }

func (m *memStorage) last() uint64 { return m.truncated.index + uint64(len(m.entries)) }

// InitialState implements raft.Storage.
func (m *memStorage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return proto.CloneOf(m.hard), proto.CloneOf(m.conf), nil
}

// FirstIndex implements raft.Storage.
func (m *memStorage) FirstIndex() (uint64, error) { return m.first(), nil }

// LastIndex implements raft.Storage.
func (m *memStorage) LastIndex() (uint64, error) { return m.last(), nil }

// Term implements raft.Storage.
func (m *memStorage) Term(index uint64) (uint64, error) {
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

// Entries implements raft.Storage: it returns the entries in [low, high) up to
// size bytes, and at least one.
func (m *memStorage) Entries(low, high, size uint64) ([]*raftpb.Entry, error) {
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
	return entries[:n:n], nil // full capacity: raft may append to it
}

// Snapshot implements raft.Storage. It returns metadata only; the state is
// streamed from a View.
func (m *memStorage) Snapshot() (*raftpb.Snapshot, error) {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: proto.CloneOf(m.conf),
		Index:     new(m.applied.Index),
		Term:      new(m.applied.Term),
	}}, nil
}

func (a Append) update(m *memStorage) {
	if a.HardState != nil {
		m.hard = proto.CloneOf(a.HardState)
	}
	if len(a.Entries) == 0 {
		return
	}
	keep := a.Entries[0].GetIndex() - m.first()
	if keep < uint64(len(m.entries)) {
		m.bytes -= size(m.entries[keep:])
		// Full capacity: raft may still read the entries that are replaced.
		m.entries = m.entries[:keep:keep]
	}
	m.entries = append(m.entries, a.Entries...)
	m.bytes += size(a.Entries)
}

func (c Checkpoint) update(m *memStorage) {
	m.applied = Applied{c.Index, c.Term, c.Digest}
	if c.ConfState != nil {
		m.conf = proto.CloneOf(c.ConfState)
	}
}

func (t Truncate) update(m *memStorage) {
	if t.Index <= m.truncated.index {
		return
	}
	n := t.Index - m.truncated.index
	m.bytes -= size(m.entries[:n])
	m.truncated = position{index: t.Index, term: m.entries[n-1].GetTerm()}
	m.entries = append([]*raftpb.Entry(nil), m.entries[n:]...)
}

func (i Install) update(m *memStorage) {
	m.applied = Applied{i.Index, i.Term, i.Digest}
	m.conf = proto.CloneOf(i.ConfState)
	if i.HardState != nil {
		m.hard = proto.CloneOf(i.HardState)
	}
	m.hard = withCommit(m.hard, i.Index)
	m.truncated = position{index: i.Index, term: i.Term}
	m.entries, m.bytes = nil, 0
}

func (Discard) update(*memStorage) {}

func size(entries []*raftpb.Entry) int {
	bytes := len(entries) * entryOverhead
	for _, e := range entries {
		bytes += len(e.GetData())
	}
	return bytes
}

// withCommit returns the hard state with a commit index of at least index. What
// is applied or installed is committed, even if the hard state with that commit
// index was never written; raft refuses to start with an applied index beyond
// the commit index.
func withCommit(hard *raftpb.HardState, index uint64) *raftpb.HardState {
	if hard.GetCommit() >= index {
		return hard
	}
	return &raftpb.HardState{Term: new(hard.GetTerm()), Vote: new(hard.GetVote()), Commit: new(index)}
}
