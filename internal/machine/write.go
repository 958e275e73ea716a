package machine

import (
	"iter"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// writing is a Write in progress: its changes so far, so that it can be undone.
type writing struct {
	m      *Machine
	steps  []keyStep
	before keys // the counters
}

// write applies operations on keys, all or none.
func (m *Machine) write(c *wire.Write) *wire.Reply {
	switch {
	case len(c.Ops) == 0:
		return m.refuse(wire.Code_INVALID, "a write needs at least 1 operation")
	case len(c.Ops) > MaxOps:
		return m.refuse(wire.Code_TOO_LARGE, "too many operations: at most 128")
	}
	if r := m.checkPrefixes(c.Ops); r != nil {
		return r
	}
	for _, op := range c.Ops {
		m.endKeys(op)
	}
	w := &writing{m: m, before: m.keys}
	done := m.reply(wire.Code_OK)
	done.Keys = make([]*wire.KeyMeta, len(c.Ops))
	for i, op := range c.Ops {
		e, refusal := w.apply(op)
		if refusal != nil {
			w.undo()
			refusal.Op = uint32(i)
			return refusal
		}
		done.Keys[i] = meta(e)
	}
	for _, s := range w.steps {
		m.record(s)
	}
	return done
}

// keysFound is the keys that the prefixes of the commands of the present entry have found. A command of some bytes can find
// MaxPrefixKeys of them, and have no effect: it is too large, or an operation behind the prefix is refused.
type keysFound struct {
	most             int // MaxPrefixed; less in tests
	members, clients int
}

// of returns the sum that the command being applied counts in.
func (x *keysFound) of(m *Machine) *int {
	if m.forClient {
		return &x.clients
	}
	return &x.members
}

// checkPrefixes refuses operations that together would delete too many keys. They are
// counted before the write changes any, and a key with two of the prefixes twice: so no
// write looks at more. Those of one entry do not look at many more than that together.
func (m *Machine) checkPrefixes(ops []*wire.KeyOp) *wire.Reply {
	found, sum := 0, m.prefixed.of(m)
	refused := func(op int, r *wire.Reply) *wire.Reply {
		*sum, r.Op = *sum+found, uint32(op)
		return r
	}
	for i, op := range ops {
		if op.Kind != wire.KeyOp_DELETE_PREFIX || m.checkKeyOp(op) != nil {
			continue
		}
		if m.levels.agreed >= wire.LevelPrefixes && *sum >= m.prefixed.most {
			return refused(i, m.refuse(wire.Code_BUSY, "too many keys with prefixes at once; try again"))
		}
		for range m.withPrefix(op.Key) {
			if found++; found > MaxPrefixKeys {
				return refused(i, m.refuse(wire.Code_TOO_LARGE, "too many keys have the prefixes: at most 16384; use longer ones"))
			}
		}
	}
	*sum += found
	return nil
}

// endKeys releases the keys of an operation that ended sessions have locked, so that
// it finds them as if they had been released when the sessions ended.
func (m *Machine) endKeys(op *wire.KeyOp) {
	switch {
	case m.ending.Len == 0 || m.checkKeyOp(op) != nil:
		return
	case op.Kind == wire.KeyOp_DELETE_PREFIX:
		for _, e := range slices.Collect(m.withPrefix(op.Key)) {
			if s := m.ender(e); s != nil {
				m.endKey(e.Key, s)
			}
		}
		return
	}
	if s := m.ender(m.keys.get(op.Key)); s != nil {
		m.endKey(op.Key, s)
	}
}

// ender returns the ended session that has locked the key, or nil.
func (m *Machine) ender(e *fact.Entry) *session {
	if e == nil || e.Session.IsZero() {
		return nil
	}
	if s := m.sessions[e.Session]; s.dead() {
		return s
	}
	return nil
}

// withPrefix iterates over the keys with the prefix.
func (m *Machine) withPrefix(prefix string) iter.Seq[*fact.Entry] {
	return func(yield func(*fact.Entry) bool) {
		m.keys.tree.AscendGreaterOrEqual(&fact.Entry{Key: prefix}, func(e *fact.Entry) bool {
			m.visits.Count()
			return strings.HasPrefix(e.Key, prefix) && yield(e)
		})
	}
}

func (w *writing) undo() {
	for _, s := range slices.Backward(w.steps) {
		w.m.keys.replace(s.to, s.from)
		w.m.bindKey(s.to, s.from)
	}
	k := &w.m.keys
	k.changes, k.lockFloor, k.lockFloorAt = w.before.changes, w.before.lockFloor, w.before.lockFloorAt
}

func meta(e *fact.Entry) *wire.KeyMeta {
	if e == nil {
		return new(wire.KeyMeta)
	}
	k := &wire.KeyMeta{
		Flags: e.Flags, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, LockIndex: e.LockIndex, Fence: e.Fence,
	}
	if !e.Session.IsZero() {
		k.Session = e.Session[:]
	}
	return k
}

// apply applies one operation and returns the resulting entry.
func (w *writing) apply(op *wire.KeyOp) (*fact.Entry, *wire.Reply) {
	if r := w.m.checkKeyOp(op); r != nil {
		return nil, r
	}
	e := w.m.keys.get(op.Key)
	switch op.Kind {
	case wire.KeyOp_PUT:
		return w.put(e, op)
	case wire.KeyOp_PUT_FENCED:
		return w.putFenced(e, op)
	case wire.KeyOp_SWAP:
		if r := w.m.expect(e, op.Index); r != nil {
			return nil, r
		}
		return w.put(e, op)
	case wire.KeyOp_DELETE:
		return w.delete(e)
	case wire.KeyOp_DELETE_IF:
		if r := w.m.expect(e, op.Index); r != nil {
			return nil, r
		}
		return w.delete(e)
	case wire.KeyOp_DELETE_PREFIX:
		w.deletePrefix(op.Key)
		return nil, nil
	case wire.KeyOp_ACQUIRE:
		return w.acquire(e, op)
	case wire.KeyOp_RELEASE:
		return w.release(e, op)
	case wire.KeyOp_EXPECT:
		return e, w.m.expect(e, op.Index)
	case wire.KeyOp_EXPECT_HOLDER:
		return e, w.m.expectHolder(e, op)
	}
	return nil, w.m.refuse(wire.Code_INVALID, "unknown operation")
}

func (m *Machine) checkKeyOp(op *wire.KeyOp) *wire.Reply {
	check := m.checkName
	if op.Kind == wire.KeyOp_DELETE_PREFIX {
		check = m.checkOptionalName
	}
	if r := check(op.Key); r != nil {
		return r
	}
	if len(op.Value) > MaxValue {
		return m.refuse(wire.Code_TOO_LARGE, "the value is too long: at most 512 KiB")
	}
	return nil
}

// expect refuses unless the key has the modify index; 0: unless there is no key.
func (m *Machine) expect(e *fact.Entry, index uint64) *wire.Reply {
	if e == nil && index == 0 || e != nil && index != 0 && e.ModifyIndex == index {
		return nil
	}
	return m.reply(wire.Code_COMPARE_FAILED)
}

func (m *Machine) expectHolder(e *fact.Entry, op *wire.KeyOp) *wire.Reply {
	id, ok := wire.IDFrom(op.Session)
	if ok && !id.IsZero() && e != nil && e.Session == id && e.LockIndex == op.Index {
		return nil
	}
	return m.reply(wire.Code_STALE_SEQUENCER)
}

// draft returns a copy of the entry, or a new one, to be changed and set.
func draft(e *fact.Entry, key string) *fact.Entry {
	if e == nil {
		return &fact.Entry{Key: key}
	}
	d := *e
	return &d
}

func (w *writing) put(e *fact.Entry, op *wire.KeyOp) (*fact.Entry, *wire.Reply) {
	to := draft(e, op.Key)
	to.Value, to.Flags = op.Value, op.Flags
	return w.set(e, to)
}

// putFenced refuses a fence that is smaller than that of an earlier write.
func (w *writing) putFenced(e *fact.Entry, op *wire.KeyOp) (*fact.Entry, *wire.Reply) {
	if op.Fence == 0 {
		return nil, w.m.refuse(wire.Code_INVALID, "invalid fence: 0")
	}
	to := draft(e, op.Key)
	if op.Fence < to.Fence {
		r := w.m.reply(wire.Code_STALE_FENCE)
		r.Fence = to.Fence
		return nil, r
	}
	to.Value, to.Fence = op.Value, op.Fence
	return w.set(e, to)
}

// set replaces e by to, if that changes anything.
func (w *writing) set(e, to *fact.Entry) (*fact.Entry, *wire.Reply) {
	if e != nil && same(e, to) {
		return e, nil
	}
	if e == nil && w.m.keys.tree.Len() >= w.m.limit(MaxKeys, ReservedKeys) {
		return nil, w.m.refuse(wire.Code_BUSY, "there are too many keys; delete some")
	}
	if grown := size(to) - size(e); grown > 0 && w.m.keys.bytes+grown > w.m.limit(MaxKeyBytes, ReservedKeyBytes) {
		return nil, w.m.refuse(wire.Code_BUSY, "all keys and values take too many bytes; delete some")
	}
	w.steps = append(w.steps, w.m.step(e, to))
	return to, nil
}

func (w *writing) delete(e *fact.Entry) (*fact.Entry, *wire.Reply) {
	if e != nil {
		w.steps = append(w.steps, w.m.step(e, nil))
	}
	return nil, nil
}

func (w *writing) deletePrefix(prefix string) {
	for _, e := range slices.Collect(w.m.withPrefix(prefix)) {
		w.steps = append(w.steps, w.m.step(e, nil))
	}
}

// acquire locks a key for a session. Keys have no waiters: others are refused while
// the key is locked or under a lock-delay.
func (w *writing) acquire(e *fact.Entry, op *wire.KeyOp) (*fact.Entry, *wire.Reply) {
	s, refusal := w.m.live(op.Session)
	if s == nil {
		return nil, refusal
	}
	to := draft(e, op.Key)
	to.Value, to.Flags = op.Value, op.Flags
	if to.Session == s.id {
		return w.set(e, to)
	}
	if r := w.m.mayLockKey(to, s); r != nil {
		return nil, r
	}
	to.Session = s.id
	to.LockIndex = w.m.keys.lockIndex(to, s) + 1
	return w.set(e, to)
}

func (m *Machine) mayLockKey(e *fact.Entry, s *session) *wire.Reply {
	if !e.Session.IsZero() {
		return m.locked(&wire.Holder{Session: e.Session[:], Member: m.sessions[e.Session].member})
	}
	if d := m.keys.delays[e.Key]; d != nil {
		r := m.reply(wire.Code_LOCK_DELAY)
		r.Delay = max(0, d.until-m.now)
		return r
	}
	return m.mayHaveMore(s)
}

func (w *writing) release(e *fact.Entry, op *wire.KeyOp) (*fact.Entry, *wire.Reply) {
	id, ok := wire.IDFrom(op.Session)
	if !ok {
		return nil, w.m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes")
	}
	if e == nil || id.IsZero() || e.Session != id {
		return nil, w.m.reply(wire.Code_NOT_HELD)
	}
	to := draft(e, op.Key)
	to.Value, to.Flags, to.Session = op.Value, op.Flags, wire.ID{}
	return w.set(e, to)
}
