package raftlog

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Local returns a record that this member keeps for itself, or nil.
func (l *Log) Local(name string) ([]byte, error) {
	db, giveBack, err := l.store.Borrow()
	if err != nil {
		return nil, err
	}
	defer giveBack()
	record, err := get(db, l.group.local(name))
	if record == nil || err != nil {
		return nil, err
	}
	return body("local "+name, record)
}

// SetLocal makes a local record durable; nil removes it. It blocks.
func (l *Log) SetLocal(name string, value []byte) error {
	return l.store.Do(func(*pebble.DB) error {
		return l.commit(func(w *writer) error {
			w.sync, w.vow = true, true
			return w.setLocal(name, value)
		})
	})
}

// NoteLocal writes a local record that may as well be lost. It does not block,
// and any goroutine may call it.
func (l *Log) NoteLocal(name string, value []byte) {
	value = append([]byte{}, value...)
	l.store.Go(func(*pebble.DB) error {
		return l.commit(func(w *writer) error { return w.setLocal(name, value) })
	}, func(error) {})
}

func (w *writer) setLocal(name string, value []byte) error {
	if value == nil {
		return w.batch.Delete(w.group.local(name), nil)
	}
	return w.batch.Set(w.group.local(name), append([]byte{recordVersion}, value...), nil)
}

// Locals returns the local records whose name has the prefix, by name.
func (l *Log) Locals(prefix string) (map[string][]byte, error) {
	db, giveBack, err := l.store.Borrow()
	if err != nil {
		return nil, err
	}
	defer giveBack()
	records := make(map[string][]byte)
	start := len(l.group.local(""))
	err = each(db, l.group.local(prefix), func(key, record []byte) error {
		name := string(key[start:])
		value, err := body("local "+name, record)
		records[name] = append([]byte{}, value...)
		return err
	})
	return records, err
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

// each calls fn with the pairs whose key has the prefix, in order. They are
// valid during the call only.
func each(r pebble.Reader, prefix []byte, fn func(key, value []byte) error) (err error) {
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
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
