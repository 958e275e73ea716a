package raftlog

import (
	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// Snapshot is the state at one index, for reading while the log goes on. It is
// for one goroutine, any one, and has to be closed before the store is.
type Snapshot struct {
	Index, Term, Digest uint64
	ConfState           *raftpb.ConfState

	reader *pebble.Snapshot
	prefix []byte
	free   func()
}

// Snapshot takes a snapshot of what is written at the moment.
func (l *Log) Snapshot() (*Snapshot, error) {
	db, giveBack, err := l.store.Borrow()
	if err != nil {
		return nil, err
	}
	reader := db.NewSnapshot()
	s := &Snapshot{reader: reader, free: giveBack}
	header, err := readHeader(reader, l.group)
	if err != nil {
		s.Close()
		return nil, err
	}
	a := header.applied
	s.Index, s.Term, s.Digest, s.ConfState = a.index, a.term, a.digest, header.conf
	s.prefix = l.group.state(header.generation, nil)
	return s, nil
}

// Each calls fn with each pair of the state, in the order of the keys. They are
// valid during the call only.
func (s *Snapshot) Each(fn func(key, value []byte) error) error {
	return each(s.reader, s.prefix, func(key, value []byte) error { return fn(key[len(s.prefix):], value) })
}

// Close gives the snapshot back.
func (s *Snapshot) Close() error {
	defer s.free()
	return s.reader.Close()
}

// State calls fn with each pair of the state as it is written at the moment.
func (l *Log) State(fn func(key, value []byte) error) error {
	s, err := l.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Each(fn)
}
