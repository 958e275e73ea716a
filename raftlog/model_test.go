package raftlog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

// model is a plain log: what one should be after some operations.
type model struct {
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	applied   Applied
	truncated mark
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

func (m *model) last() mark {
	if len(m.entries) == 0 {
		return m.truncated
	}
	e := m.entries[len(m.entries)-1]
	return mark{index: e.GetIndex(), term: e.GetTerm()}
}

func (m *model) term(index uint64) uint64 {
	if index == m.truncated.index {
		return m.truncated.term
	}
	return m.entries[index-m.truncated.index-1].GetTerm()
}

// do applies an operation; staged is the state behind an Install.
func (m *model) do(op Op, staged map[string]string) {
	switch op := op.(type) {
	case Append:
		if op.HardState != nil {
			m.hard = op.HardState
		}
		if len(op.Entries) > 0 {
			m.entries = append(m.entries[:op.Entries[0].GetIndex()-m.truncated.index-1:len(m.entries)], op.Entries...)
		}
	case Apply:
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
		t := mark{index: op.Index, term: m.term(op.Index)}
		m.entries = slices.Clone(m.entries[op.Index-m.truncated.index:])
		m.truncated = t
	case Install:
		m.applied, m.conf, m.state = Applied{op.Index, op.Term, op.Digest}, op.ConfState, maps.Clone(staged)
		m.truncated, m.entries = mark{index: op.Index, term: op.Term}, nil
		if op.HardState != nil {
			m.hard = op.HardState
		}
		m.hard = hardState(m.hard.GetTerm(), m.hard.GetVote(), max(m.hard.GetCommit(), op.Index))
	}
}

// String tells all of it, for comparing and for reading.
func (m *model) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "term %d vote %d commit %d, members %v, applied %+v, truncated %d of %d\n", m.hard.GetTerm(), m.hard.GetVote(),
		max(m.hard.GetCommit(), m.applied.Index), m.conf.GetVoters(), m.applied, m.truncated.index, m.truncated.term)
	for _, e := range m.entries {
		fmt.Fprintf(&b, "  %d of %d: %v %s\n", e.GetIndex(), e.GetTerm(), e.GetType(), e.GetData())
	}
	for _, key := range slices.Sorted(maps.Keys(m.state)) {
		fmt.Fprintf(&b, "  %s=%s\n", key, m.state[key])
	}
	return b.String()
}

// found reads a log back into the same form, through what raft and the loop
// read it by.
func found(log *Log) (*model, error) {
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
	m.truncated = mark{index: first - 1, term: term}
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

// author makes up operations that a log has to accept, as raft would hand them
// in, and keeps the model that they lead to.
type author struct {
	*model
	rng *rand.Rand
}

// step is what is handed in together. With stage set its state is staged
// before, and the one operation installs it.
type step struct {
	ops   []Op
	stage map[string]string
	after *model
}

// synced reports whether the step has to be durable once it is acknowledged.
func (s step) synced(before *model) bool {
	for _, op := range s.ops {
		switch op := op.(type) {
		case Install:
			return true
		case Append:
			h := op.HardState
			if len(op.Entries) > 0 || h != nil && (h.GetTerm() != before.hard.GetTerm() || h.GetVote() != before.hard.GetVote()) {
				return true
			}
		}
	}
	return false
}

func (a *author) next() step {
	if a.rng.IntN(20) == 0 {
		return a.install()
	}
	var s step
	for range 1 + a.rng.IntN(3) {
		op := a.op()
		if op == nil {
			continue
		}
		s.ops = append(s.ops, op)
		a.do(op, nil)
	}
	s.after = a.clone()
	return s
}

func (a *author) op() Op {
	switch n := a.rng.IntN(10); {
	case n < 4:
		return a.append()
	case n < 5:
		return Append{HardState: hardState(a.hard.GetTerm(), a.hard.GetVote(), a.between(a.hard.GetCommit(), a.last().index))}
	case n < 6:
		return Append{HardState: hardState(a.hard.GetTerm()+1, 1+a.rng.Uint64N(3), a.hard.GetCommit())}
	case n < 9:
		return a.apply()
	case a.truncated.index < a.applied.Index:
		return Truncate{Index: a.between(a.truncated.index+1, a.applied.Index)}
	}
	return nil
}

func (a *author) between(low, high uint64) uint64 { return low + a.rng.Uint64N(high-low+1) }

// append continues the log, or replaces what is not committed, now and then
// under a new term.
func (a *author) append() Op {
	hard := a.hard
	if a.rng.IntN(4) == 0 || hard.GetTerm() == 0 {
		hard = hardState(hard.GetTerm()+1, 0, hard.GetCommit())
	}
	first := a.last().index + 1
	if a.rng.IntN(4) == 0 {
		first = a.between(max(a.hard.GetCommit(), a.applied.Index)+1, first)
	}
	term := a.between(a.term(first-1), hard.GetTerm())
	op := Append{HardState: hard}
	for i := range 1 + a.rng.Uint64N(4) {
		data := fmt.Sprintf("%d/%d/%x", first+i, term, a.rng.Uint32())
		op.Entries = append(op.Entries, entry(first+i, max(term, 1), data+strings.Repeat(".", a.rng.IntN(2000))))
	}
	return op
}

func (a *author) apply() Op {
	if a.applied.Index >= a.hard.GetCommit() {
		return nil
	}
	index := a.between(a.applied.Index+1, a.hard.GetCommit())
	op := Apply{Index: index, Term: a.term(index), Digest: a.rng.Uint64()}
	for range a.rng.IntN(5) {
		change := set(fmt.Sprintf("k%d", a.rng.IntN(20)), fmt.Sprint(index))
		if a.rng.IntN(4) == 0 {
			change.Value = nil
		}
		op.Changes = append(op.Changes, change)
	}
	if a.rng.IntN(4) == 0 {
		op.ConfState = members(1, 2, index)
	}
	return op
}

// install takes a snapshot that is ahead of what is applied, inside or beyond
// the log, also of a term older than the log's end.
func (a *author) install() step {
	hard := hardState(a.hard.GetTerm()+1, 0, a.hard.GetCommit())
	index := a.applied.Index + 1 + a.rng.Uint64N(5)
	s := step{stage: map[string]string{"snapshot": fmt.Sprint(index)}}
	for i := range a.rng.IntN(30) {
		s.stage[fmt.Sprintf("k%d", i)] = "staged"
	}
	op := Install{
		Index: max(index, a.hard.GetCommit()), Term: a.between(max(a.applied.Term, 1), hard.GetTerm()),
		Digest: a.rng.Uint64(), ConfState: members(1, 3), HardState: hard,
	}
	s.ops = []Op{op}
	a.do(op, s.stage)
	s.after = a.clone()
	return s
}

// play carries a step out on a log.
func play(log *Log, s step) error {
	if s.stage == nil {
		return carryOut(log, s.ops...)
	}
	stage, err := log.Stage()
	if err != nil {
		return err
	}
	for key, value := range s.stage {
		if err := stage.Put([]byte(key), []byte(value)); err != nil {
			return err
		}
	}
	op := s.ops[0].(Install)
	if op.Generation, err = stage.Finish(); err != nil {
		return err
	}
	return carryOut(log, op)
}

// script makes up a number of steps, after a bootstrap.
func script(seed uint64, steps int) []step {
	a := &author{model: newModel(), rng: rand.New(rand.NewPCG(seed, 0))}
	first := Install{Index: 1, Term: 1, ConfState: members(1, 2, 3), HardState: hardState(1, 0, 1)}
	a.do(first, map[string]string{})
	all := []step{{ops: []Op{first}, after: a.clone()}}
	for len(all) < steps {
		all = append(all, a.next())
	}
	return all
}
