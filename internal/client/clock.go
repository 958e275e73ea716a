package client

import (
	"sync/atomic"
	"time"
)

// clock measures the time since it began, including the time for which the whole
// machine was suspended: sessions expire in the group while a laptop is closed, but
// on Linux Go's monotonic clock stops.
//
// No clock of a virtual machine shows that a hypervisor has stopped it together
// with its clocks. Fences protect against that.
type clock struct {
	began     time.Time
	suspended time.Duration // before began
	known     atomic.Int64  // for how long the machine had been suspended at the last look
}

// instant is a time since the clock began.
type instant time.Duration

func newClock() clock { return clock{began: time.Now(), suspended: suspended()} }

func (c *clock) now() instant {
	known := time.Duration(c.known.Load())
	if !isStillSuspendedFor(known) {
		known = suspended()
		c.known.Store(int64(known))
	}
	return instant(time.Since(c.began) + known - c.suspended)
}

func (c *clock) until(i instant) time.Duration { return time.Duration(i - c.now()) }
