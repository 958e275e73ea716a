package raftlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// model is the reference: a log in plain data structures.
type model struct {
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	applied   Applied
	truncated position
	entries   []*raftpb.Entry
	state     map[string]string
}

func newModel() *model {
	return &model{hard: &raftpb.HardState{}, conf: &raftpb.ConfState{}, state: map[string]string{}}
}

func (m *model) clone() *model {
	c := *m
	c.entries, c.state = slices.Clone(m.entries), maps.Clone(m.state)
	return &c
}

func (m *model) last() position {
	if len(m.entries) == 0 {
		return m.truncated
	}
	e := m.entries[len(m.entries)-1]
	return position{index: e.GetIndex(), term: e.GetTerm()}
}

func (m *model) term(index uint64) uint64 {
	if index == m.truncated.index {
		return m.truncated.term
	}
	return m.entries[index-m.truncated.index-1].GetTerm()
}

// do applies an operation; staged is the state that an Install installs.
func (m *model) do(op Op, staged map[string]string) {
	switch op := op.(type) {
	case Append:
		if op.HardState != nil {
			m.hard = op.HardState
		}
		if len(op.Entries) > 0 {
			m.entries = append(m.entries[:op.Entries[0].GetIndex()-m.truncated.index-1:len(m.entries)], op.Entries...)
		}
	case Checkpoint:
		m.applied = Applied{op.Index, op.Term, op.Digest}
		if op.ConfState != nil {
			m.conf = op.ConfState
		}
		for _, c := range op.Changes {
			if delete(m.state, string(c.Key)); c.Value != nil {
				m.state[string(c.Key)] = string(c.Value)
			}
		}
	case Truncate:
		t := position{index: op.Index, term: m.term(op.Index)}
		m.entries = slices.Clone(m.entries[op.Index-m.truncated.index:])
		m.truncated = t
	case Install:
		m.applied, m.conf, m.state = Applied{op.Index, op.Term, op.Digest}, op.ConfState, maps.Clone(staged)
		m.truncated, m.entries = position{index: op.Index, term: op.Term}, nil
		if op.HardState != nil {
			m.hard = op.HardState
		}
		m.hard = hardState(m.hard.GetTerm(), m.hard.GetVote(), max(m.hard.GetCommit(), op.Index))
	}
}

// String contains all of the log: logs are equal if their strings are.
func (m *model) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "term %d vote %d commit %d, voters %v, applied %+v, truncated %d of %d\n", m.hard.GetTerm(), m.hard.GetVote(),
		max(m.hard.GetCommit(), m.applied.Index), m.conf.GetVoters(), m.applied, m.truncated.index, m.truncated.term)
	for _, e := range m.entries {
		fmt.Fprintf(&b, "  %d of %d: %v %s\n", e.GetIndex(), e.GetTerm(), e.GetType(), e.GetData())
	}
	for _, key := range slices.Sorted(maps.Keys(m.state)) {
		fmt.Fprintf(&b, "  %s=%s\n", key, m.state[key])
	}
	return b.String()
}

// readLog returns the content of a log, read through the methods that raft and
// the loop read it by.
func readLog(log *Log) (*model, error) {
	m := newModel()
	var err error
	if m.hard, m.conf, err = log.InitialState(); err != nil {
		return nil, err
	}
	m.applied = log.Applied()
	first, _ := log.FirstIndex()
	last, _ := log.LastIndex()
	term, err := log.Term(first - 1)
	if err != nil {
		return nil, err
	}
	m.truncated = position{index: first - 1, term: term}
	if first <= last {
		if m.entries, err = log.Entries(first, last+1, 1<<30); err != nil {
			return nil, err
		}
	}
	err = log.State(func(key, value []byte) error {
		m.state[string(key)] = string(value)
		return nil
	})
	return m, err
}

func mustReadLog(t *testing.T, log *Log) string {
	t.Helper()
	m, err := readLog(log)
	if err != nil {
		t.Fatal(err)
	}
	return m.String()
}
