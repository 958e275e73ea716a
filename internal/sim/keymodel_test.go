package sim

import (
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// keyState is all the keys, as their users see them. Indexes that nobody has been
// told yet are unknown; the first who hears of them settles it.
type keyState struct {
	keys [3]keyEntry // of keyNames
	last uint64      // the largest modify index that is known
}

type keyEntry struct {
	exists bool
	value  string
	flags  uint64
	modify uint64
	lock   uint64
	by     *span // nil: not locked
	fence  uint64
	delay  time.Duration // not locked by others before; 0: no lock-delay
}

const unknown = ^uint64(0)

func knows(index, said uint64) bool { return index == unknown || index == said }

func keyModel() porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{keyState{}} },
		Step: func(state, input, _ any) (next []any) {
			op := input.(*operation)
			for _, st := range state.(keyState).partings(op) {
				for _, after := range st.step(op) {
					next = append(next, after)
				}
			}
			return next
		},
	}
}

func (s keyState) partings(op *operation) []keyState {
	states := []keyState{s}
	var seen [3]*span
	for i, k := range s.keys {
		if k.by == nil || k.by == seen[0] || k.by == seen[1] {
			continue
		}
		seen[i] = k.by
		states = endings(states, k.by, op, keyState.without)
	}
	return states
}

func (s keyState) without(by *span, delay time.Duration) keyState {
	for i := range s.keys {
		switch k := &s.keys[i]; {
		case k.by != by:
		case by.behavior == wire.Behavior_DELETE:
			*k = keyEntry{delay: delay}
		default:
			k.by, k.modify, k.delay = nil, unknown, delay
		}
	}
	return s
}

func (s keyState) step(op *operation) []keyState {
	if op.read != "" {
		return s.read(op)
	}
	ops := op.command.GetWrite().GetOps()
	r := op.reply
	n := len(ops)
	if r != nil && r.GetCode() != wire.Code_OK {
		n = int(r.GetOp())
	}
	after := s
	for i, k := range ops[:n] {
		if !after.does(op, k, r.GetKeys(), i) {
			if r == nil {
				return []keyState{s}
			}
			return nil
		}
	}
	switch {
	case r == nil:
		return []keyState{s, after}
	case n == len(ops):
		return []keyState{after}
	case after.refuses(ops[n], r):
		return []keyState{s} // all of it is undone
	}
	return nil
}

func (s keyState) read(op *operation) []keyState {
	k, e := &s.keys[number(op.read)], op.found
	switch {
	case e == nil && !k.exists:
	case e == nil, !k.exists, k.value != string(e.Value), k.flags != e.Flags, k.fence != e.Fence, !k.holder(e.Session),
		!knows(k.modify, e.ModifyIndex), !knows(k.lock, e.LockIndex):
		return nil
	default:
		s.settle(k, e.ModifyIndex, e.LockIndex)
	}
	return []keyState{s}
}

func (s *keyState) settle(k *keyEntry, modify, lock uint64) {
	k.modify, k.lock = modify, lock
	s.last = max(s.last, modify)
}

func (k *keyEntry) holder(session wire.ID) bool {
	if k.by == nil {
		return session.IsZero()
	}
	return k.by.id == session
}

// number is the place of a key.
func number(key string) int {
	for i, name := range keyNames {
		if name == key {
			return i
		}
	}
	return -1
}

// compares says that the entry may be as the operation expects.
func (k *keyEntry) compares(op *wire.KeyOp) bool {
	if !k.exists {
		return op.Index == 0
	}
	return op.Index != 0 && knows(k.modify, op.Index)
}

// does carries one operation out. With replies it has to be as they say.
func (s *keyState) does(op *operation, c *wire.KeyOp, replies []*wire.KeyMeta, i int) bool {
	if c.Kind == wire.KeyOp_DELETE_PREFIX {
		for i := range s.keys {
			if strings.HasPrefix(keyNames[i], c.Key) {
				s.keys[i] = keyEntry{delay: s.keys[i].delay}
			}
		}
		return true
	}
	k := &s.keys[number(c.Key)]
	written := *k
	written.exists, written.value, written.flags, written.modify = true, string(c.Value), c.Flags, unknown
	switch c.Kind {
	case wire.KeyOp_PUT:
	case wire.KeyOp_SWAP, wire.KeyOp_DELETE_IF, wire.KeyOp_EXPECT:
		if !k.compares(c) {
			return false
		}
		switch c.Kind {
		case wire.KeyOp_DELETE_IF:
			*k = keyEntry{delay: k.delay}
			return true
		case wire.KeyOp_EXPECT:
			return s.confirms(k, replies, i)
		}
	case wire.KeyOp_DELETE:
		*k = keyEntry{delay: k.delay}
		return true
	case wire.KeyOp_PUT_FENCED:
		if c.Fence < k.fence {
			return false
		}
		written.flags, written.fence = k.flags, c.Fence
	case wire.KeyOp_ACQUIRE:
		by := op.session
		if k.by != nil && k.by != by || k.by == nil && k.delay > op.returnedAt {
			return false
		}
		if k.by == nil {
			written.by, written.lock, written.delay = by, unknown, 0
		}
	case wire.KeyOp_RELEASE:
		if !k.lockedBy(c) {
			return false
		}
		written.by = nil
	case wire.KeyOp_EXPECT_HOLDER:
		return k.lockedBy(c) && knows(k.lock, c.Index) && s.confirms(k, replies, i)
	}
	grows := k.lock
	*k = written
	return s.learns(k, grows, replies, i)
}

func (k *keyEntry) lockedBy(c *wire.KeyOp) bool {
	return k.exists && k.by != nil && string(k.by.id[:]) == string(c.Session)
}

// learns takes the indexes of a change from the reply: larger than all before.
func (s *keyState) learns(k *keyEntry, lock uint64, replies []*wire.KeyMeta, i int) bool {
	if i >= len(replies) {
		return true
	}
	m := replies[i]
	if m.ModifyIndex <= s.last || m.Flags != k.flags || m.Fence != k.fence || !knows(k.lock, m.LockIndex) || !k.holder(idOf(m.Session)) {
		return false
	}
	if k.lock == unknown && lock != unknown && m.LockIndex < lock {
		return false
	}
	s.settle(k, m.ModifyIndex, m.LockIndex)
	return true
}

// confirms compares the reply of an operation that changes nothing.
func (s *keyState) confirms(k *keyEntry, replies []*wire.KeyMeta, i int) bool {
	if i >= len(replies) || !k.exists {
		return true
	}
	m := replies[i]
	if !knows(k.modify, m.ModifyIndex) || !knows(k.lock, m.LockIndex) || m.Flags != k.flags || !k.holder(idOf(m.Session)) {
		return false
	}
	s.settle(k, m.ModifyIndex, m.LockIndex)
	return true
}

func idOf(b []byte) wire.ID {
	id, _ := wire.IDFrom(b)
	return id
}

// refuses says that the operation may be refused so.
func (s *keyState) refuses(c *wire.KeyOp, r *wire.Reply) bool {
	k := &s.keys[max(0, number(c.Key))]
	switch r.GetCode() {
	case wire.Code_STALE_SEQUENCER:
		return c.Kind == wire.KeyOp_EXPECT_HOLDER && (!k.lockedBy(c) || k.lock == unknown || k.lock != c.Index)
	case wire.Code_COMPARE_FAILED:
		return !k.compares(c) || k.exists && k.modify == unknown
	case wire.Code_LOCKED:
		return k.by != nil && k.holder(idOf(r.GetHolder().GetSession())) && string(c.Session) != string(r.GetHolder().GetSession())
	case wire.Code_LOCK_DELAY:
		return k.by == nil && k.delay > 0
	case wire.Code_NOT_HELD:
		return !k.lockedBy(c)
	case wire.Code_STALE_FENCE:
		return c.Fence < k.fence && r.GetFence() == k.fence
	}
	return false
}

// aboutKeys are the reads and writes.
func (o *outside) aboutKeys() (ops []porcupine.Operation) {
	for _, op := range o.operations {
		read := number(op.read) >= 0 && op.returned != never // a prefix is looked up as well
		if read || op.command.GetWrite() != nil && !op.ineffective() {
			ops = append(ops, op.forPorcupine())
		}
	}
	return ops
}
