//go:build linux

package main

import (
	"context"
	"time"
)

// shortLimit and longLimit are MaxHolds: of a hold that is to end by it, and of one that is released before.
const (
	shortLimit = 200 * time.Millisecond
	longLimit  = 40 * time.Second
)

// limit returns the MaxHold of the next hold; 0: it has none.
func (c *client) limit() time.Duration {
	if !c.chance(30) {
		return 0
	}
	return c.someLimit()
}

func (c *client) someLimit() time.Duration {
	if c.chance(50) {
		return longLimit/2 + time.Duration(c.random.Int64N(int64(longLimit/2)))
	}
	return shortLimit/20 + time.Duration(c.random.Int64N(int64(shortLimit)))
}

// extendable is a hold that may end in time.
type extendable interface {
	holder
	Extend(ctx context.Context, d time.Duration) error
}

// limited extends some of the holds that end in time, and outlasts some of those that end soon. of is what a check of the
// hold says of it.
func (c *client) limited(h extendable, of record, limit time.Duration) {
	if limit == 0 {
		return
	}
	if c.chance(40) {
		limit = c.someLimit()
		call := record{Op: opExtend, Name: of.Name, Parts: of.Parts, Hold: of.Hold, Fence: of.Fence, MaxHold: limit}
		ctx, cancel := c.within(time.Second, 5*time.Second)
		_, _ = c.asks(call, func() (record, error) { return record{}, h.Extend(ctx, limit) }) // the history has the error
		cancel()
	}
	if limit <= 2*shortLimit && c.chance(60) {
		_ = wait(context.Background(), limit) // nothing ends it
		c.record(h, of)
	}
}
