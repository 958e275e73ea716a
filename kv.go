package conclave

import (
	"context"
	"errors"
)

// KV is the group's keys and values, after Consul's. It is meant for what locks
// need around them: who leads and where, small configuration, the state that a
// new holder takes over. All members keep all of it in memory.
//
// Keys are 1 to 512 bytes of UTF-8 without NUL; "/" has no meaning of its own.
// Values have up to 512 KiB; a nil value and an empty one are the same, and read
// as nil. A group holds up to 1,048,576 keys, and 1 GiB of keys and values. All
// methods are safe for concurrent use. No value that is returned is shared with
// anybody, and none that is passed is kept.
//
// A key can be locked by a session ([KV.Acquire]). Such locks are advisory:
// anybody may write to a locked key. For protection against holders that do not
// know yet that they have lost a lock, write with [KV.PutFenced], or in a
// [KV.Txn] with [OpCheckSequencer].
type KV struct{ node *Node }

// KV returns the group's keys. It does no work.
func (n *Node) KV() *KV { return &KV{n} }

// Entry is a key with its value and all that the group keeps of it. The zero
// Entry is no key.
//
// The indexes are of the group's log. Each change of a key has an index that is
// larger than that of every change before, of any key. So a modify index never
// comes twice, and names one version of one key.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64    // see Flags
	CreateIndex uint64    // of the change that created the key
	ModifyIndex uint64    // of the last change, of its lock included
	LockIndex   uint64    // rises each time that a session locks the key anew; 0: none has
	Session     SessionID // that has locked it; zero: nobody
	Fence       Fence     // the largest that it was written with; see PutFenced
}

// Put writes a value, and creates the key if there is none. A lock on the key
// stays. A Put that changes nothing moves no index.
//
// Like each write it blocks until a majority has it on disk. It fails with
// ErrUnavailable, and had no effect, if no leader could be asked before ctx
// ended; with ErrUnknown if it may still have one; with ErrInvalid or
// ErrTooLarge if the key, the value or the group's keys as a whole are beyond
// what KV describes; with ErrTooLarge if too many calls are under way; and with
// ErrClosed.
func (k *KV) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Entry, error) {
	return k.one(ctx, "put", OpPut(key, value, opts...))
}

// PutFenced writes a value on behalf of who holds f, the fence of a lock or an
// election. The key remembers the largest fence that it was written with, and
// refuses smaller ones with ErrStaleFence: so a holder that has lost its lock
// without noticing cannot overwrite its successor. That is not advisory, as long
// as everybody writes the key with PutFenced. The flags stay as they are.
//
// Deleting the key forgets the fence. It blocks like Put and has its errors;
// ErrInvalid also when f is 0.
func (k *KV) PutFenced(ctx context.Context, key string, value []byte, f Fence) (Entry, error) {
	return k.one(ctx, "put fenced", OpPutFenced(key, value, f))
}

// CompareAndSwap is Put if the key has that modify index, or, with 0, if there
// is no such key. Otherwise it returns false and changes nothing. It blocks like
// Put and has its errors. After ErrUnknown, read the key: its modify index shows
// whether it was changed, and its value by whom, if values differ.
func (k *KV) CompareAndSwap(ctx context.Context, key string, modifyIndex uint64, value []byte, opts ...PutOption) (e Entry, swapped bool, err error) {
	e, err = k.one(ctx, "compare and swap", OpCompareAndSwap(key, modifyIndex, value, opts...))
	if errors.Is(err, ErrCompareFailed) {
		return Entry{}, false, nil
	}
	return e, err == nil, err
}

// Delete deletes a key, whoever has locked it. That there is none is no error.
// The key may be acquired again at once, unless a lock-delay of an invalidated
// session is pending, which outlives the key. It blocks like Put and has its
// errors.
func (k *KV) Delete(ctx context.Context, key string) error {
	_, err := k.one(ctx, "delete", OpDelete(key))
	return err
}

// CompareAndDelete is Delete if the key has that modify index. Otherwise it
// returns false and changes nothing; index 0 is true if there is no such key. It
// blocks like Put and has its errors.
func (k *KV) CompareAndDelete(ctx context.Context, key string, modifyIndex uint64) (bool, error) {
	_, err := k.one(ctx, "compare and delete", OpCompareAndDelete(key, modifyIndex))
	if errors.Is(err, ErrCompareFailed) {
		return false, nil
	}
	return err == nil, err
}

// DeletePrefix deletes all keys that begin with prefix, at one point in time.
// The empty prefix is all keys. ErrTooLarge: there are more than 16,384, and none
// was deleted; do it with longer prefixes. It blocks like Put and has its errors.
func (k *KV) DeletePrefix(ctx context.Context, prefix string) error {
	_, err := k.one(ctx, "delete prefix", OpDeletePrefix(prefix))
	return err
}

// Acquire locks a key for a session and writes the value. A session that holds
// the key already writes only; otherwise LockIndex moves. Any live session of the
// group may be named. It never waits for the key: use [KV.Watch] for that, or
// better a FencedLock, which is granted in order.
//
// When the session ends, the key is released or deleted, as the session's
// Behavior says. Entry.Sequencer tells others by whose authority a request comes.
//
// ErrLocked: another session holds the key, and the error names it.
// ErrLockDelay: the session that held the key was invalidated, and its
// lock-delay has not passed; the error says how much is left.
// ErrSessionExpired: no such session lives. Otherwise it blocks like Put and has
// its errors.
func (k *KV) Acquire(ctx context.Context, key string, value []byte, s SessionID, opts ...PutOption) (Entry, error) {
	return k.one(ctx, "acquire", OpAcquire(key, value, s, opts...))
}

// Release gives a key back that the session holds, and writes the value. There is
// no lock-delay. ErrNotHeld: the session does not hold it, and nothing was done.
// It blocks like Put and has its errors.
func (k *KV) Release(ctx context.Context, key string, value []byte, s SessionID, opts ...PutOption) (Entry, error) {
	return k.one(ctx, "release", OpRelease(key, value, s, opts...))
}

// one carries out a single operation.
func (k *KV) one(ctx context.Context, what string, op Op) (Entry, error) {
	entries, _, err := k.write(ctx, []Op{op})
	if err != nil {
		return Entry{}, fault(what, op.key, err)
	}
	return entries[0], nil
}
