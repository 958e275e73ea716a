package conclave

import (
	"context"
	"iter"

	"github.com/conclave-go/conclave/internal/fact"
)

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
