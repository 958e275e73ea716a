package machine

import (
	"bytes"
	"cmp"
	"iter"
	"strings"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// keys holds the entries by key. Entries are immutable and the tree is copied on
// write, so a reader works on a clone while the machine goes on.
type keys struct {
	tree  *btree.BTreeG[*fact.Entry]
	bytes int // of all keys and values

	changes uint64 // index of the last change
	// No lock index may occur twice for a key and a session, or a stale sequencer
	// would become valid again. One number covers all deleted keys.
	lockFloor   uint64
	lockFloorAt uint64 // raft index

	delays map[string]*keyDelay // by key

	// Ended sessions with keys that are not released yet, perhaps with some that have none
	// left: a reader has to know which keys are free. Copied on write, as the entries are.
	enders *btree.BTreeG[ender]
}

// ender is an ended session that has locked keys.
type ender struct {
	id       wire.ID
	behavior wire.Behavior
}

// keyDelay prevents a key from being acquired, whether it exists or not.
type keyDelay struct {
	key   string
	until int64
}

func newKeys() keys {
	return keys{
		tree: btree.NewG(ordered.Degree, func(a, b *fact.Entry) bool { return a.Key < b.Key }),

		delays: make(map[string]*keyDelay),
		enders: btree.NewG(ordered.Degree, func(a, b ender) bool { return bytes.Compare(a.id[:], b.id[:]) < 0 }),
	}
}

// get returns the entry, or nil.
func (k *keys) get(key string) *fact.Entry {
	e, _ := k.tree.Get(&fact.Entry{Key: key})
	return e
}

// snapshot is all keys at one index. Any goroutine may read it while the machine
// goes on.
type snapshot struct {
	tree *btree.BTreeG[*fact.Entry]
	dead *btree.BTreeG[ender]
}

// snapshot returns all keys as they are now, in O(1).
func (m *Machine) snapshot() snapshot {
	return snapshot{tree: m.keys.tree.Clone(), dead: m.keys.enders.Clone()}
}

// released returns a key locked by an ended session as it will be when it is
// released; nil: deleted.
func released(e *fact.Entry, behavior wire.Behavior) *fact.Entry {
	if behavior == wire.Behavior_DELETE {
		return nil
	}
	free := *e
	free.Session = wire.ID{}
	return &free
}

// prefix iterates over the entries whose keys begin with prefix, by bytes.
func (s snapshot) prefix(prefix string) iter.Seq[*fact.Entry] { return s.from(prefix, prefix) }

// from is prefix, from the first key on that is not less than start, which begins with prefix or is beyond it.
func (s snapshot) from(prefix, start string) iter.Seq[*fact.Entry] {
	return func(yield func(*fact.Entry) bool) {
		s.tree.AscendGreaterOrEqual(&fact.Entry{Key: start}, func(e *fact.Entry) bool {
			if !strings.HasPrefix(e.Key, prefix) {
				return false
			}
			if by, dead := s.dead.Get(ender{id: e.Session}); dead {
				e = released(e, by.behavior)
			}
			return e == nil || yield(e)
		})
	}
}

func size(e *fact.Entry) int {
	if e == nil {
		return 0
	}
	return len(e.Key) + len(e.Value)
}

// lockIndex returns the lower bound, exclusive, of the next lock index: the key's
// own, and that of deleted keys if the session may have locked this one before.
func (k *keys) lockIndex(e *fact.Entry, s *session) uint64 {
	older := s.createIndex <= k.lockFloorAt && (e.CreateIndex == 0 || s.createIndex <= e.CreateIndex)
	if older {
		return max(e.LockIndex, k.lockFloor)
	}
	return e.LockIndex
}

// replace replaces from by to; nil is no entry.
func (k *keys) replace(from, to *fact.Entry) {
	if to != nil {
		k.tree.ReplaceOrInsert(to)
	} else {
		k.tree.Delete(from)
	}
	k.bytes += size(to) - size(from)
}

// bindKey updates the sets of keys that sessions have locked.
func (m *Machine) bindKey(from, to *fact.Entry) {
	if from != nil && !from.Session.IsZero() {
		if s := m.sessions[from.Session]; s != nil {
			s.keys.Delete(from.Key)
		}
	}
	if to != nil && !to.Session.IsZero() {
		m.lockKey(m.sessions[to.Session], to.Key)
	}
}

func (m *Machine) lockKey(s *session, key string) {
	if s.keys == nil {
		s.keys = ordered.NewTree(&m.visits, strings.Compare)
	}
	s.keys.ReplaceOrInsert(key)
}

// locked returns how many keys the session has locked.
func (s *session) locked() int {
	if s.keys == nil {
		return 0
	}
	return s.keys.Len()
}

// keyStep is one change of one key.
type keyStep struct {
	index    uint64
	from, to *fact.Entry // nil: there was, or is, none
}

// step makes one change under an index of its own: many commands share a raft index,
// and with duplicate modify indexes a compare-and-swap could succeed wrongly.
func (m *Machine) step(from, to *fact.Entry) keyStep {
	m.keys.changes = max(m.keys.changes+1, m.index)
	if to != nil {
		to.ModifyIndex = m.keys.changes
		if from == nil {
			to.CreateIndex = to.ModifyIndex
		}
	} else if from.LockIndex > 0 {
		m.keys.lockFloor = max(m.keys.lockFloor, from.LockIndex)
		m.keys.lockFloorAt = m.index
	}
	m.keys.replace(from, to)
	m.bindKey(from, to)
	return keyStep{m.keys.changes, from, to}
}

// record makes a step durable and emits it.
func (m *Machine) record(s keyStep) {
	if s.to == nil {
		m.dirty.drop(entryKey(s.from.Key))
	} else {
		m.dirty.put(entryKey(s.to.Key), entry{s.to})
	}
	m.changed = append(m.changed, fact.KeyChange{Index: s.index, Entry: cmp.Or(s.to, s.from), Deleted: s.to == nil})
}

// endKey releases or deletes a key of a session that has ended. The lock-delay
// belongs to the name and outlives the key.
func (m *Machine) endKey(key string, s *session) {
	from := m.keys.get(key)
	m.record(m.step(from, released(from, s.behavior)))
	if until := s.delayUntil(); until > m.now {
		d := &keyDelay{key: key, until: until}
		m.keys.delays[key] = d
		m.beginDelay(d)
		m.dirty.put(d.durable(), d)
	}
}

func (d *keyDelay) ends() int64     { return d.until }
func (d *keyDelay) place() place    { return place{kind: keyDelayKind, name: d.key} }
func (d *keyDelay) durable() string { return string(keyDelayKind) + d.key }

// over ends the lock-delay.
func (d *keyDelay) over(m *Machine) {
	delete(m.keys.delays, d.key)
	m.dirty.drop(d.durable())
}

// same reports whether a write changes nothing, in which case no index moves.
func same(a, b *fact.Entry) bool {
	return bytes.Equal(a.Value, b.Value) && a.Flags == b.Flags &&
		a.Session == b.Session && a.LockIndex == b.LockIndex && a.Fence == b.Fence
}
