package conclave

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
)

// KV is the group's key/value store, after Consul's. It is meant for what locks need
// around them: the address of a leader, small configuration, the state that the next
// holder continues from. Every member keeps all of it in memory.
//
// Keys are 1 to 512 bytes of UTF-8 without NUL; "/" has no meaning of its own. Values
// have up to 512 KiB; a nil value and an empty one are the same, and read as nil. A
// group holds up to 1,048,576 keys, and 1 GiB of keys and values. All methods are safe
// for concurrent use. Values that are returned are copies, and values that are passed
// are not retained.
//
// A session can lock a key ([KV.Acquire]). Such locks are advisory: any caller may
// write to a locked key. Against a holder that has lost a lock without noticing, write
// with [KV.PutFenced], or in a [KV.Txn] with [OpCheckSequencer].
type KV struct{ group *Group }

// KV returns the group's key/value store. It does not block.
func (g *Group) KV() *KV { return &KV{g} }

// Entry is a key with its value and metadata. The zero Entry is not a key.
//
// The indexes are of the group's log. Each change of a key has a larger index than
// every change before, of any key, so a modify index is never reused and identifies
// one version of one key.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64    // see WithFlags
	CreateIndex uint64    // of the change that created the key
	ModifyIndex uint64    // of the last change, locking and releasing included
	LockIndex   uint64    // incremented each time that a session acquires the key; 0: never
	Session     SessionID // that holds the key; zero: none
	Fence       Fence     // the largest that the key was written with; see PutFenced
}

// Put writes a value, and creates the key if it does not exist. The key stays locked if
// it is. A Put that changes nothing moves no index.
//
// Like every write it blocks until the change is on the disks of a majority. Errors:
// ErrUnavailable if no leader was reachable before ctx was done, with no effect;
// ErrUnknown if it was done later; ErrInvalid or ErrTooLarge if the key or the value
// exceeds what KV describes; ErrBusy with too many calls under way, keys or bytes;
// ErrClosed.
func (k *KV) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Entry, error) {
	return k.one(ctx, "put", OpPut(key, value, opts...))
}

// PutFenced writes a value on behalf of the holder of f, the fence of a lock or an
// election. The key remembers the largest fence that it was written with, and refuses
// smaller ones with ErrStaleFence, so a holder that has lost its lock without noticing
// cannot overwrite what its successor wrote. That is not advisory, as long as every
// writer uses PutFenced. The flags stay as they are.
//
// Such a holder is refused from the successor's first PutFenced on, not from its grant on.
// A successor that continues from the present value leaves its fence before it relies on
// that: by a [KV.Txn] of OpExpect, with the modify index that it has read, and OpPutFenced of
// the same value.
//
// Deleting the key discards the fence. PutFenced blocks like Put and has its errors;
// ErrInvalid also for fence 0.
func (k *KV) PutFenced(ctx context.Context, key string, value []byte, f Fence) (Entry, error) {
	return k.one(ctx, "put fenced", OpPutFenced(key, value, f))
}

// CompareAndSwap is Put if the key has that modify index, or, with 0, if it does not
// exist. Otherwise it returns false and changes nothing. It blocks like Put and has its
// errors. After ErrUnknown, read the key: the modify index shows whether it was changed,
// and the value by which writer, if values differ.
func (k *KV) CompareAndSwap(ctx context.Context, key string, modifyIndex uint64, value []byte, opts ...PutOption) (e Entry, swapped bool, err error) {
	e, err = k.one(ctx, "compare and swap", OpCompareAndSwap(key, modifyIndex, value, opts...))
	if errors.Is(err, ErrCompareFailed) {
		return Entry{}, false, nil
	}
	return e, err == nil, err
}

// Delete deletes a key, even one that a session holds. A key that does not exist is no
// error. The key may be acquired again at once, unless the lock-delay of an invalidated
// session is pending, which survives the deletion. It blocks like Put and has its
// errors.
func (k *KV) Delete(ctx context.Context, key string) error {
	_, err := k.one(ctx, "delete", OpDelete(key))
	return err
}

// CompareAndDelete is Delete if the key has that modify index. Otherwise it returns
// false and changes nothing; with index 0 it returns true if the key does not exist. It
// blocks like Put and has its errors.
func (k *KV) CompareAndDelete(ctx context.Context, key string, modifyIndex uint64) (bool, error) {
	_, err := k.one(ctx, "compare and delete", OpCompareAndDelete(key, modifyIndex))
	if errors.Is(err, ErrCompareFailed) {
		return false, nil
	}
	return err == nil, err
}

// DeletePrefix deletes all keys that begin with prefix, atomically. The empty prefix is
// all keys. ErrTooLarge: more than 16,384 keys match, and none was deleted; use longer
// prefixes. It blocks like Put and has its errors.
func (k *KV) DeletePrefix(ctx context.Context, prefix string) error {
	_, err := k.one(ctx, "delete prefix", OpDeletePrefix(prefix))
	return err
}

// Acquire locks a key for a session and writes the value. If the session holds the key
// already, Acquire only writes; otherwise LockIndex is incremented. Any live session of
// the group may be named. Acquire never waits for the key: use [KV.Watch] for that, or a
// FencedLock, which is granted in order.
//
// When the session ends, the key is released or deleted, depending on the session's
// Behavior. Entry.Sequencer proves to others under which acquisition a request is
// made.
//
// ErrLocked: another session holds the key, and the error names it. ErrLockDelay: the
// session that held the key was invalidated, and its lock-delay has not passed.
// ErrSessionExpired: the session does not exist. Otherwise it blocks like Put and has
// its errors.
func (k *KV) Acquire(ctx context.Context, key string, value []byte, s SessionID, opts ...PutOption) (Entry, error) {
	return k.one(ctx, "acquire", OpAcquire(key, value, s, opts...))
}

// Release releases a key that the session holds, and writes the value. There is no
// lock-delay. ErrNotHeld: the session does not hold the key; no effect. It blocks like
// Put and has its errors.
func (k *KV) Release(ctx context.Context, key string, value []byte, s SessionID, opts ...PutOption) (Entry, error) {
	return k.one(ctx, "release", OpRelease(key, value, s, opts...))
}

// one executes a single operation.
func (k *KV) one(ctx context.Context, what string, op Op) (Entry, error) {
	entries, _, err := k.write(ctx, what, op.key, []Op{op})
	if err == nil {
		return entries[0], nil
	}
	if err = convert(err); op.session != (SessionID{}) && errors.Is(err, ErrSessionExpired) {
		err = fmt.Errorf("%w: the group has no session %s", err, op.session)
	}
	return Entry{}, fault(what, op.key, err)
}

// ReadOption configures a read.
type ReadOption interface{ applyRead(*client.QueryOptions) }

func readOptions(opts []ReadOption) (o client.QueryOptions) {
	for _, opt := range opts {
		opt.applyRead(&o)
	}
	return o
}

// Stale reads this node's own state without asking the group, also in listings by name. It works without a
// quorum. The result may be old, without a bound; but the stale reads of one node never
// go back in time while it runs.
func Stale() StaleOption { return StaleOption{} }

// StaleOption is a [ReadOption], and a [ListOption] of what has names.
type StaleOption struct{}

func (StaleOption) applyRead(o *client.QueryOptions) { o.Stale = true }

func (StaleOption) applyList(l *listing[string]) { l.query.Stale = true }

// Get reads a key. It is linearizable: it sees every write, by any node, that was
// acknowledged before the call. It blocks until a quorum has confirmed that this node is
// up to date, unless [Stale] is given.
//
// ErrKeyNotFound: the key does not exist. ErrUnavailable: ctx was done before a quorum
// was reachable. ErrInvalid and ErrTooLarge: the key is invalid. ErrBusy: too many reads
// are under way. ErrClosed.
func (k *KV) Get(ctx context.Context, key string, opts ...ReadOption) (Entry, error) {
	err := validName(key)
	var e *fact.Entry
	if err == nil {
		e, err = read[*fact.Entry](ctx, k, machine.KeyQuery{Key: key}, opts)
	}
	if err == nil && e == nil {
		err = ErrKeyNotFound
	}
	if err != nil {
		return Entry{}, fault("get", key, err)
	}
	return entryOf(e), nil
}

// List reads all keys that begin with prefix, as they are at one point in time, ordered
// by their bytes. The empty prefix is all keys; one that no key can have is invalid. It returns no error if there are none.
// It blocks like Get and has its errors but ErrKeyNotFound. It copies every value; see
// Keys.
func (k *KV) List(ctx context.Context, prefix string, opts ...ReadOption) ([]Entry, error) {
	err := validPrefixes(prefix)
	var entries []*fact.Entry
	if err == nil {
		entries, err = read[[]*fact.Entry](ctx, k, machine.KeysQuery{Prefix: prefix}, opts)
	}
	if err != nil {
		return nil, fault("list", prefix, err)
	}
	var list []Entry
	for _, e := range entries {
		list = append(list, entryOf(e))
	}
	return list, nil
}

// Keys is List without the values. With a separator it cuts each key after the first
// separator that follows the prefix, and lists equal results once: with "/" it lists
// the files and folders of a folder. The empty separator lists whole keys. It blocks
// like Get and has its errors but ErrKeyNotFound.
func (k *KV) Keys(ctx context.Context, prefix, separator string, opts ...ReadOption) ([]string, error) {
	err := validPrefixes(prefix, separator)
	var keys []string
	if err == nil {
		keys, err = read[[]string](ctx, k, machine.KeyNamesQuery{Prefix: prefix, Separator: separator}, opts)
	}
	return keys, fault("list keys", prefix, err)
}

// Index returns the index of the last change of any key, in the state that is read. A
// caller that reads it first, then reads with Get or List, and then watches from it on,
// misses no change, and may only see some twice. The indexes of the entries would not
// do: a deleted key leaves none. It blocks like Get and has its errors but
// ErrKeyNotFound.
func (k *KV) Index(ctx context.Context, opts ...ReadOption) (uint64, error) {
	index, err := read[uint64](ctx, k, machine.IndexQuery{}, opts)
	return index, fault("index", "", err)
}

func read[A any](ctx context.Context, k *KV, q machine.Query, opts []ReadOption) (A, error) {
	began := k.group.calls.begin()
	answer, err := client.Ask[A](ctx, k.group.client, q, readOptions(opts))
	k.group.calls.returned(CallRead, began, err)
	return answer, err
}

func entryOf(e *fact.Entry) Entry {
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

// Event is one change of one key, or, from [KV.Follow], a key of the present state or its end.
type Event struct {
	Entry   Entry // the key after the change; before it, if it was deleted
	Deleted bool
	Index   uint64 // of the change: Entry.ModifyIndex, or that of the deletion
	// Synced marks the end of the state that Follow yields: there is no Entry, and Index is one
	// from which on a Watch misses no change.
	Synced bool
}

// Watch yields each change with an index larger than after of the keys that begin with
// prefix, by any writer of the group and by sessions that end: in order, none merged and
// none left out. It blocks until there are more. The index of an event is all that is
// needed to continue with another Watch, on any node. The empty prefix is all keys.
//
// The sequence ends with an error: ctx's, ErrCompacted, or ErrClosed when the node was
// closed or has stopped; at once with ErrInvalid or ErrTooLarge for a prefix that no key can have. Watch has no goroutine and does not poll.
//
// A node buffers the last 65,536 changes, up to 32 MiB of keys and values, and none
// from before its start, or before a snapshot that it received because it lagged too
// far. ErrCompacted: changes that would have to be yielded are no longer buffered,
// because after is too old, or because the loop's body is slower than the changes.
// Then read the current state, as [KV.Index] describes; [KV.Follow] does both. Watch waits
// for an index that is not reached yet.
func (k *KV) Watch(ctx context.Context, prefix string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := validPrefixes(prefix)
		if err == nil {
			err = k.group.client.Watch(ctx, prefix, after, func(c fact.KeyChange) bool {
				return yield(Event{Entry: entryOf(c.Entry), Deleted: c.Deleted, Index: c.Index}, nil)
			})
		}
		if err != nil {
			yield(Event{}, fault("watch", prefix, err))
		}
	}
}
