package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// sessionTTL is how long a contender may be silent. The default is 10 s; here it
// is short so that the story is.
const sessionTTL = 2 * time.Second

// contender is who would have a slot of the semaphore.
type contender struct {
	name    string
	node    *conclave.Node
	kv      *conclave.KV
	session *conclave.Session
	waits   chan struct{} // gets a value when it begins to wait
	say     teller
}

func (c *contender) id() string  { return c.session.ID().String() }
func (c *contender) key() string { return prefix + "/" + c.id() }

// contend is steps 1 and 2 of the guide: open a session, and acquire a key of
// one's own with it, named after it. While that key is held its contender lives;
// with Delete it goes when the session does.
func contend(ctx context.Context, node *conclave.Node, say teller) (*contender, error) {
	name := node.Status().Name
	session, err := node.NewSession(ctx, &conclave.SessionConfig{
		Name: "reports", TTL: sessionTTL, Behavior: conclave.Delete,
	})
	if err != nil {
		return nil, err
	}
	c := &contender{name: name, node: node, kv: node.KV(), session: session, waits: make(chan struct{}, 1), say: say}
	// The value is for people who look at the keys.
	if _, err := c.kv.Acquire(ctx, c.key(), []byte(name), session.ID()); err != nil {
		return nil, err
	}
	say(name, "contends, with session %s", c.id())
	return c, nil
}

// acquire waits for a slot: look (steps 3 to 5), take one if there is room (step
// 6), and otherwise wait until something changes (step 7), and look again.
func (c *contender) acquire(ctx context.Context) error {
	for {
		now, err := c.look(ctx)
		if err != nil {
			return err
		}
		if now.free() > 0 {
			taken, err := c.swap(ctx, now.with(c.id()))
			if err != nil {
				return err
			}
			if taken {
				c.say(c.name, "holds a slot: %d of %d are taken", len(now.Holders)+1, limit)
				return nil
			}
			c.say(c.name, "was not the first to ask; looks again") // the change that won is behind now.index
		} else {
			c.say(c.name, "waits: %d of %d slots are taken", len(now.Holders), limit)
			select {
			case c.waits <- struct{}{}:
			default:
			}
		}
		if err := c.changed(ctx, now.index); err != nil {
			return err
		}
	}
}

// look is steps 3 to 5: read all keys under the prefix at once, the lock key and
// those of the contenders; see that all mean the same limit; leave out holders
// without a contender key, since those are dead.
func (c *contender) look(ctx context.Context) (view, error) {
	if err := c.session.Err(); err != nil {
		return view{}, err // so we are no contender any more
	}
	index, err := c.kv.Index(ctx) // before the list, so that the watch misses nothing
	if err != nil {
		return view{}, err
	}
	entries, err := c.kv.List(ctx, prefix+"/")
	if err != nil {
		return view{}, err
	}
	now, pruned, err := viewOf(entries, index)
	if err == nil && len(pruned) > 0 {
		c.say(c.name, "finds a holder that is no contender any more, and leaves it out")
	}
	return now, err
}

// swap is step 6: write who holds the slots, unless somebody else has done so
// since we looked.
func (c *contender) swap(ctx context.Context, v view) (bool, error) {
	text, err := v.text()
	if err != nil {
		return false, err
	}
	_, swapped, err := c.kv.CompareAndSwap(ctx, lockKey, v.modified, text)
	return swapped, err
}

// changed is step 7: it returns when something under the prefix has changed since
// that index, or may have.
func (c *contender) changed(ctx context.Context, index uint64) error {
	for _, err := range c.kv.Watch(ctx, prefix+"/", index) {
		if err != nil && !errors.Is(err, conclave.ErrCompacted) {
			return err
		}
		break // what it was we see when we look
	}
	return nil
}

// untilLost is step 8, what a holder does beside its work: it looks whenever
// something has changed, and returns nil when the slot is not its own any more.
// The end of the session has to be heard without the group, by our own clock.
func (c *contender) untilLost(ctx context.Context) error {
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
		now, err := c.look(watching)
		if err == nil && now.Holders[c.id()] {
			err = c.changed(watching, now.index)
		} else if err == nil {
			c.say(c.name, "sees that the slot is not his any more, and stops")
			return nil
		}
		if err != nil && c.session.Err() != nil {
			c.say(c.name, "has lost the slot with the session: %v", c.session.Err())
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// release is step 9: give the slot back, delete the contender key and close the
// session, in this order: the slot must not look like a dead holder's.
func (c *contender) release(ctx context.Context) error {
	if err := c.evict(ctx, c.id()); err != nil {
		return err
	}
	c.say(c.name, "gives the slot back")
	if err := c.kv.Delete(ctx, c.key()); err != nil {
		return err
	}
	return c.session.Close(ctx)
}

// evict takes a holder off the list. It tries again if the list has changed
// meanwhile.
func (c *contender) evict(ctx context.Context, id string) error {
	for {
		now, err := c.look(ctx)
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

// isWaiting returns when the contender waits for a slot.
func (c *contender) isWaiting(ctx context.Context) error {
	select {
	case <-c.waits:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nothingLeft wants all slots and contenders to be gone.
func (c *contender) nothingLeft(ctx context.Context) error {
	entries, err := c.kv.List(ctx, prefix+"/")
	if err != nil {
		return err
	}
	v, _, err := viewOf(entries, 0)
	if err == nil && (len(entries) != 1 || len(v.Holders) != 0) {
		err = fmt.Errorf("left behind: %+v", entries)
	}
	if err == nil {
		c.say("the group", "has %s, and nothing else: %s", lockKey, entries[0].Value)
	}
	return err
}
