package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// keyNames are the keys that programs write; the last is below a prefix.
var keyNames = []string{"a", "b", "c/d"}

// write sometimes sends a transaction on keys, based on what the program knows of
// them from the replies to its own writes and reads.
func (p *program) write() {
	if p.writing || p.sim.draining || !p.sim.chance(0.3) {
		return
	}
	var ops []*wire.KeyOp
	for range 1 + p.sim.rng.IntN(3) {
		ops = append(ops, p.keyOp(keyNames[p.sim.rng.IntN(len(keyNames))]))
	}
	if p.remote == nil && p.crashPoint == crashBetweenWrites {
		ops[0].Value = slices.Concat(ops[0].Value, make([]byte, 200<<10)) // it does not share a batch with the writes of other groups, nor with another operation of its own
	}
	p.writing = true
	p.submit(writeCommand(ops...), false, func(r *wire.Reply) {
		p.writing = false
		if r != nil {
			p.checkWrite(ops, r)
		}
	})
}

// keyOp returns a random operation on a key.
func (p *program) keyOp(key string) *wire.KeyOp {
	sim, s := p.sim, p.session
	sim.writes++
	op := &wire.KeyOp{
		Kind: wire.KeyOp_Kind(1 + sim.rng.IntN(10)), Key: key, Flags: sim.rng.Uint64N(3),
		Value: fmt.Appendf(nil, "%d", sim.writes), // never the same twice: each write changes the value
	}
	known := p.knownKeys[key]
	switch op.Kind {
	case wire.KeyOp_SWAP, wire.KeyOp_DELETE_IF, wire.KeyOp_EXPECT:
		op.Index = known.GetModifyIndex()
	case wire.KeyOp_EXPECT_HOLDER:
		op.Index, op.Session = known.GetLockIndex(), s.id[:]
	case wire.KeyOp_ACQUIRE, wire.KeyOp_RELEASE:
		op.Session = s.id[:]
	case wire.KeyOp_PUT_FENCED:
		op.Fence = 1 + sim.rng.Uint64N(sim.history.audit.fence+1)
	case wire.KeyOp_DELETE_PREFIX:
		op.Key = key[:1]
	}
	return op
}

// checkWrite checks a reply and learns from it.
func (p *program) checkWrite(ops []*wire.KeyOp, r *wire.Reply) {
	switch r.GetCode() {
	case wire.Code_OK:
		for i, op := range ops {
			p.wroteKey(op, r.GetKeys()[i])
		}
		return
	case wire.Code_COMPARE_FAILED, wire.Code_STALE_SEQUENCER, wire.Code_LOCKED, wire.Code_LOCK_DELAY, wire.Code_NOT_HELD, wire.Code_STALE_FENCE:
		if r.GetOp() >= uint32(len(ops)) {
			p.sim.fail("member %d: operation %d of %d is reported as refused", p.n, r.GetOp(), len(ops))
		}
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION:
	default:
		p.sim.fail("member %d: %v: %v", p.n, ops, r)
	}
	p.readKey(ops[r.GetOp()].Key)
}

// wroteKey learns from an operation that succeeded, and checks that at most one
// compare-and-swap succeeds against the same index.
func (p *program) wroteKey(op *wire.KeyOp, now *wire.KeyMeta) {
	if op.Kind == wire.KeyOp_DELETE_PREFIX {
		return // the metadata of the keys below is out of date now: a comparison will show it
	}
	p.knownKeys[op.Key] = now
	if compares := op.Kind == wire.KeyOp_SWAP || op.Kind == wire.KeyOp_DELETE_IF; !compares || op.Index == 0 {
		return
	}
	version := fmt.Sprintf("%s@%d", op.Key, op.Index)
	if p.sim.swapped[version] {
		p.sim.fail("member %d: two writes have changed %s by comparison", p.n, version)
	}
	p.sim.swapped[version] = true
}

// readKey reads the metadata of a key.
func (p *program) readKey(key string) {
	read := p.sim.clients.readInvoked(key)
	p.query(machine.KeyQuery{Key: key}, func(answer any) {
		read.entry, _ = answer.(*fact.Entry)
		p.sim.clients.returned(read)
		p.knownKeys[key] = new(wire.KeyMeta)
		if e := read.entry; e != nil {
			p.knownKeys[key] = &wire.KeyMeta{ModifyIndex: e.ModifyIndex, LockIndex: e.LockIndex}
		}
	})
}
