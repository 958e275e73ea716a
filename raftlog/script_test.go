package raftlog

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator generates operations that raft could submit and a log must accept,
// and applies them to the model.
type generator struct {
	*model
	rng *rand.Rand
}

// step is a list of operations that are submitted together. One with a snapshot
// stages it first and installs it by its only operation.
type step struct {
	bootstrap bool
	snapshot  map[string]string
	ops       []Op
	after     *model
}

// synced reports whether the step is durable once it is acknowledged.
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

func (g *generator) next() step {
	if g.rng.IntN(20) == 0 {
		return g.install()
	}
	var s step
	for range 1 + g.rng.IntN(3) {
		op := g.op()
		if op == nil {
			continue
		}
		s.ops = append(s.ops, op)
		g.do(op, nil)
	}
	s.after = g.clone()
	return s
}

func (g *generator) op() Op {
	switch n := g.rng.IntN(10); {
	case n < 4:
		return g.append()
	case n < 5:
		return Append{HardState: hardState(g.hard.GetTerm(), g.hard.GetVote(), g.between(g.hard.GetCommit(), g.last().index))}
	case n < 6:
		return Append{HardState: hardState(g.hard.GetTerm()+1, 1+g.rng.Uint64N(3), g.hard.GetCommit())}
	case n < 9:
		return g.apply()
	case g.truncated.index < g.applied.Index:
		return Truncate{Index: g.between(g.truncated.index+1, g.applied.Index)}
	}
	return nil
}

func (g *generator) between(low, high uint64) uint64 { return low + g.rng.Uint64N(high-low+1) }

// append extends the log or replaces uncommitted entries, sometimes in a new
// term.
func (g *generator) append() Op {
	hard := g.hard
	if g.rng.IntN(4) == 0 || hard.GetTerm() == 0 {
		hard = hardState(hard.GetTerm()+1, 0, hard.GetCommit())
	}
	first := g.last().index + 1
	if g.rng.IntN(4) == 0 {
		first = g.between(max(g.hard.GetCommit(), g.applied.Index)+1, first)
	}
	term := g.between(g.term(first-1), hard.GetTerm())
	op := Append{HardState: hard}
	for i := range 1 + g.rng.Uint64N(4) {
		data := fmt.Sprintf("%d/%d/%x", first+i, term, g.rng.Uint32())
		op.Entries = append(op.Entries, entry(first+i, max(term, 1), data+strings.Repeat(".", g.rng.IntN(2000))))
	}
	return op
}

func (g *generator) apply() Op {
	if g.applied.Index >= g.hard.GetCommit() {
		return nil
	}
	index := g.between(g.applied.Index+1, g.hard.GetCommit())
	op := Checkpoint{After: g.applied.Index, Index: index, Term: g.term(index), Digest: g.rng.Uint64()}
	for range g.rng.IntN(5) {
		change := set(fmt.Sprintf("k%d", g.rng.IntN(20)), fmt.Sprint(index))
		if g.rng.IntN(4) == 0 {
			change.Value = nil
		}
		op.Changes = append(op.Changes, change)
	}
	if g.rng.IntN(4) == 0 {
		op.ConfState = voters(1, 2, index)
	}
	return op
}

// install installs a snapshot ahead of the applied index, inside or beyond the
// log, possibly of an older term than the end of the log.
func (g *generator) install() step {
	hard := hardState(g.hard.GetTerm()+1, 0, g.hard.GetCommit())
	index := g.applied.Index + 1 + g.rng.Uint64N(5)
	s := step{snapshot: map[string]string{"snapshot": fmt.Sprint(index)}}
	for i := range g.rng.IntN(30) {
		s.snapshot[fmt.Sprintf("k%d", i)] = "staged"
	}
	op := Install{
		Index: max(index, g.hard.GetCommit()), Term: g.between(max(g.applied.Term, 1), hard.GetTerm()),
		Digest: g.rng.Uint64(), ConfState: voters(1, 3), HardState: hard,
	}
	s.ops = []Op{op}
	g.do(op, s.snapshot)
	s.after = g.clone()
	return s
}

// play writes a step to a log.
func play(log *Log, s step) error {
	switch {
	case s.bootstrap:
		return log.Bootstrap(s.ops[0].(Install).ConfState)
	case s.snapshot == nil:
		return write(log, s.ops...)
	}
	stage, err := log.Stage()
	if err != nil {
		return err
	}
	for key, value := range s.snapshot {
		if err := stage.Put([]byte(key), []byte(value)); err != nil {
			return err
		}
	}
	op := s.ops[0].(Install)
	if op.Generation, err = stage.Finish(); err != nil {
		return err
	}
	return write(log, op)
}

// script generates a number of steps, of which the first is a bootstrap.
func script(seed uint64, steps int) []step {
	g := &generator{model: newModel(), rng: rand.New(rand.NewPCG(seed, 0))}
	first := Install{Index: 1, Term: 1, ConfState: voters(1, 2, 3), HardState: hardState(1, 0, 1)}
	g.do(first, map[string]string{})
	all := []step{{bootstrap: true, ops: []Op{first}, after: g.clone()}}
	for len(all) < steps {
		all = append(all, g.next())
	}
	return all
}
