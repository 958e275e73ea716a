package sim

import (
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// keyState is the model of all keys, as clients see them. An index that no client
// has received is unknown; the first reply that contains it determines it.
type keyState struct {
	keys           [3]keyEntry // of keyNames
	maxModifyIndex uint64      // the largest modify index that is known
}

type keyEntry struct {
	exists       bool
	value        string
	flags        uint64
	modifyIndex  uint64
	lockIndex    uint64
	owner        *sessionSpan // nil: not locked
	fence        uint64
	delayedUntil time.Duration // not locked by others before; 0: no lock-delay
}

const unknownIndex = ^uint64(0)

func mayEqual(index, reported uint64) bool { return index == unknownIndex || index == reported }

func keyModel() stateModel[keyState] {
	return stateModel[keyState]{
		init: keyState{}, before: keyState.possibleStates, step: keyState.step, equal: keyState.equal, hash: keyState.hash,
		largest: func(s keyState) uint64 { return s.maxModifyIndex },
	}
}

func (s keyState) equal(o keyState) bool { return s == o }
func (s keyState) hash() uint64          { return hashOf(s) }

func (s keyState) possibleStates(op *operation) []keyState {
	states := []keyState{s}
	var seen [3]*sessionSpan
	for i, k := range s.keys {
		if k.owner == nil || k.owner == seen[0] || k.owner == seen[1] {
			continue
		}
		seen[i] = k.owner
		states = withPossibleEnds(states, k.owner, op, keyState.withoutSession)
	}
	return states
}

func (s keyState) withoutSession(owner *sessionSpan, until time.Duration) keyState {
	for i := range s.keys {
		switch k := &s.keys[i]; {
		case k.owner != owner:
		case owner.behavior == wire.Behavior_DELETE:
			*k = keyEntry{delayedUntil: until}
		default:
			k.owner, k.modifyIndex, k.delayedUntil = nil, unknownIndex, until
		}
	}
	return s
}

func (s keyState) step(op *operation) []keyState {
	if op.readKey != "" {
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
		if !after.apply(op, k, r.GetKeys(), i) {
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
	case after.allowsRefusal(ops[n], r):
		return []keyState{s} // the whole transaction is undone
	}
	return nil
}

func (s keyState) read(op *operation) []keyState {
	k, e := &s.keys[keyIndex(op.readKey)], op.entry
	switch {
	case e == nil && !k.exists:
	case e == nil, !k.exists, k.value != string(e.Value), k.flags != e.Flags, k.fence != e.Fence, !k.heldBy(e.Session),
		!mayEqual(k.modifyIndex, e.ModifyIndex), !mayEqual(k.lockIndex, e.LockIndex):
		return nil
	default:
		s.settle(k, e.ModifyIndex, e.LockIndex)
	}
	return []keyState{s}
}

func (s *keyState) settle(k *keyEntry, modify, lock uint64) {
	k.modifyIndex, k.lockIndex = modify, lock
	s.maxModifyIndex = max(s.maxModifyIndex, modify)
}

func (k *keyEntry) heldBy(session wire.ID) bool {
	if k.owner == nil {
		return session.IsZero()
	}
	return k.owner.id == session
}

// keyIndex returns the position of a key in keyNames, or -1.
func keyIndex(key string) int {
	for i, name := range keyNames {
		if name == key {
			return i
		}
	}
	return -1
}

// mayMatch reports whether the entry may be as the operation expects.
func (k *keyEntry) mayMatch(op *wire.KeyOp) bool {
	if !k.exists {
		return op.Index == 0
	}
	return op.Index != 0 && mayEqual(k.modifyIndex, op.Index)
}

// apply carries one operation out. It returns false if that contradicts the
// replies.
func (s *keyState) apply(op *operation, c *wire.KeyOp, replies []*wire.KeyMeta, i int) bool {
	if c.Kind == wire.KeyOp_DELETE_PREFIX {
		for i := range s.keys {
			if strings.HasPrefix(keyNames[i], c.Key) {
				s.keys[i] = keyEntry{delayedUntil: s.keys[i].delayedUntil}
			}
		}
		return true
	}
	k := &s.keys[keyIndex(c.Key)]
	written := *k
	written.exists, written.value, written.flags, written.modifyIndex = true, string(c.Value), c.Flags, unknownIndex
	switch c.Kind {
	case wire.KeyOp_PUT:
	case wire.KeyOp_SWAP, wire.KeyOp_DELETE_IF, wire.KeyOp_EXPECT:
		if !k.mayMatch(c) {
			return false
		}
		switch c.Kind {
		case wire.KeyOp_DELETE_IF:
			*k = keyEntry{delayedUntil: k.delayedUntil}
			return true
		case wire.KeyOp_EXPECT:
			return s.confirm(k, replies, i)
		}
	case wire.KeyOp_DELETE:
		*k = keyEntry{delayedUntil: k.delayedUntil}
		return true
	case wire.KeyOp_PUT_FENCED:
		if c.Fence < k.fence {
			return false
		}
		written.flags, written.fence = k.flags, c.Fence
	case wire.KeyOp_ACQUIRE:
		owner := op.session
		if k.owner != nil && k.owner != owner || k.owner == nil && k.delayedUntil > op.returnedTime {
			return false
		}
		if k.owner == nil {
			written.owner, written.lockIndex, written.delayedUntil = owner, unknownIndex, 0
		}
	case wire.KeyOp_RELEASE:
		if !k.lockedBy(c) {
			return false
		}
		written.owner = nil
	case wire.KeyOp_EXPECT_HOLDER:
		return k.lockedBy(c) && mayEqual(k.lockIndex, c.Index) && s.confirm(k, replies, i)
	}
	lockBefore := k.lockIndex
	*k = written
	return s.learn(k, lockBefore, replies, i)
}

func (k *keyEntry) lockedBy(c *wire.KeyOp) bool {
	return k.exists && k.owner != nil && string(k.owner.id[:]) == string(c.Session)
}

// learn takes the indexes of a change from the reply. They are larger than all
// before.
func (s *keyState) learn(k *keyEntry, lock uint64, replies []*wire.KeyMeta, i int) bool {
	if i >= len(replies) {
		return true
	}
	m := replies[i]
	if m.ModifyIndex <= s.maxModifyIndex || m.Flags != k.flags || m.Fence != k.fence || !mayEqual(k.lockIndex, m.LockIndex) || !k.heldBy(idOf(m.Session)) {
		return false
	}
	if k.lockIndex == unknownIndex && lock != unknownIndex && m.LockIndex < lock {
		return false
	}
	s.settle(k, m.ModifyIndex, m.LockIndex)
	return true
}

// confirm compares the reply of an operation that changes nothing.
func (s *keyState) confirm(k *keyEntry, replies []*wire.KeyMeta, i int) bool {
	if i >= len(replies) || !k.exists {
		return true
	}
	m := replies[i]
	if !mayEqual(k.modifyIndex, m.ModifyIndex) || !mayEqual(k.lockIndex, m.LockIndex) || m.Flags != k.flags || !k.heldBy(idOf(m.Session)) {
		return false
	}
	s.settle(k, m.ModifyIndex, m.LockIndex)
	return true
}

func idOf(b []byte) wire.ID {
	id, _ := wire.IDFrom(b)
	return id
}

// allowsRefusal reports whether the refusal r is possible in this state.
func (s *keyState) allowsRefusal(c *wire.KeyOp, r *wire.Reply) bool {
	k := &s.keys[max(0, keyIndex(c.Key))]
	switch r.GetCode() {
	case wire.Code_STALE_SEQUENCER:
		return c.Kind == wire.KeyOp_EXPECT_HOLDER && (!k.lockedBy(c) || k.lockIndex == unknownIndex || k.lockIndex != c.Index)
	case wire.Code_COMPARE_FAILED:
		return !k.mayMatch(c) || k.exists && k.modifyIndex == unknownIndex
	case wire.Code_LOCKED:
		return k.owner != nil && k.heldBy(idOf(r.GetHolder().GetSession())) && string(c.Session) != string(r.GetHolder().GetSession())
	case wire.Code_LOCK_DELAY:
		return k.owner == nil && k.delayedUntil > 0
	case wire.Code_NOT_HELD:
		return !k.lockedBy(c)
	case wire.Code_STALE_FENCE:
		return c.Fence < k.fence && r.GetFence() == k.fence
	}
	return false
}
