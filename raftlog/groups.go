package raftlog

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// The logs of further groups are in the store of the default group's, each below a prefix of its own. A log that is
// erased leaves nothing: the numbers of groups are never used again.

// Groups returns the numbers of the further groups of which the store has anything, ascending.
func Groups(l *Log) (numbers []uint32, err error) {
	db, unpin, err := l.store.Pin()
	if err != nil {
		return nil, err
	}
	defer unpin()
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: binary.BigEndian.AppendUint32(nil, 1)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; {
		if len(iter.Key()) < 4 {
			return nil, corruptf("key %x has no group", iter.Key())
		}
		number := binary.BigEndian.Uint32(iter.Key())
		numbers = append(numbers, number)
		after := prefixEnd(binary.BigEndian.AppendUint32(nil, number))
		if after == nil {
			break
		}
		valid = iter.SeekGE(after)
	}
	return numbers, iter.Error()
}

// ErrErased: the log has been erased.
var ErrErased = errors.New("the log has been erased")

// Erase removes all that the store has of a further group. Its log must not be used any more. A stage that still
// receives a snapshot fails with [ErrErased]. It also records that of the groups up to a number no other log is missing than that of a
// deleted group. A power loss may undo both.
func Erase(l *Log, upTo uint32) error {
	prefix := binary.BigEndian.AppendUint32(nil, uint32(l.group))
	return l.store.Do(func(*pebble.DB) error {
		l.written.erased = true
		return l.journal.write(func(c *commit) error {
			if err := c.batch.DeleteRange(prefix, prefixEnd(prefix), nil); err != nil {
				return err
			}
			return c.batch.Set(group(0).key(kindErased), encodeNumbers(uint64(upTo)), nil)
		})
	})
}

// Erased returns the number that Erase has recorded last; 0: none.
func Erased(l *Log) (upTo uint32, err error) {
	db, unpin, err := l.store.Pin()
	if err != nil {
		return 0, err
	}
	defer unpin()
	record, err := get(db, group(0).key(kindErased))
	if record == nil || err != nil {
		return 0, err
	}
	var number uint64
	err = decodeNumbers("erased", record, &number)
	return uint32(number), err
}
