package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// sessionTTL is how long a contender may go without renewing its session. The
// default is 10 s; here it is short so that the story is.
const sessionTTL = 2 * time.Second

// contender competes for a slot of the semaphore.
type contender struct {
	name    string
	member  *member
	kv      *conclave.KV
	session *conclave.Session
	waits   chan struct{} // receives a value when the contender starts to wait
	logf    logFunc
}

func (c *contender) id() string  { return c.session.ID().String() }
func (c *contender) key() string { return prefix + "/" + c.id() }

// contend is steps 1 and 2 of the guide: open a session, and acquire with it the
// contender's own key, which is named after the session. The contender is alive
// while that key is held; the Delete behavior deletes the key with the session.
func contend(ctx context.Context, m *member, logf logFunc) (*contender, error) {
	name := m.Status().Name
	session, err := m.NewSession(ctx, &conclave.SessionConfig{
		Name: "reports", TTL: sessionTTL, Behavior: conclave.DeleteKeys,
	})
	if err != nil {
		return nil, err
	}
	c := &contender{name: name, member: m, kv: m.KV(), session: session, waits: make(chan struct{}, 1), logf: logf}
	// The value is for people who list the keys.
	if _, err := c.kv.Acquire(ctx, c.key(), []byte(name), session.ID()); err != nil {
		return nil, err
	}
	logf(name, "contends, with session %s", c.id())
	return c, nil
}

// acquire waits for a slot: list the keys (steps 3 to 5), take a slot if one is
// free (step 6), or else wait for a change (step 7) and start over.
func (c *contender) acquire(ctx context.Context) error {
	for {
		now, err := c.list(ctx)
		if err != nil {
			return err
		}
		if now.free() > 0 {
			taken, err := c.swap(ctx, now.with(c.id()))
			if err != nil {
				return err
			}
			if taken {
				c.logf(c.name, "holds a slot: %d of %d are taken", len(now.Holders)+1, limit)
				return nil
			}
			// The change that came first is after now.index, so the watch returns.
			c.logf(c.name, "was too late: the list of holders has changed; lists it again")
		} else {
			c.logf(c.name, "waits: %d of %d slots are taken", len(now.Holders), limit)
			select {
			case c.waits <- struct{}{}:
			default:
			}
		}
		if err := c.awaitChange(ctx, now.index); err != nil {
			return err
		}
	}
}

// list is steps 3 to 5: read the lock key and the contender keys at once, check
// that the limit is the same, and leave out dead holders: those without a
// contender key.
func (c *contender) list(ctx context.Context) (view, error) {
	if err := c.session.Err(); err != nil {
		return view{}, err // no contender any more
	}
	index, err := c.kv.Index(ctx) // before the list, so that the watch misses nothing
	if err != nil {
		return view{}, err
	}
	entries, err := c.kv.List(ctx, prefix+"/")
	if err != nil {
		return view{}, err
	}
	now, dead, err := viewOf(entries, index)
	if err == nil && len(dead) > 0 {
		c.logf(c.name, "leaves out a holder without a contender key: it is dead")
	}
	return now, err
}

// swap is step 6: write the list of holders, unless it has changed since it was
// read.
func (c *contender) swap(ctx context.Context, v view) (bool, error) {
	text, err := v.text()
	if err != nil {
		return false, err
	}
	_, swapped, err := c.kv.CompareAndSwap(ctx, lockKey, v.modified, text)
	return swapped, err
}

// awaitChange is step 7: it blocks until a key under the prefix may have changed
// after that index.
func (c *contender) awaitChange(ctx context.Context, index uint64) error {
	for _, err := range c.kv.Watch(ctx, prefix+"/", index) {
		if err != nil && !errors.Is(err, conclave.ErrCompacted) {
			return err
		}
		break // the next list shows what has changed
	}
	return nil
}

// awaitLoss is step 8, which a holder does beside its work: it lists the keys
// after each change and returns nil once the slot is lost. The end of the session
// must be noticed without the group, by the local clock.
func (c *contender) awaitLoss(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.session.Done():
			cancel()
		case <-watching.Done():
		}
	}()
	for {
		now, err := c.list(watching)
		if err == nil && now.Holders[c.id()] {
			err = c.awaitChange(watching, now.index)
		} else if err == nil {
			c.logf(c.name, "sees that its slot is revoked, and stops working")
			return nil
		}
		if err != nil && c.session.Err() != nil {
			c.logf(c.name, "has lost its slot with its session: %v", c.session.Err())
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// release is step 9: release the slot, delete the contender key and close the
// session. In another order the slot would look like that of a dead holder.
func (c *contender) release(ctx context.Context) error {
	if err := c.revoke(ctx, c.id()); err != nil {
		return err
	}
	c.logf(c.name, "releases its slot")
	if err := c.kv.Delete(ctx, c.key()); err != nil {
		return err
	}
	return c.session.Close(ctx)
}

// revoke removes a holder from the list. It retries if the list has changed.
func (c *contender) revoke(ctx context.Context, id string) error {
	for {
		now, err := c.list(ctx)
		if err != nil {
			return err
		}
		if !now.Holders[id] {
			return fmt.Errorf("%s holds no slot", id)
		}
		if done, err := c.swap(ctx, now.without(id)); done || err != nil {
			return err
		}
	}
}

// awaitWaiting blocks until the contender waits for a slot.
func (c *contender) awaitWaiting(ctx context.Context) error {
	select {
	case <-c.waits:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkEmpty checks that no holder and no contender key is left.
func (c *contender) checkEmpty(ctx context.Context) error {
	entries, err := c.kv.List(ctx, prefix+"/")
	if err != nil {
		return err
	}
	v, _, err := viewOf(entries, 0)
	if err == nil && (len(entries) != 1 || len(v.Holders) != 0) {
		err = fmt.Errorf("got holders or contenders, want none: %+v", entries)
	}
	if err == nil {
		c.logf("group", "has one key left, %s: %s", lockKey, entries[0].Value)
	}
	return err
}
