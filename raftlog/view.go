package raftlog

import (
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// View is the state at one index, for reading while the log goes on. It is for
// one goroutine, any one, and has to be closed before the store is.
type View struct {
	Applied
	ConfState *raftpb.ConfState

	reader *pebble.Snapshot
	prefix []byte
	free   func()
}

// View opens a view of what is written at the moment.
func (l *Log) View() (*View, error) {
	db, giveBack, err := l.store.Borrow()
	if err != nil {
		return nil, err
	}
	v := &View{reader: db.NewSnapshot(), free: giveBack}
	header, err := readHeader(v.reader, l.group)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	v.Applied, v.ConfState = header.applied, header.conf
	v.prefix = l.group.state(header.generation, nil)
	return v, nil
}

// Each calls fn with each pair of the state, in the order of the keys. They are
// valid during the call only.
func (v *View) Each(fn func(key, value []byte) error) error {
	return each(v.reader, v.prefix, func(key, value []byte) error { return fn(key[len(v.prefix):], value) })
}

// Close gives the view back.
func (v *View) Close() error {
	defer v.free()
	return v.reader.Close()
}

// State calls fn with each pair of the state as it is written at the moment.
func (l *Log) State(fn func(key, value []byte) error) error {
	v, err := l.View()
	if err != nil {
		return err
	}
	return errors.Join(v.Each(fn), v.Close())
}

// Load has something made from the state as it is written at the moment.
func Load[M any](l *Log, load func(state iter.Seq2[[]byte, []byte]) (M, error)) (M, error) {
	var failed error
	enough := errors.New("enough")
	made, err := load(func(yield func(key, value []byte) bool) {
		failed = l.State(func(key, value []byte) error {
			if !yield(key, value) {
				return enough
			}
			return nil
		})
		if errors.Is(failed, enough) {
			failed = nil
		}
	})
	if err := errors.Join(failed, err); err != nil {
		return made, fmt.Errorf("reading the state: %w", err)
	}
	return made, nil
}
