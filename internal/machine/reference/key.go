package reference

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Keys.

// keys is everything that a Write can change: restoring a copy undoes it.
type keys struct {
	entries []fact.Entry // by key
	changes uint64
	floor   uint64 // the largest lock index that was deleted
	floorAt uint64
	changed []fact.KeyChange // by the present entry of the log
}

type keyDelay struct {
	key   string
	until int64
}

func (k *keys) clone() keys {
	c := *k
	c.entries, c.changed = slices.Clone(k.entries), slices.Clone(k.changed)
	return c
}

func (k *keys) get(key string) (fact.Entry, bool) {
	for _, e := range k.entries {
		if e.Key == key {
			return e, true
		}
	}
	return fact.Entry{Key: key}, false
}

// Key returns a key's entry.
func (r *Model) Key(key string) (fact.Entry, bool) { return r.keys.get(key) }

func (k *keys) next(index uint64) uint64 {
	k.changes = max(k.changes+1, index)
	return k.changes
}

// putKey makes e the key's entry, unless it is already.
func (r *Model) putKey(e fact.Entry) *wire.Reply {
	k, index := &r.keys, r.index
	old, there := k.get(e.Key)
	if there && bytes.Equal(old.Value, e.Value) && old.Flags == e.Flags && old.Session == e.Session &&
		old.LockIndex == e.LockIndex && old.Fence == e.Fence {
		return nil
	}
	size := len(e.Key) + len(e.Value)
	for _, o := range k.entries {
		if o.Key != e.Key {
			size += len(o.Key) + len(o.Value)
		}
	}
	if size > r.reserving(MaxKeyBytes, ReservedKeyBytes) || !there && len(k.entries) >= r.reserving(MaxKeys, ReservedKeys) {
		return answer(wire.Code_BUSY)
	}
	e.ModifyIndex = k.next(index)
	if !there {
		e.CreateIndex = e.ModifyIndex
	}
	k.entries = slices.DeleteFunc(slices.Clone(k.entries), func(o fact.Entry) bool { return o.Key == e.Key })
	k.entries = append(k.entries, e)
	slices.SortFunc(k.entries, func(a, b fact.Entry) int { return cmp.Compare(a.Key, b.Key) })
	k.changed = append(k.changed, fact.KeyChange{Index: e.ModifyIndex, Entry: &e})
	return nil
}

func (k *keys) remove(index uint64, key string) {
	e, there := k.get(key)
	if !there {
		return
	}
	k.entries = slices.DeleteFunc(slices.Clone(k.entries), func(o fact.Entry) bool { return o.Key == key })
	k.changed = append(k.changed, fact.KeyChange{Index: k.next(index), Entry: &e, Deleted: true})
	if e.LockIndex > 0 {
		k.floor, k.floorAt = max(k.floor, e.LockIndex), index
	}
}

func (r *Model) write(c *wire.Write) *wire.Reply {
	switch {
	case len(c.Ops) == 0:
		return answer(wire.Code_INVALID)
	case len(c.Ops) > MaxOps:
		return answer(wire.Code_TOO_LARGE)
	}
	if bad := checkPrefixes(r, c.Ops); bad != nil {
		return bad
	}
	for _, op := range c.Ops {
		r.visit(op)
	}
	before := r.keys.clone()
	reply := answer(wire.Code_OK)
	for i, op := range c.Ops {
		bad := checkOp(op)
		if bad == nil {
			bad = r.keyOp(op)
		}
		if bad != nil {
			r.keys = before
			bad.Op = uint32(i)
			return bad
		}
		reply.Keys = append(reply.Keys, r.meta(op))
	}
	return reply
}

// checkPrefixes counts what has the prefixes of operations, or refuses them: they have too much, or others of the entry had.
func checkPrefixes(r *Model, ops []*wire.KeyOp) *wire.Reply {
	found, before := 0, r.prefixed[r.forClient]
	for i, op := range ops {
		if op.Kind != wire.KeyOp_DELETE_PREFIX || checkOp(op) != nil {
			continue
		}
		if r.Level >= wire.LevelPrefixes && before >= cmp.Or(r.MostPrefixed, MaxPrefixed) {
			return &wire.Reply{Code: wire.Code_BUSY, Op: uint32(i)}
		}
		found = min(found+len(r.withPrefix(op.Key)), MaxPrefixKeys+1) // nothing is looked at behind that
		if r.prefixed[r.forClient] = before + found; found > MaxPrefixKeys {
			return &wire.Reply{Code: wire.Code_TOO_LARGE, Op: uint32(i)}
		}
	}
	return nil
}

func checkOp(op *wire.KeyOp) *wire.Reply {
	if op.Kind != wire.KeyOp_DELETE_PREFIX || op.Key != "" {
		if bad := checkName(op.Key); bad != nil {
			return bad
		}
	}
	if len(op.Value) > MaxValue {
		return answer(wire.Code_TOO_LARGE)
	}
	return nil
}

func (r *Model) meta(op *wire.KeyOp) *wire.KeyMeta {
	e, there := r.keys.get(op.Key)
	if !there || op.Kind == wire.KeyOp_DELETE_PREFIX {
		return &wire.KeyMeta{}
	}
	m := &wire.KeyMeta{Flags: e.Flags, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, LockIndex: e.LockIndex, Fence: e.Fence}
	if e.Session != (wire.ID{}) {
		m.Session = e.Session[:]
	}
	return m
}

func (r *Model) keyOp(op *wire.KeyOp) *wire.Reply {
	e, _ := r.keys.get(op.Key)
	differs := e.ModifyIndex != op.Index // an absent key's is 0
	written := e
	written.Value, written.Flags = op.Value, op.Flags
	switch op.Kind {
	case wire.KeyOp_PUT:
		return r.putKey(written)
	case wire.KeyOp_PUT_FENCED:
		if op.Fence == 0 {
			return answer(wire.Code_INVALID)
		}
		if op.Fence < e.Fence {
			return &wire.Reply{Code: wire.Code_STALE_FENCE, Fence: e.Fence}
		}
		written.Flags, written.Fence = e.Flags, op.Fence
		return r.putKey(written)
	case wire.KeyOp_SWAP, wire.KeyOp_DELETE_IF, wire.KeyOp_EXPECT:
		if differs {
			return answer(wire.Code_COMPARE_FAILED)
		}
		if op.Kind == wire.KeyOp_SWAP {
			return r.putKey(written)
		}
		if op.Kind == wire.KeyOp_DELETE_IF {
			r.keys.remove(r.index, op.Key)
		}
	case wire.KeyOp_DELETE:
		r.keys.remove(r.index, op.Key)
	case wire.KeyOp_DELETE_PREFIX:
		for _, key := range r.withPrefix(op.Key) {
			r.keys.remove(r.index, key)
		}
	case wire.KeyOp_ACQUIRE:
		return r.acquireKey(op, written)
	case wire.KeyOp_RELEASE:
		if len(op.Session) != 16 {
			return answer(wire.Code_INVALID)
		}
		if e.Session == (wire.ID{}) || e.Session != wire.ID(op.Session) {
			return answer(wire.Code_NOT_HELD)
		}
		written.Session = wire.ID{}
		return r.putKey(written)
	case wire.KeyOp_EXPECT_HOLDER:
		if e.Session == (wire.ID{}) || !bytes.Equal(e.Session[:], op.Session) || e.LockIndex != op.Index {
			return answer(wire.Code_STALE_SEQUENCER)
		}
	default:
		return answer(wire.Code_INVALID)
	}
	return nil
}

func (r *Model) withPrefix(prefix string) (keys []string) {
	for _, e := range r.keys.entries {
		if strings.HasPrefix(e.Key, prefix) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

func (r *Model) acquireKey(op *wire.KeyOp, e fact.Entry) *wire.Reply {
	s, bad := r.live(op.Session)
	switch {
	case bad != nil:
		return bad
	case e.Session == s.ID:
		return r.putKey(e)
	case e.Session != (wire.ID{}):
		return &wire.Reply{Code: wire.Code_LOCKED, Holder: &wire.Holder{Session: e.Session[:], Member: r.session(e.Session[:]).Member}}
	}
	for _, d := range r.delays {
		if d.key == op.Key {
			return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: max(0, d.until-r.Now)}
		}
	}
	// The session may have locked the key before it was deleted.
	if s.created <= r.keys.floorAt && (e.CreateIndex == 0 || s.created <= e.CreateIndex) {
		e.LockIndex = max(e.LockIndex, r.keys.floor)
	}
	e.LockIndex++
	e.Session = s.ID
	return r.putKey(e)
}
