//go:build linux

package main

import (
	"context"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	reentrantLimit = 3
	permitLimit    = 3
)

// holder is what a client checks while it holds something.
type holder interface {
	Fence() (conclave.Fence, error)
}

// lockTurn locks, writes to the resource, and unlocks.
func (c *client) lockTurn() int {
	name, hold, limit := c.object("lock", plainLocks), c.label(), c.limit()
	l := c.access.FencedLock(name, conclave.MaxHold(limit))
	f, ok := c.lock(l, record{Name: name, Hold: hold, MaxHold: limit}, c.chance(20))
	if !ok {
		return 1
	}
	c.limited(l, checkOf(opCheck, name, hold, f), limit)
	c.use(l, opCheck, name, hold, f)
	c.unlock(l, name, hold, f)
	return 2
}

// lingering is a part of the names of locks that linger.
const lingering = "lingering"

// lingeringTurn locks a few times in a row what its process may keep in between.
func (c *client) lingeringTurn() int {
	name := c.object(lingering, lingeringLocks)
	l := c.access.FencedLock(name, conclave.Linger(time.Second))
	n := 0
	for range 1 + c.random.IntN(4) {
		hold := c.label()
		n++
		f, ok := c.lock(l, record{Name: name, Hold: hold}, c.chance(20))
		if !ok {
			break
		}
		c.use(l, opCheck, name, hold, f)
		c.unlock(l, name, hold, f)
		n++
	}
	return n
}

// longTurn holds a lock that others wait for, most of the time, so that a fault meets a
// holder: one that is stopped trusts its hold afterwards, until its deadline.
func (c *client) longTurn() int {
	name, hold := c.object("long", longLocks), c.label()
	l := c.access.FencedLock(name)
	f, ok := c.lock(l, record{Name: name, Hold: hold}, false)
	if !ok {
		return 1
	}
	for range 3 {
		c.use(l, opCheck, name, hold, f)
		_ = wait(context.Background(), time.Duration(c.random.Int64N(int64(300*time.Millisecond)))) // nothing ends it
	}
	c.use(l, opCheck, name, hold, f)
	c.unlock(l, name, hold, f)
	return 2
}

// reentrantTurn locks up to one time more than the limit permits.
func (c *client) reentrantTurn() int {
	name, hold, limit := c.object("reentrant", reentrantLocks), c.label(), c.limit()
	l := c.access.FencedLock(name, conclave.Reentrant(reentrantLimit), conclave.MaxHold(limit))
	n := 0
	var f conclave.Fence
	for range 1 + c.random.IntN(reentrantLimit+1) {
		n++
		g, ok := c.lock(l, record{Name: name, Hold: hold, Holds: l.Holds(), Limit: reentrantLimit, MaxHold: limit}, c.chance(20))
		if !ok {
			break
		}
		f = g
	}
	if l.Holds() > 0 {
		c.limited(l, checkOf(opCheck, name, hold, f), limit)
		c.use(l, opCheck, name, hold, f)
	}
	for l.Holds() > 0 {
		n++
		c.unlock(l, name, hold, f)
	}
	return n
}

// exclusive is a handle that takes a lock exclusively.
type exclusive interface {
	Lock(ctx context.Context) (conclave.Fence, error)
	TryLock(ctx context.Context) (conclave.Fence, error)
	Unlock(ctx context.Context) error
}

func (c *client) lock(l exclusive, call record, try bool) (conclave.Fence, bool) {
	if call.Op = opLock; try {
		call.Op = opTry
		return c.acquire(l.TryLock, call)
	}
	return c.acquire(l.Lock, call)
}

// acquire makes a call that is granted a lock.
func (c *client) acquire(acquire func(context.Context) (conclave.Fence, error), call record) (conclave.Fence, bool) {
	ctx, cancel := c.within(time.Second, 8*time.Second)
	defer cancel()
	r, err := c.asks(call, func() (record, error) {
		f, err := acquire(ctx)
		return record{Fence: uint64(f)}, err
	})
	return conclave.Fence(r.Fence), err == nil
}

func (c *client) unlock(l exclusive, name, hold string, f conclave.Fence) {
	c.release(l.Unlock, record{Op: opUnlock, Name: name, Hold: hold, Fence: uint64(f)})
}

func (c *client) release(release func(context.Context) error, call record) {
	ctx, cancel := c.within(time.Second, 5*time.Second)
	defer cancel()
	_, _ = c.asks(call, func() (record, error) { return record{}, release(ctx) }) // the history has the error
}

// semaphoreTurn acquires one or two permits and releases them.
func (c *client) semaphoreTurn() int {
	name, hold, n, limit := c.object("semaphore", semaphores), c.label(), 1+c.random.IntN(2), c.limit()
	s := c.access.Semaphore(name, permitLimit).WithMaxHold(limit)
	ctx, cancel := c.within(time.Second, 8*time.Second)
	defer cancel()
	var p *conclave.Permit
	r, err := c.asks(record{Op: opAcquire, Name: name, Hold: hold, N: n, Limit: permitLimit, MaxHold: limit}, func() (r record, err error) {
		if c.chance(20) {
			p, err = s.TryAcquire(ctx, n)
		} else {
			p, err = s.Acquire(ctx, n)
		}
		if err == nil {
			var f conclave.Fence
			if f, err = p.Fence(); err != nil {
				return record{}, nil // granted and lost already: no fence
			}
			r.Fence = uint64(f)
		}
		return r, err
	})
	if err != nil {
		return 1
	}
	f := conclave.Fence(r.Fence)
	c.limited(p, checkOf(opConfirm, name, hold, f), limit)
	c.use(p, opConfirm, name, hold, f)
	release, cancelRelease := c.within(time.Second, 5*time.Second)
	defer cancelRelease()
	_, _ = c.asks(record{Op: opRelease, Name: name, Hold: hold, Fence: uint64(f)}, func() (record, error) {
		return record{}, p.Release(release)
	}) // the history has the error
	return 2
}

// use holds for a while: most holds are short, some last for seconds. The client checks
// its hold and writes to the resource a while later, as a program does that is paused in
// between: the resource has to refuse what is late.
func (c *client) use(h holder, check, name, hold string, f conclave.Fence) {
	c.useAs(h, checkOf(check, name, hold, f))
}

func (c *client) useAs(h holder, of record) {
	rounds, rest := 1, time.Duration(c.random.Int64N(int64(5*time.Millisecond)))
	if c.random.IntN(100) == 0 {
		rounds, rest = 2+c.random.IntN(30), 100*time.Millisecond
	}
	for range rounds {
		if !c.record(h, of) {
			return
		}
		select {
		case <-c.from.Done():
			return
		case <-time.After(rest):
		}
		c.writeAs(of)
	}
	c.record(h, of)
}

// writeAs writes to what a hold protects.
func (c *client) writeAs(of record) {
	switch {
	case of.Parts != nil:
		for _, p := range of.Parts {
			if !p.Shared && p.Fence != 0 {
				c.resource.write(baseOf(c.history.group), p.Name, of.Hold, conclave.Fence(p.Fence))
			}
		}
	case of.Op != opConfirm: // permits have several holders: their fences come in any order
		c.resource.write(baseOf(c.history.group), of.Name, of.Hold, conclave.Fence(of.Fence))
	}
}

// checkOf is the call of a check.
func checkOf(op, name, hold string, f conclave.Fence) record {
	return record{Op: op, Name: name, Hold: hold, Fence: uint64(f)}
}

// record records whether the holder may still trust its hold.
func (c *client) record(h holder, call record) bool {
	op, id := call.Op, c.history.call(call)
	g, err := h.Fence()
	r := record{Fence: uint64(g)}
	if s, ok := h.(*conclave.LockSet); ok && err == nil {
		r.Parts, err = fencesOf(s, call.Parts)
	}
	r.Result = classify(op, err)
	if err != nil {
		r.Error = err.Error()
	}
	c.history.returned(id, r)
	return err == nil
}
