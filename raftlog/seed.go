package raftlog

import (
	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// Seed replaces the log, the state and every local record at once, by those with which a
// new group begins: a crash leaves all of the old or all of the new. It is durable when
// Write returns.
type Seed struct {
	Install
	Locals map[string][]byte
}

func (s Seed) write(w *writer) error {
	if err := s.Install.write(w); err != nil {
		return err
	}
	locals := w.group.local("")
	if err := w.batch.DeleteRange(locals, prefixEnd(locals), nil); err != nil {
		return err
	}
	for name, value := range s.Locals {
		if err := w.setLocal(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Execute carries out an operation and blocks until it is as durable as it requires. Loop
// only, and when nothing else is being written.
func (l *Log) Execute(op Op) error { return ExecuteAll([]Write{{l, op}}) }

// Write is an operation on one of the logs in a store.
type Write struct {
	Log *Log
	Op  Op
}

// ExecuteAll is Execute for operations on several logs of one store, in one atomic batch.
func ExecuteAll(list []Write) error {
	j := list[0].Log.journal
	err := j.store.Do(func(*pebble.DB) error {
		return j.write(func(c *commit) error {
			for _, w := range list {
				if err := w.Log.fill(c, []Op{w.Op}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, w := range list {
		w.Log.Wrote(w.Op)
	}
	return nil
}

// Unapplied returns the entries behind the written state, committed or not. They must
// not be modified. Loop only.
func (l *Log) Unapplied() []*raftpb.Entry {
	from := l.applied.Index + 1 - l.first() // the log contains the applied entry
	return l.entries[from:]
}

// Position returns the current term, and the index and term of the last entry. Loop only.
func (l *Log) Position() (term, last, lastTerm uint64) {
	last = l.last()
	lastTerm, _ = l.Term(last) // in memory: never fails
	return l.hard.GetTerm(), last, lastTerm
}
