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

// KeyPageQuery asks for keys as KeyNamesQuery does, a page at a time, with the beginning of each value. The answer is a
// []KeyView by key.
type KeyPageQuery struct {
	Prefix, Separator, After string
	Limit                    int
}

// KeyView is a key at the applied index, or a folder: what several keys begin with, up to the separator.
type KeyView struct {
	Key         string
	Folder      bool   `json:",omitempty"` // the rest is of none of its keys, and not set
	Value       []byte // the first bytes, shownBytes at most
	Size        int    // of the whole value
	Flags       uint64
	ModifyIndex uint64
	Session     wire.ID // that has locked the key; zero: none
}

// shownBytes bounds the bytes of a value in a KeyView.
const shownBytes = 256

// Begin implements [Query].
func (q KeyPageQuery) Begin(m *Machine) func() any {
	keys := m.snapshot()
	return func() any { return q.page(keys) }
}

func (q KeyPageQuery) page(keys snapshot) (views []KeyView) {
	left := limited(q.Limit)
	for start, more := q.start(), true; more; {
		more = false
		for e := range keys.from(q.Prefix, start) {
			v := q.view(e)
			views = append(views, v)
			if left--; left == 0 {
				return views
			}
			if v.Folder { // it is one item, however many keys it has
				start, more = beyond(v.Key), true
				break
			}
		}
	}
	return views
}

// start returns what the keys of the page are not less than.
func (q KeyPageQuery) start() string {
	switch {
	case q.After < q.Prefix, q.After == "":
		return q.Prefix
	case strings.HasPrefix(q.After, q.Prefix) && q.isFolder(q.After):
		return beyond(q.After)
	}
	return q.After + "\x00"
}

// isFolder reports whether a key or cursor with the prefix stands for a folder.
func (q KeyPageQuery) isFolder(name string) bool {
	if q.Separator == "" {
		return false
	}
	at := strings.Index(name[len(q.Prefix):], q.Separator)
	return at >= 0 && len(q.Prefix)+at+len(q.Separator) == len(name)
}

func (q KeyPageQuery) view(e *fact.Entry) KeyView {
	if name := (KeyNamesQuery{q.Prefix, q.Separator}).cut(e.Key); q.isFolder(name) {
		return KeyView{Key: name, Folder: true}
	}
	return KeyView{
		Key: e.Key, Value: e.Value[:min(len(e.Value), shownBytes)], Size: len(e.Value), Flags: e.Flags, ModifyIndex: e.ModifyIndex, Session: e.Session,
	}
}

// beyond returns the least string that is greater than all that begin with the folder. That is UTF-8, so its last byte is
// not the largest.
func beyond(folder string) string {
	last := len(folder) - 1
	return folder[:last] + string([]byte{folder[last] + 1})
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
