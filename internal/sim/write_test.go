package sim

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// keyNames are the keys that programs write; the last is below a prefix.
var keyNames = []string{"a", "b", "c/d"}

// write sends some operations on keys, now and then. They are about what the
// program believes to be there: what a write of its own or a read has shown.
func (p *program) write() {
	if p.writing || p.w.calm || !p.w.chance(0.3) {
		return
	}
	var ops []*wire.KeyOp
	for range 1 + p.w.rng.IntN(3) {
		ops = append(ops, p.keyOp(keyNames[p.w.rng.IntN(len(keyNames))]))
	}
	p.writing = true
	p.submit(writeCommand(ops...), false, func(r *wire.Reply) {
		p.writing = false
		if r != nil {
			p.wrote(ops, r)
		}
	})
}

func (p *program) keyOp(key string) *wire.KeyOp {
	w, s := p.w, p.session
	w.writes++
	op := &wire.KeyOp{
		Kind: wire.KeyOp_Kind(1 + w.rng.IntN(10)), Key: key, Flags: w.rng.Uint64N(3),
		Value: fmt.Appendf(nil, "%d", w.writes), // never the same twice: each write changes something
	}
	known := p.known[key]
	switch op.Kind {
	case wire.KeyOp_SWAP, wire.KeyOp_DELETE_IF, wire.KeyOp_EXPECT:
		op.Index = known.GetModifyIndex()
	case wire.KeyOp_EXPECT_HOLDER:
		op.Index, op.Session = known.GetLockIndex(), s.id[:]
	case wire.KeyOp_ACQUIRE, wire.KeyOp_RELEASE:
		op.Session = s.id[:]
	case wire.KeyOp_PUT_FENCED:
		op.Fence = 1 + w.rng.Uint64N(w.history.audit.fence+1)
	case wire.KeyOp_DELETE_PREFIX:
		op.Key = key[:1]
	}
	return op
}

// wrote judges a reply and learns from it.
func (p *program) wrote(ops []*wire.KeyOp, r *wire.Reply) {
	switch r.GetCode() {
	case wire.Code_OK:
		for i, op := range ops {
			p.did(op, r.GetKeys()[i])
		}
		return
	case wire.Code_COMPARE_FAILED, wire.Code_STALE_SEQUENCER, wire.Code_LOCKED, wire.Code_LOCK_DELAY, wire.Code_NOT_HELD, wire.Code_STALE_FENCE:
		if r.GetOp() >= uint32(len(ops)) {
			p.w.fail("member %d: operation %d of %d was refused", p.n, r.GetOp(), len(ops))
		}
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION:
	default:
		p.w.fail("member %d: %v: %v", p.n, ops, r)
	}
	p.look(ops[r.GetOp()].Key)
}

func (p *program) did(op *wire.KeyOp, now *wire.KeyMeta) {
	if op.Kind == wire.KeyOp_DELETE_PREFIX {
		return // what is known of the keys below is out of date: a comparison will tell
	}
	p.known[op.Key] = now
	if compares := op.Kind == wire.KeyOp_SWAP || op.Kind == wire.KeyOp_DELETE_IF; !compares || op.Index == 0 {
		return
	}
	place := fmt.Sprintf("%s@%d", op.Key, op.Index)
	if p.w.swapped[place] {
		p.w.fail("member %d: two writes have changed %s by comparison", p.n, place)
	}
	p.w.swapped[place] = true
}

// look reads what a key is.
func (p *program) look(key string) {
	read := p.w.outside.reads(key)
	p.linearizable(func(m *machine.Machine) {
		read.found = keyOf(m, key)
		p.w.outside.returns(read)
		p.known[key] = new(wire.KeyMeta)
		if e := keyOf(m, key); e != nil {
			p.known[key] = &wire.KeyMeta{ModifyIndex: e.ModifyIndex, LockIndex: e.LockIndex}
		}
	})
}
