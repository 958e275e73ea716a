//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// briefClients are the clients of a member, besides clientsPerMember, that use short-lived groups.
const briefClients = 2

// briefPause is how many operations a turn with a short-lived group counts as: it has few of them.
const briefPause = 6

// origin is what has the groups of a process: its node, or its client of any member.
type origin interface {
	WithGroup(name string) *conclave.Group
	CreateGroup(ctx context.Context, name string, cfg conclave.GroupConfig) (*conclave.Group, error)
	DeleteGroup(ctx context.Context, name string, opts ...conclave.DeleteGroupOption) error
	Done() <-chan struct{}
}

// groupHistory records operations in one group.
type groupHistory struct {
	*recorder
	group  string
	handle string // of a short-lived group
}

func (h groupHistory) call(r record) uint64 { return h.since(now(), r) }

func (h groupHistory) since(began int64, r record) uint64 {
	r.Group, r.Handle = h.group, h.handle
	return h.recorder.since(began, r)
}

// in returns a group that a run has all the time, as a process uses it.
func (l *load) in(from origin, group string) access {
	switch from := from.(type) {
	case *conclave.Node:
		if group == defaultGroup {
			return from.Group
		}
	case *conclave.Client:
		if group == defaultGroup {
			return from.Group
		}
	}
	return from.WithGroup(group)
}

// enter has the next operations go to a group.
func (c *client) enter(group string, a access) {
	c.history, c.access = groupHistory{recorder: c.load.history, group: group}, a
}

// enterCreated has the next operations go to the short-lived group that create has returned.
func (c *client) enterCreated(group string, g *conclave.Group) { c.history.group, c.access = group, g }

// enterAny has the next operations go to one of the groups that a run has all the time.
func (c *client) enterAny() {
	group := c.process.groups[c.random.IntN(len(c.process.groups))]
	c.enter(group, c.in(c.from, group))
}

// briefTurn creates a short-lived group if there is none of that name, uses it, and deletes it at times.
func (c *client) briefTurn() int {
	if c.chance(50) {
		c.keptTurn(fmt.Sprintf("%s-%d", kept, c.random.IntN(namesOfEach)))
	} else {
		c.forcedTurn(fmt.Sprintf("%s-%d", forced, c.random.IntN(namesOfEach)))
	}
	return briefPause
}

// keptTurn uses locks, since keys remain, and deletes the group unless something is held.
func (c *client) keptTurn(name string) {
	g, ok := c.create(name)
	if !ok {
		return
	}
	c.enterCreated(name, g)
	for range 1 + c.random.IntN(3) {
		c.briefLock(c.chance(20))
	}
	if c.chance(60) {
		c.remove(name)
	}
}

// forcedTurn uses locks and keys, and deletes the group with what others hold. A deletion without force must be refused, since
// each instance has a key.
func (c *client) forcedTurn(name string) {
	g, ok := c.create(name)
	if !ok {
		return
	}
	instance, ok := c.instance(g)
	if !ok {
		return
	}
	c.enterCreated(instanceOf(name, instance), g)
	for range 1 + c.random.IntN(3) {
		if c.chance(50) {
			c.keyTurn()
		} else {
			c.briefLock(c.chance(20))
		}
	}
	switch {
	case c.chance(30):
		c.remove(name)
	case c.chance(30):
		c.remove(name, conclave.Force())
		c.keyTurn() // which must fail
	}
}

// briefLock locks, and holds for long at times, so that a deletion meets a holder.
func (c *client) briefLock(long bool) {
	name, hold := c.object("lock", plainLocks), c.label()
	l := c.access.FencedLock(name)
	f, ok := c.lock(l, record{Name: name, Hold: hold}, c.chance(20))
	if !ok {
		return
	}
	c.use(l, opCheck, name, hold, f)
	if long {
		_ = wait(context.Background(), time.Duration(c.random.Int64N(int64(time.Second)))) // nothing ends it
		c.use(l, opCheck, name, hold, f)
	}
	c.unlock(l, name, hold, f)
}

// create creates a group, unless it exists.
func (c *client) create(name string) (g *conclave.Group, ok bool) {
	c.enter(name, nil)
	c.history.handle = c.label()
	ctx, cancel := c.within(time.Second, 8*time.Second)
	defer cancel()
	_, err := c.asks(record{Op: opCreate}, func() (r record, err error) {
		g, err = c.from.CreateGroup(ctx, name, conclave.GroupConfig{})
		return record{}, err
	})
	return g, err == nil
}

// remove deletes the group of a name: the one that the client uses, or one that was created later.
func (c *client) remove(name string, opts ...conclave.DeleteGroupOption) {
	ctx, cancel := c.within(time.Second, 8*time.Second)
	defer cancel()
	call := record{Op: opDelete}
	if len(opts) > 0 {
		call.Op = opForce
	}
	_, _ = c.asks(call, func() (record, error) { return record{}, c.from.DeleteGroup(ctx, name, opts...) }) // the history has the error
}

// instanceKey has the name of an instance.
const instanceKey = "instance"

// instance returns the name of the instance that a handle belongs to, which its first user chooses. It is not in the history, where
// all operations on an instance are under its name. It may have been created in an earlier phase.
func (c *client) instance(g *conclave.Group) (string, bool) {
	ctx, cancel := c.within(time.Second, 4*time.Second)
	defer cancel()
	e, err := g.KV().Get(ctx, instanceKey)
	if errors.Is(err, conclave.ErrKeyNotFound) {
		if _, _, err = g.KV().CompareAndSwap(ctx, instanceKey, 0, []byte(c.phase+" "+c.label())); err == nil {
			e, err = g.KV().Get(ctx, instanceKey)
		}
	}
	if err != nil {
		c.backOff(err)
	}
	return string(e.Value), err == nil
}
