//go:build linux

package main

import (
	"context"
	"time"

	"github.com/conclave-go/conclave"
)

// shared is a part of the names of locks that are taken in both modes.
const shared = "shared"

// sharedTurn takes a lock shared a few times in a row, or exclusively. Half of the handles
// linger in shared mode.
func (c *client) sharedTurn() int {
	name := c.object(shared, sharedLocks)
	option, limit := conclave.Linger(time.Second), time.Duration(0)
	if c.chance(50) {
		limit = c.limit()
		option = conclave.MaxHold(limit)
	}
	l := c.access.RWLock(name, option)
	if c.chance(30) {
		return c.exclusiveTurn(l, name, limit)
	}
	n := 0
	for range 1 + c.random.IntN(3) {
		call := record{Op: opRLock, Name: name, Hold: c.label(), MaxHold: limit}
		acquire := l.RLock
		if c.chance(20) {
			call.Op, acquire = opTryRLock, l.TryRLock
		}
		n++
		f, ok := c.acquire(acquire, call)
		if !ok {
			break
		}
		c.limited(l, checkOf(opRCheck, name, call.Hold, f), limit)
		c.read(l, name, call.Hold, f)
		n++
	}
	return n
}

// read uses a shared hold and releases it.
func (c *client) read(l *conclave.RWLock, name, hold string, f conclave.Fence) {
	c.use(l, opRCheck, name, hold, f)
	if c.chance(10) { // others hold it as well, and a fault meets all of them
		_ = wait(context.Background(), time.Duration(c.random.Int64N(int64(600*time.Millisecond)))) // nothing ends it
		c.use(l, opRCheck, name, hold, f)
	}
	c.release(l.RUnlock, record{Op: opRUnlock, Name: name, Hold: hold, Fence: uint64(f)})
}

// exclusiveTurn takes a lock exclusively, by either kind of handle, and may downgrade.
func (c *client) exclusiveTurn(l *conclave.RWLock, name string, limit time.Duration) int {
	hold := c.label()
	if c.chance(30) {
		l := c.access.FencedLock(name)
		f, ok := c.lock(l, record{Name: name, Hold: hold}, c.chance(20))
		if !ok {
			return 1
		}
		c.use(l, opCheck, name, hold, f)
		c.unlock(l, name, hold, f)
		return 2
	}
	f, ok := c.lock(l, record{Name: name, Hold: hold, MaxHold: limit}, c.chance(20))
	if !ok {
		return 1
	}
	c.limited(l, checkOf(opCheck, name, hold, f), limit)
	c.use(l, opCheck, name, hold, f)
	if c.chance(50) {
		c.unlock(l, name, hold, f)
		return 2
	}
	g, ok := c.acquire(l.Downgrade, record{Op: opDowngrade, Name: name, Hold: hold, Fence: uint64(f)})
	if ok {
		c.read(l, name, hold, g)
		return 3
	}
	// It may be either, so what the release of the one or the other returns says nothing.
	ctx, cancel := c.within(time.Second, 5*time.Second)
	defer cancel()
	_ = l.Unlock(ctx)
	return 2
}
