package machine

import (
	"iter"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// KeyQuery asks for a key. The answer is a *fact.Entry: nil if the key does not
// exist.
type KeyQuery struct{ Key string }

// Begin implements [Query].
func (q KeyQuery) Begin(m *Machine) func() any {
	e := m.keys.get(q.Key)
	if s := m.ender(e); s != nil {
		e = released(e, s.behavior)
	}
	return answered(e)
}

// KeysQuery asks for all keys with a prefix, at one index. The answer is a
// []*fact.Entry by key; it does not come in pages.
type KeysQuery struct{ Prefix string }

// Begin implements [Query].
func (q KeysQuery) Begin(m *Machine) func() any {
	keys := m.snapshot()
	return func() any { return slices.Collect(q.each(keys)) }
}

func (q KeysQuery) each(keys snapshot) iter.Seq[*fact.Entry] { return keys.prefix(q.Prefix) }

// KeyNamesQuery asks for the keys with a prefix, each cut behind the first
// separator after the prefix. The answer is a []string in order, without
// duplicates. With an empty separator keys are not cut.
type KeyNamesQuery struct{ Prefix, Separator string }

// Begin implements [Query].
func (q KeyNamesQuery) Begin(m *Machine) func() any {
	keys := m.snapshot()
	return func() any { return slices.Collect(q.each(keys)) }
}

func (q KeyNamesQuery) each(keys snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		last := ""
		for e := range keys.prefix(q.Prefix) {
			// Keys that share a beginning are adjacent. None is empty.
			if name := q.cut(e.Key); name != last {
				if last = name; !yield(name) {
					return
				}
			}
		}
	}
}

func (q KeyNamesQuery) cut(key string) string {
	if q.Separator == "" {
		return key
	}
	if i := strings.Index(key[len(q.Prefix):], q.Separator); i >= 0 {
		return key[:len(q.Prefix)+i+len(q.Separator)]
	}
	return key
}

// SequencerQuery asks whether the session still holds the key by the acquisition
// with that lock index. The answer is a bool.
type SequencerQuery struct {
	Key       string
	LockIndex uint64
	Session   wire.ID
}

// Begin implements [Query].
func (q SequencerQuery) Begin(m *Machine) func() any {
	e := m.keys.get(q.Key)
	return answered(e != nil && m.ender(e) == nil && !q.Session.IsZero() && e.Session == q.Session && e.LockIndex == q.LockIndex)
}

// IndexQuery asks for the index of the last change of any key. The answer is a
// uint64.
type IndexQuery struct{}

// Begin implements [Query].
func (IndexQuery) Begin(m *Machine) func() any { return answered(m.keys.changes) }
