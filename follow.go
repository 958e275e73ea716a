package conclave

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
)

// Follow yields the present state of the keys that begin with prefix, ordered by their
// bytes, then an Event with Synced, and then each change, as [KV.Watch] does. A program that
// keeps a copy of the keys needs this one loop; the copy is that of one point in time
// whenever an Event with Synced arrives. The empty prefix is all keys.
//
// When changes are no longer buffered, for the reasons that Watch describes, Follow reads the
// state again. It yields what differs from what it has yielded before, and another Event with
// Synced: first the keys that were deleted meanwhile, each as an Event with Deleted, whose
// Entry has no more than the Key, then those that were written. So a follower that is slower than the
// changes, or whose node received a snapshot, misses intermediate values and never the latest. So may
// any follower directly after an Event with Synced, of keys that changed while the state was read.
//
// Follow reads all keys at once, as [KV.List] does, and remembers the modify index of each
// key until it ends. It has no goroutine and does not poll. The sequence ends with an error:
// those of List; ctx's, with ErrUnavailable if no quorum was reachable before it was done;
// ErrClosed.
func (k *KV) Follow(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := validPrefixes(prefix)
		if err == nil {
			f := follower{kv: k, prefix: prefix, yield: func(e Event) bool { return yield(e, nil) }}
			err = f.run(ctx)
		}
		if err != nil {
			yield(Event{}, fault("follow", prefix, err))
		}
	}
}

// FollowKey yields the key as it is, and then as it is after each change: a setting that a
// program follows. While the key does not exist, the Entry has no more than the Key, and
// ModifyIndex is 0. A follower that is slower than the changes may miss intermediate values,
// never the latest.
//
// It reads and watches as [KV.Follow] does, and ends with the same errors.
func (k *KV) FollowKey(ctx context.Context, key string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		begun := false
		err := validName(key)
		if err == nil {
			f := follower{kv: k, prefix: key, single: true, yield: func(e Event) bool {
				if e.Synced && begun {
					return true
				}
				begun = true
				if e.Deleted || e.Synced {
					e.Entry = Entry{Key: key}
				}
				return yield(e.Entry, nil)
			}}
			err = f.run(ctx)
		}
		if err != nil {
			yield(Entry{}, fault("follow", key, err))
		}
	}
}

// follower is one Follow or FollowKey.
type follower struct {
	kv     *KV
	prefix string
	single bool // only the key that is the prefix
	yield  func(Event) bool

	known map[string]uint64 // the modify index of each key that was yielded and exists
	// The state was read at an index that is not known: it is at least after, and at most until.
	after, until uint64
}

// run returns nil when yield has returned false.
func (f *follower) run(ctx context.Context) error {
	for {
		more, err := f.read(ctx)
		if err != nil || !more {
			return err
		}
		var failed error
		err = f.kv.group.client.Watch(ctx, f.prefix, f.after, func(c fact.KeyChange) bool {
			more, failed = f.changed(ctx, c)
			return more && failed == nil
		})
		if failed != nil || !client.IsKind(err, client.Compacted) {
			return cmp.Or(failed, err)
		}
	}
}

// read yields the state, or what differs from what was yielded before, and that it ends.
func (f *follower) read(ctx context.Context) (more bool, err error) {
	if f.after, err = f.index(ctx); err != nil {
		return false, err
	}
	entries, err := f.entries(ctx)
	if err != nil {
		return false, err
	}
	if f.until, err = f.index(ctx); err != nil {
		return false, err
	}
	before := f.known
	f.known = make(map[string]uint64, len(entries))
	for _, e := range entries {
		f.known[e.Key] = e.ModifyIndex
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, exists := f.known[key]; !exists && !f.yield(Event{Entry: Entry{Key: key}, Deleted: true, Index: f.after}) {
			return false, nil
		}
	}
	for _, e := range entries {
		if before[e.Key] != e.ModifyIndex && !f.yield(Event{Entry: entryOf(e), Index: e.ModifyIndex}) {
			return false, nil
		}
	}
	return f.yield(Event{Synced: true, Index: f.after}), nil
}

func (f *follower) index(ctx context.Context) (uint64, error) {
	return read[uint64](ctx, f.kv, machine.IndexQuery{}, nil)
}

func (f *follower) entries(ctx context.Context) ([]*fact.Entry, error) {
	if !f.single {
		return read[[]*fact.Entry](ctx, f.kv, machine.KeysQuery{Prefix: f.prefix}, nil)
	}
	e, err := read[*fact.Entry](ctx, f.kv, machine.KeyQuery{Key: f.prefix}, nil)
	if err != nil || e == nil {
		return nil, err
	}
	return []*fact.Entry{e}, nil
}

// changed yields a change, unless the state that was read has it.
func (f *follower) changed(ctx context.Context, c fact.KeyChange) (more bool, err error) {
	key := c.Entry.Key
	known, exists := f.known[key]
	switch {
	case f.single && key != f.prefix, c.Index <= known:
		return true, nil
	case c.Deleted:
		if !exists {
			return true, nil
		}
		delete(f.known, key)
		return f.yield(Event{Entry: entryOf(c.Entry), Deleted: true, Index: c.Index}), nil
	case !exists && c.Index <= f.until:
		// The state may lack the key because it was deleted after this change. Then the key, and its deletion, are
		// of the past; a caller that has seen the end of the state must not see them return.
		e, err := read[*fact.Entry](ctx, f.kv, machine.KeyQuery{Key: key}, nil)
		if err != nil || e == nil {
			return true, err
		}
		c.Entry, c.Index = e, e.ModifyIndex
	}
	f.known[key] = c.Index
	return f.yield(Event{Entry: entryOf(c.Entry), Index: c.Index}), nil
}
