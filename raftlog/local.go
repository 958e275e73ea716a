package raftlog

import (
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Local returns a record of this member that is not replicated, or nil.
func (l *Log) Local(name string) ([]byte, error) {
	db, unpin, err := l.store.Pin()
	if err != nil {
		return nil, err
	}
	defer unpin()
	record, err := get(db, l.group.local(name))
	if record == nil || err != nil {
		return nil, err
	}
	return stripVersion("local "+name, record)
}

// Locals returns the local records whose name has the prefix, by name.
func (l *Log) Locals(prefix string) (map[string][]byte, error) {
	db, unpin, err := l.store.Pin()
	if err != nil {
		return nil, err
	}
	defer unpin()
	records := make(map[string][]byte)
	start := len(l.group.local(""))
	err = each(db, l.group.local(prefix), func(key, record []byte) error {
		name := string(key[start:])
		value, err := stripVersion("local "+name, record)
		records[name] = append([]byte{}, value...)
		return err
	})
	return records, err
}

// SetLocal writes a local record and blocks until it is durable; nil removes it.
func (l *Log) SetLocal(name string, value []byte) error {
	return l.store.Do(func(*pebble.DB) error {
		return l.commit(func(w *writer) error {
			w.sync, w.syncWatermark = true, true
			return w.setLocal(name, value)
		})
	})
}

// SetLocalNoSync writes a local record that a power loss may undo; nil removes it. It does
// not block and may be called from any goroutine.
func (l *Log) SetLocalNoSync(name string, value []byte) {
	value = slices.Clone(value)
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
