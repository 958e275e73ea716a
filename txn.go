package conclave

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Op is one operation of a [KV.Txn]. The zero Op is invalid.
type Op struct {
	kind    wire.KeyOp_Kind
	what    string // for people
	key     string
	value   []byte
	flags   uint64
	index   uint64
	session SessionID
	fence   Fence
}

// PutOption configures a write.
type PutOption interface{ applyPut(*Op) }

type putOption func(*Op)

func (f putOption) applyPut(o *Op) { f(o) }

// WithFlags stores a number with the key, whose meaning is the application's. A write
// without it stores 0; only PutFenced keeps the flags.
func WithFlags(flags uint64) PutOption { return putOption(func(o *Op) { o.flags = flags }) }

func (o Op) with(opts []PutOption) Op {
	for _, opt := range opts {
		opt.applyPut(&o)
	}
	return o
}

// OpPut is [KV.Put].
func OpPut(key string, value []byte, opts ...PutOption) Op {
	return Op{kind: wire.KeyOp_PUT, what: "put", key: key, value: value}.with(opts)
}

// OpPutFenced is [KV.PutFenced].
func OpPutFenced(key string, value []byte, f Fence) Op {
	return Op{kind: wire.KeyOp_PUT_FENCED, what: "put fenced", key: key, value: value, fence: f}
}

// OpCompareAndSwap is [KV.CompareAndSwap]. If the key has another modify index, the
// whole Txn fails with ErrCompareFailed.
func OpCompareAndSwap(key string, modifyIndex uint64, value []byte, opts ...PutOption) Op {
	return Op{kind: wire.KeyOp_SWAP, what: "compare and swap", key: key, index: modifyIndex, value: value}.with(opts)
}

// OpDelete is [KV.Delete].
func OpDelete(key string) Op {
	return Op{kind: wire.KeyOp_DELETE, what: "delete", key: key}
}

// OpCompareAndDelete is [KV.CompareAndDelete]. If the key has another modify index, the
// whole Txn fails with ErrCompareFailed.
func OpCompareAndDelete(key string, modifyIndex uint64) Op {
	return Op{kind: wire.KeyOp_DELETE_IF, what: "compare and delete", key: key, index: modifyIndex}
}

// OpDeletePrefix is [KV.DeletePrefix]. The limit on keys applies to all of a Txn together; a
// key that begins with two of its prefixes counts twice.
func OpDeletePrefix(prefix string) Op {
	return Op{kind: wire.KeyOp_DELETE_PREFIX, what: "delete prefix", key: prefix}
}

// OpAcquire is [KV.Acquire].
func OpAcquire(key string, value []byte, s SessionID, opts ...PutOption) Op {
	return Op{kind: wire.KeyOp_ACQUIRE, what: "acquire", key: key, value: value, session: s}.with(opts)
}

// OpRelease is [KV.Release].
func OpRelease(key string, value []byte, s SessionID, opts ...PutOption) Op {
	return Op{kind: wire.KeyOp_RELEASE, what: "release", key: key, value: value, session: s}.with(opts)
}

// OpExpect changes nothing. The Txn fails with ErrCompareFailed unless the key has that
// modify index; 0 means that the key must not exist.
func OpExpect(key string, modifyIndex uint64) Op {
	return Op{kind: wire.KeyOp_EXPECT, what: "expect", key: key, index: modifyIndex}
}

// OpCheckSequencer changes nothing. The Txn fails with ErrStaleSequencer unless the
// session still holds the key by the acquisition that s names: so the other operations
// are done by the holder or not at all.
func OpCheckSequencer(s Sequencer) Op {
	return Op{kind: wire.KeyOp_EXPECT_HOLDER, what: "check sequencer", key: s.Key, index: s.LockIndex, session: s.Session}
}

// Txn executes up to 128 operations atomically, all of them or none; each sees the
// effects of those before it. It returns the entry of each operation's key as that
// operation left it, and a zero Entry where there is no single key. The entry's value is
// the one that was written; for OpExpect and OpCheckSequencer it is not set.
//
// If an operation is refused, none takes effect, and the error wraps a *TxnError, which
// states which one was refused and why: ErrCompareFailed, ErrStaleSequencer, or an error of
// the method that the operation is named after. ErrInvalid: there are no operations. ErrTooLarge: there
// are too many, or they have more than 768 KiB together. It blocks like Put.
func (k *KV) Txn(ctx context.Context, ops ...Op) ([]Entry, error) {
	entries, refused, err := k.write(ctx, "txn", "", ops)
	if refused != nil {
		err = &TxnError{Operation: refused.at, Err: convert(err), op: ops[refused.at]}
	}
	return entries, fault("txn", "", err)
}

// TxnError is the refusal of a [KV.Txn] because of one of its operations. errors.As finds it.
type TxnError struct {
	Operation int   // its place among those of the call, from 0
	Err       error // why it was refused

	op Op
}

// Error names the operation and the reason.
func (e *TxnError) Error() string {
	if e.op.what == "" {
		return fmt.Sprintf("operation %d: %v", e.Operation, e.Err)
	}
	return fmt.Sprintf("operation %d, %s %s: %v", e.Operation, e.op.what, quote(e.op.key), e.Err)
}

// Unwrap returns Err.
func (e *TxnError) Unwrap() error { return e.Err }

// maxWrite bounds the bytes of one write, so that it fits into a log entry with others.
const maxWrite = 768 << 10

// refusedOp is the operation of a write because of which nothing was done.
type refusedOp struct{ at int }

// write executes operations, all or none. what and name are those of the call, for people.
func (k *KV) write(ctx context.Context, what, name string, ops []Op) ([]Entry, *refusedOp, error) {
	began := k.group.calls.begin()
	span := k.group.tracing.begin(ctx, Operation{Kind: CallWrite, Op: what, Name: name, Ops: len(ops)})
	entries, refused, err := k.writeOps(ctx, ops)
	span.end(err)
	k.group.calls.returned(CallWrite, began, err)
	return entries, refused, err
}

func (k *KV) writeOps(ctx context.Context, ops []Op) ([]Entry, *refusedOp, error) {
	if err := k.group.client.Usable(); err != nil {
		return nil, nil, err
	}
	switch {
	case len(ops) == 0:
		return nil, nil, fmt.Errorf("%w: no operations", ErrInvalid)
	case len(ops) > machine.MaxOps:
		return nil, nil, fmt.Errorf("%w: %d operations, the limit is %d", ErrTooLarge, len(ops), machine.MaxOps)
	}
	w := &wire.Write{Ops: make([]*wire.KeyOp, len(ops))}
	for i, o := range ops {
		if err := o.validate(); err != nil {
			return nil, &refusedOp{i}, err
		}
		w.Ops[i] = o.wire()
	}
	if size := proto.Size(w); size > maxWrite {
		return nil, nil, fmt.Errorf("%w: one write of %d bytes, the limit is %d", ErrTooLarge, size, maxWrite)
	}
	reply, err := k.group.client.Exec(ctx, &wire.Command{Op: &wire.Command_Write{Write: w}})
	if err != nil {
		if reply != nil && reply.GetCode() != wire.Code_GROUP_DELETED { // which is for no operation
			return nil, &refusedOp{int(reply.GetOp())}, err
		}
		return nil, nil, err
	}
	entries := make([]Entry, len(ops))
	for i, o := range ops {
		entries[i] = o.entry(reply.GetKeys()[i])
	}
	return entries, nil, nil
}

func (o Op) validate() error {
	if o.kind == wire.KeyOp_UNSPECIFIED {
		return fmt.Errorf("%w: the zero Op is not an operation", ErrInvalid)
	}
	if o.kind == wire.KeyOp_DELETE_PREFIX && o.key == "" {
		return nil // all keys
	}
	if err := validName(o.key); err != nil {
		return err
	}
	if len(o.value) > machine.MaxValue {
		return fmt.Errorf("%w: value of %d bytes, the limit is %d", ErrTooLarge, len(o.value), machine.MaxValue)
	}
	if o.kind == wire.KeyOp_PUT_FENCED && o.fence == 0 {
		return errNoFence
	}
	return nil
}

func (o Op) wire() *wire.KeyOp {
	op := &wire.KeyOp{
		Kind: o.kind, Key: o.key, Value: o.value, Flags: o.flags, Index: o.index, Fence: uint64(o.fence),
	}
	switch o.kind {
	case wire.KeyOp_ACQUIRE, wire.KeyOp_RELEASE, wire.KeyOp_EXPECT_HOLDER:
		op.Session = o.session[:]
	}
	return op
}

// entry is the key after the operation.
func (o Op) entry(m *wire.KeyMeta) Entry {
	if m.GetModifyIndex() == 0 {
		return Entry{}
	}
	session, _ := wire.IDFrom(m.GetSession())
	return Entry{
		Key: o.key, Value: clone(o.value), Flags: m.GetFlags(),
		CreateIndex: m.GetCreateIndex(), ModifyIndex: m.GetModifyIndex(), LockIndex: m.GetLockIndex(),
		Session: SessionID(session), Fence: Fence(m.GetFence()),
	}
}
