package consulapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
)

// await asks whether the request may read the resource, and begins the read. A blocking
// query is asked about again when it ends: its token may have been revoked meanwhile.
func (c *call) await(resource, prefix string, wanted func(key string) bool) (local bool, err error) {
	if err := c.authorize(Read, resource); err != nil || c.index == 0 {
		return c.stale, err
	}
	if local, err = c.change(prefix, wanted); err != nil {
		return local, err
	}
	err = c.authorize(Read, resource)
	if c.stale && !c.mayBeStale(c) { // the last contact was recent when the wait began
		return false, err
	}
	return local, err
}

// change blocks until a key that begins with prefix and is wanted has changed after ?index,
// the time of ?wait has passed, another query takes its place, or the client has disconnected.
//
// It reports whether a read of the node's own state satisfies the request: because that is
// asked for, or because a quorum has confirmed during this call that the state is not older.
func (c *call) change(prefix string, wanted func(key string) bool) (local bool, err error) {
	err = c.block(func(ctx context.Context) error {
		if !c.stale {
			patient, cancel := c.patience()
			defer cancel()
			index, err := c.group.KV().Index(patient)
			if err != nil || c.index > max(1, index) {
				local = true
				return err // an index of the future: the group was restored, say
			}
		}
		for after := c.index; ; {
			local, err = c.watch(ctx, prefix, after, wanted)
			if !errors.Is(err, conclave.ErrCompacted) {
				return err
			}
			if after = c.unchanged(ctx, prefix); after == 0 {
				local = true
				return nil
			}
		}
	})
	return local, err
}

// block runs what a blocking query waits for, in a place of its own, with a context that is done when the
// time of ?wait has passed, another query takes the place, or the client has disconnected.
func (c *call) block(wait func(context.Context) error) error {
	waiting, replaced := context.WithCancelCause(c.r.Context())
	defer replaced(nil)
	place := c.waits.begin(c.r.RemoteAddr, replaced)
	if place == nil {
		return busy("too many blocking queries are under way")
	}
	defer c.waits.leave(place)
	ctx, cancel := context.WithTimeout(waiting, c.waitTime())
	defer cancel()
	return wait(ctx)
}

// isOver reports that a wait has ended with its context, and that the client awaits an answer.
func (c *call) isOver(ctx context.Context, err error) bool {
	return err != nil && c.r.Context().Err() == nil && ctx.Err() != nil && !errors.Is(err, conclave.ErrClosed)
}

// watch is change for what this node buffers of the changes after an index. ErrCompacted: it
// does not buffer all of them.
func (c *call) watch(ctx context.Context, prefix string, after uint64, wanted func(key string) bool) (local bool, err error) {
	for e, err := range c.group.KV().Watch(ctx, prefix, after) {
		switch {
		case errors.Is(err, conclave.ErrCompacted):
			return false, err
		case c.isOver(ctx, err):
			return c.stale, nil // a long time later, so a quorum has to confirm again
		case err != nil:
			return false, err
		case wanted(e.Entry.Key):
			return true, nil
		}
	}
	return c.stale, nil
}

// unchanged returns an index up to which the one key that is read has not changed since ?index, as the key itself
// shows: clients may wait with the ModifyIndex of a key for as long as it lives, as Patroni does. It returns 0 if the
// key has changed, or if that cannot be known: of a key that does not exist, and of a prefix, from which a key may
// have been deleted. Their clients go on with the X-Consul-Index of the answer, whose later changes are buffered.
func (c *call) unchanged(ctx context.Context, key string) uint64 {
	if c.query.Has("recurse") || c.query.Has("keys") {
		return 0
	}
	index, err := c.group.KV().Index(ctx, conclave.Stale()) // before the key: a change between the two is found again
	if err != nil {
		return 0
	}
	e, err := c.group.KV().Get(ctx, key, conclave.Stale())
	if err != nil || e.ModifyIndex > c.index {
		return 0
	}
	return index
}

// waitTime is ?wait, with a random part against herds.
func (c *call) waitTime() time.Duration {
	wait := c.wait
	if wait == 0 {
		wait = defaultWait
	}
	wait = min(wait, maxWait)
	return wait + rand.N(wait/16+1)
}

// kvList lists the keys with a prefix.
func (c *call) kvList(prefix string) error {
	return c.listing(prefix, func(ctx context.Context) (l list, err error) {
		entries, err := c.group.KV().List(ctx, prefix, conclave.Stale())
		if err != nil {
			return l, err
		}
		l.n = len(entries)
		l.body, err = encodeAll(c, func(yield func(kvPair) bool) {
			for i := range entries {
				l.newest = max(l.newest, entries[i].ModifyIndex)
				if !yield(pairOf(entries[i])) {
					return
				}
				entries[i] = conclave.Entry{} // its value may be freed
			}
		})
		return l, err
	})
}

// kvKeys lists the names of the keys with a prefix, up to a separator.
func (c *call) kvKeys(prefix string) error {
	if c.query.Has("separator") && c.query.Has("seperator") {
		return invalid("separator is there more than once")
	}
	separator := c.query.Get("separator") + c.query.Get("seperator")
	if err := validKey(separator); err != nil {
		return err
	}
	return c.listing(prefix, func(ctx context.Context) (list, error) {
		names, err := c.group.KV().Keys(ctx, prefix, separator, conclave.Stale())
		if err != nil {
			return list{}, err
		}
		body, err := encodeAll(c, slices.Values(names))
		return list{body: body, n: len(names)}, err
	})
}

// listing answers with a list that gather makes from the node's own state.
func (c *call) listing(prefix string, gather func(context.Context) (list, error)) error {
	local, err := c.await("key_prefix/"+prefix, prefix, func(string) bool { return true })
	if err != nil {
		return err
	}
	return c.gathered(func() error {
		ctx, cancel := c.patience()
		defer cancel()
		index, err := c.lastIndex(ctx, local)
		if err != nil {
			return err
		}
		return c.collect(ctx, func() error {
			l, err := gather(ctx)
			if err != nil {
				return err
			}
			c.meta(max(index, l.newest))
			if l.n == 0 && (prefix != "" || !c.query.Has("keys")) {
				return c.write(http.StatusNotFound, "", nil)
			}
			return c.write(http.StatusOK, "application/json", l.body)
		})
	})
}

// list is an answer that is a JSON array.
type list struct {
	body   []byte
	n      int    // of the items
	newest uint64 // the largest modify index of the keys in it, if that is known
}

// collect makes a list in one of the places for that.
func (c *call) collect(ctx context.Context, make func() error) error {
	select {
	case c.listings <- struct{}{}:
		defer func() { <-c.listings }()
		return make()
	case <-ctx.Done():
		return busy("too many listings are under way")
	}
}
