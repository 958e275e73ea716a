package conclave

import (
	"bytes"
	"context"
	"strings"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// ReadOption says how to read.
type ReadOption func(*reading)

type reading struct{ stale bool }

// Stale reads the state that this node has, without asking anybody: it works
// without a majority, and what it returns may be old, without a bound. One node's
// stale reads never go back in time while it runs.
func Stale() ReadOption { return func(r *reading) { r.stale = true } }

// Get reads a key. It is linearizable: it sees every write that was acknowledged
// before the call, on any node. For that it blocks until a majority has confirmed
// that this node is up to date, unless [Stale] is given.
//
// ErrKeyNotFound: there is no such key. ErrUnavailable: ctx ended before there
// was a majority. ErrInvalid or ErrTooLarge: it is no key, or too many calls are
// under way. ErrClosed.
func (k *KV) Get(ctx context.Context, key string, opts ...ReadOption) (Entry, error) {
	err := validName(key)
	var e *wire.Entry
	if err == nil {
		err = k.read(ctx, opts, func(m *machine.Machine) { e = m.Key(key) })
	}
	if err == nil && e == nil {
		err = ErrKeyNotFound
	}
	if err != nil {
		return Entry{}, fault("get", key, err)
	}
	return entryOf(e), nil
}

// List reads all keys that begin with prefix, as they are at one point in time,
// by the bytes of the keys. The empty prefix is all keys; a prefix need not be a
// key, or end where a word does. No keys is no error. It blocks like Get and has
// its errors but ErrKeyNotFound. It copies every value: see Keys.
func (k *KV) List(ctx context.Context, prefix string, opts ...ReadOption) ([]Entry, error) {
	keys, err := k.keys(ctx, opts)
	if err != nil {
		return nil, fault("list", prefix, err)
	}
	var list []Entry
	for e := range keys.Prefix(prefix) {
		list = append(list, entryOf(e))
	}
	return list, nil
}

// Keys is List without the values. With a separator it lists each key only up to
// and including the first separator behind the prefix, and what is the same then
// only once: with "/" the files and folders of a folder. The empty separator is
// whole keys. It blocks like Get and has its errors but ErrKeyNotFound.
func (k *KV) Keys(ctx context.Context, prefix, separator string, opts ...ReadOption) ([]string, error) {
	keys, err := k.keys(ctx, opts)
	if err != nil {
		return nil, fault("list keys", prefix, err)
	}
	var list []string
	for e := range keys.Prefix(prefix) {
		key := upTo(e.Key, len(prefix), separator)
		// What shares a beginning stands together.
		if len(list) == 0 || list[len(list)-1] != key {
			list = append(list, key)
		}
	}
	return list, nil
}

// upTo cuts a key behind the first separator from from on.
func upTo(key string, from int, separator string) string {
	if separator == "" {
		return key
	}
	if i := strings.Index(key[from:], separator); i >= 0 {
		return key[:from+i+len(separator)]
	}
	return key
}

// Index is the index of the last change of any key, in the state that is read.
// Whoever asks for it first, then reads with Get or List, and then watches from
// it on, misses nothing, and may only see some changes twice. The entries alone
// would not do: those that were deleted meanwhile leave no index behind. It
// blocks like Get and has its errors but ErrKeyNotFound.
func (k *KV) Index(ctx context.Context, opts ...ReadOption) (uint64, error) {
	var index uint64
	err := k.read(ctx, opts, func(m *machine.Machine) { index = m.Changes() })
	if err != nil {
		return 0, fault("index", "", err)
	}
	return index, nil
}

// keys takes all keys along, so that the caller can go through them on its own time.
func (k *KV) keys(ctx context.Context, opts []ReadOption) (machine.Keys, error) {
	var keys machine.Keys
	if err := k.read(ctx, opts, func(m *machine.Machine) { keys = m.Keys() }); err != nil {
		return machine.Keys{}, err // the loop may be writing keys at this moment
	}
	return keys, nil
}

func (k *KV) read(ctx context.Context, opts []ReadOption, look func(*machine.Machine)) error {
	var r reading
	for _, opt := range opts {
		opt(&r)
	}
	if r.stale {
		return k.node.look(ctx, look)
	}
	return k.node.read(ctx, look)
}

// look is read at the state that this node has.
func (n *Node) look(ctx context.Context, look func(*machine.Machine)) error {
	if err := n.usable(); err != nil {
		return err
	}
	err := n.member.Look(ctx, func(m cluster.Machine) { look(m.(*machine.Machine)) })
	if err != nil && ctx.Err() != nil {
		return ended(ctx)
	}
	return ours(err)
}

func entryOf(e *wire.Entry) Entry {
	return Entry{
		Key: e.Key, Value: clone(e.Value), Flags: e.Flags,
		CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, LockIndex: e.LockIndex,
		Session: SessionID(e.Session), Fence: Fence(e.Fence),
	}
}

// clone copies a value; an empty one is nil.
func clone(value []byte) []byte {
	if len(value) == 0 {
		return nil
	}
	return bytes.Clone(value)
}
