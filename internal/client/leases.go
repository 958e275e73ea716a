package client

// The table of live leases. Leases enter it when the group has agreed (opening.go)
// and leave it when they end.

import (
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// track enters a lease into the table; false means that the client is closing.
func (c *Client) track(l *Lease) bool {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return false
	}
	c.leases[l.id] = l
	c.mu.Unlock()
	if l.Err() != nil {
		c.drop(l) // its deadline came before this
	}
	c.renewal.hasten(l)
	return true
}

// drop removes a lease that has ended.
func (c *Client) drop(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id] == l {
		delete(c.leases, l.id)
	}
	if c.own == l {
		c.own = nil
	}
}

// lease returns a live lease, or nil.
func (c *Client) lease(id wire.ID) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[id]
}

func (c *Client) liveLeases() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Lease, 0, len(c.leases))
	for _, l := range c.leases {
		list = append(list, l)
	}
	return list
}

// smallestSpan is the smallest time for which a renewal lasts, of the live leases and of
// the registration.
func (c *Client) smallestSpan() time.Duration {
	smallest := c.cfg.IncarnationTTL
	for _, l := range c.liveLeases() {
		if l.span != NoTTL {
			smallest = min(smallest, l.span)
		}
	}
	return smallest
}

// Sessions returns the sessions of the live leases.
func (c *Client) Sessions() (ids []wire.ID) {
	for _, l := range c.liveLeases() {
		ids = append(ids, l.id)
	}
	return ids
}

// RenewalInterval is how often this process renews its registration and its leases.
func (c *Client) RenewalInterval() time.Duration { return c.smallestSpan() / 3 }

// NoLease is what Left returns without a lease that ends by time.
const NoLease = 24 * time.Hour

// Left returns for how long all leases of this process last without another renewal.
func (c *Client) Left() time.Duration {
	left := NoLease
	for _, l := range c.liveLeases() {
		l.mu.Lock()
		if at, _ := l.deadline(); at != never {
			left = min(left, c.clock.Until(at))
		}
		l.mu.Unlock()
	}
	return max(left, 0)
}

// Woke looks whether the machine was suspended, and then checks the deadlines of all
// leases and whether a renewal is due. The group calls it whenever the goroutine that
// delivers outcomes has something to do, each tick included: timers stand still while
// the machine is suspended, and lag behind the clock afterwards.
func (c *Client) Woke() {
	if c.clock.Look() < instant(c.lookAt.Load()) {
		return
	}
	c.lookAt.Store(int64(never))
	for _, l := range c.liveLeases() {
		if l.Err() == nil {
			l.mu.Lock()
			l.setTimer()
			l.mu.Unlock()
		}
	}
	c.renewal.woke()
}

// lookBy has Woke look at all leases no later than then.
func (c *Client) lookBy(at instant) {
	for {
		planned := c.lookAt.Load()
		if int64(at) >= planned || c.lookAt.CompareAndSwap(planned, int64(at)) {
			return
		}
	}
}

// unbindAll ends the leases without TTL that were bound to an incarnation whose
// registration has expired. Their sessions live on, unbound, and another process
// may attach them. Sessions with a TTL have ended with the registration; their
// leases end at their deadlines.
func (c *Client) unbindAll(incarnation wire.ID) {
	for _, l := range c.liveLeases() {
		if l.ttl == NoTTL && l.incarnation == incarnation {
			l.end(unbound(), lost)
		}
	}
}
