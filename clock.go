package conclave

import "time"

// clock measures how long this process has been going, time in which the whole
// machine was suspended included: the group's sessions do not stand still while
// a laptop is closed, and on Linux Go's monotonic clock does.
//
// What no clock of a machine shows is that a hypervisor has stopped it and its
// clocks together. Fences are for that.
type clock struct {
	began     time.Time
	suspended time.Duration // before began
}

// instant is a time since the clock began.
type instant time.Duration

func newClock() clock { return clock{time.Now(), suspended()} }

func (c *clock) now() instant {
	return instant(time.Since(c.began) + suspended() - c.suspended)
}

func (c *clock) until(i instant) time.Duration { return time.Duration(i - c.now()) }
