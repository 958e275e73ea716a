package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3/raftpb"
)

// View is a consistent view of the state at one index, unaffected by later
// writes. It must be used by one goroutine, any one, and closed before the store
// is.
type View struct {
	Applied
	ConfState *raftpb.ConfState

	store  *storage.Store
	reader *pebble.Snapshot
	prefix []byte
	unpin  func()
}

// View returns a view of the currently written state.
func (l *Log) View() (*View, error) {
	db, unpin, err := l.store.Pin()
	if err != nil {
		return nil, err
	}
	v := &View{store: l.store, reader: db.NewSnapshot(), unpin: unpin}
	h, err := readHeader(v.reader, l.group)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	v.Applied, v.ConfState = h.applied, h.conf
	v.prefix = l.group.state(h.generation, nil)
	return v, nil
}

// Each calls fn with each pair of the state, in key order, until fn returns an
// error. The slices are valid during the call only.
func (v *View) Each(fn func(key, value []byte) error) error {
	return each(v.reader, v.prefix, func(key, value []byte) error { return fn(key[len(v.prefix):], value) })
}

// Page returns copies of the pairs behind a key, in key order: at least one, unless there
// are none, and up to about size bytes.
func (v *View) Page(after []byte, size int) (pairs []wire.Change, err error) {
	from := append(append([]byte(nil), v.prefix...), after...)
	if after != nil {
		from = append(from, 0) // the first key behind
	}
	iter, err := v.reader.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: prefixEnd(v.prefix)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid && size > 0; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, err
		}
		p := wire.Change{Key: bytes.Clone(iter.Key()[len(v.prefix):]), Value: append([]byte{}, value...)}
		pairs = append(pairs, p)
		size -= len(p.Key) + len(p.Value)
	}
	return pairs, iter.Error()
}

// Close releases the view. It does not wait for a failed store, and returns its failure:
// Pebble then waits for a flush, whose goroutine is parked until the store is closed.
func (v *View) Close() error {
	closed := make(chan error, 1)
	go func() {
		defer v.unpin()
		closed <- v.reader.Close()
	}()
	select {
	case err := <-closed:
		return err
	case <-v.store.Failed():
		return v.store.Err()
	}
}

// State calls fn with each pair of the currently written state, as View.Each
// does.
func (l *Log) State(fn func(key, value []byte) error) error {
	v, err := l.View()
	if err != nil {
		return err
	}
	return errors.Join(v.Each(fn), v.Close())
}

// Load returns the result of load on the currently written state.
func Load[M any](l *Log, load func(state iter.Seq2[[]byte, []byte]) (M, error)) (M, error) {
	var readErr error
	stop := errors.New("stop")
	loaded, err := load(func(yield func(key, value []byte) bool) {
		readErr = l.State(func(key, value []byte) error {
			if !yield(key, value) {
				return stop
			}
			return nil
		})
		if errors.Is(readErr, stop) {
			readErr = nil
		}
	})
	if err := errors.Join(readErr, err); err != nil {
		return loaded, fmt.Errorf("load the state in %s: %w", l.store.Dir(), err)
	}
	return loaded, nil
}
