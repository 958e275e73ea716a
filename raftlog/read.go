package raftlog

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// header is the log without its entries.
type header struct {
	hard       *raftpb.HardState // nil: never written
	conf       *raftpb.ConfState
	applied    Applied
	truncated  position
	generation uint64
	synced     uint64
}

func readHeader(r pebble.Reader, g group) (header, error) {
	h := header{conf: new(raftpb.ConfState)}
	hard := new(raftpb.HardState)
	var chain uint64
	message := func(name string, m proto.Message) func([]byte) error {
		return func(record []byte) error { return decodeMessage(name, record, m) }
	}
	numbers := func(name string, numbers ...*uint64) func([]byte) error {
		return func(record []byte) error { return decodeNumbers(name, record, numbers...) }
	}
	for kind, decode := range map[byte]func([]byte) error{
		kindHardState: func(record []byte) error {
			h.hard = hard
			return decodeMessage("hard state", record, hard)
		},
		kindConfState:  message("membership", h.conf),
		kindApplied:    numbers("applied", &h.applied.Index, &h.applied.Term, &h.applied.Digest),
		kindTruncated:  numbers("truncated", &h.truncated.index, &h.truncated.term, &chain),
		kindGeneration: numbers("generation", &h.generation),
		kindSynced:     numbers("synced", &h.synced),
	} {
		record, err := get(r, g.key(kind))
		if err == nil && record != nil {
			err = decode(record)
		}
		if err != nil {
			return h, err
		}
	}
	h.truncated.chain = uint32(chain)
	return h, nil
}

// readEntries reads the entries after truncated and verifies the checksum chain.
func readEntries(r pebble.Reader, g group, truncated position) (entries []*raftpb.Entry, positions []position, err error) {
	previous := truncated
	err = each(r, g.key(kindEntry), func(key, record []byte) error {
		index, ok := keyNumber(key)
		if !ok || index != previous.index+1 {
			return corruptf("entry %d follows entry %d", index, previous.index)
		}
		e, chain, err := decodeEntry(index, record)
		if err != nil {
			return err
		}
		if e.GetTerm() < previous.term {
			return corruptf("entry %d of term %d follows an entry of term %d", index, e.GetTerm(), previous.term)
		}
		previous = previous.next(e)
		if previous.chain != chain {
			return corruptf("entry %d does not match its checksum", index)
		}
		entries, positions = append(entries, e), append(positions, previous)
		return nil
	})
	return entries, positions, err
}

// get returns a copy of the value, or nil.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// each calls fn with the pairs whose key has the prefix, in key order. The
// slices are valid during the call only.
func each(r pebble.Reader, prefix []byte, fn func(key, value []byte) error) (err error) {
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		if err := fn(iter.Key(), value); err != nil {
			return err
		}
	}
	return iter.Error()
}
