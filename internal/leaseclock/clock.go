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
	monotonic time.Duration // the system's monotonic clock then
	suspended time.Duration // before began
	known     atomic.Int64  // for how long the machine had been suspended at the last look
}

// instant is a time since the clock began.
type instant time.Duration

func newClock() clock {
	began, monotonic := now()
	return clock{began: began, monotonic: monotonic, suspended: suspended()}
}

func (c *clock) now() instant {
	known, passed := time.Duration(c.known.Load()), time.Since(c.began)
	if !isStillSuspendedFor(known, c.monotonic+passed) {
		known = suspended()
		c.known.Store(int64(known))
		passed = time.Since(c.began)
	}
	return instant(passed + known - c.suspended)
}

func (c *clock) until(i instant) time.Duration { return time.Duration(i - c.now()) }
