// Package leaseclock is the clock by which a holder knows how long it may rely on a
// lease: monotonic time, with the time for which the whole machine was suspended.
// Sessions expire in the group while a laptop is closed, but on Linux Go's monotonic
// clock stops.
//
// The monotonic clock needs no system call. The suspended time does, so it is looked up
// at a wake-up of the loop of a member or client, and by a caller, if the last look is more than a
// millisecond of running time ago. So for a millisecond of running time after the machine
// resumes, the clock may lack the time of that suspension. A holder that pauses between
// its look at the lease and the use of what the lease holds is late in the same way:
// fences protect against both.
//
// No clock of a virtual machine shows that a hypervisor has stopped it together
// with its clocks. Fences protect against that, too.
package leaseclock

import (
	"sync/atomic"
	"time"
)

// Instant is a time since the clock began.
type Instant time.Duration

// Trusted is for how long of a time that the group grants a holder may rely on it: all
// but the rate error between its clock and the leader's.
func Trusted(granted time.Duration) time.Duration { return granted - granted/100 }

// Source is what a clock reads.
type Source interface {
	// Running returns for how long the machine has run, by a monotonic clock that
	// stands still while the machine is suspended. It needs no system call.
	Running() time.Duration

	// Suspended returns for how long the machine has been suspended. known is an
	// earlier result, or 0, and running is what Running has just returned: if known is
	// still right, the source may need fewer system calls.
	Suspended(known, running time.Duration) time.Duration
}

// lookInterval is how old, in running time, the last look at the suspended time may be.
const lookInterval = time.Millisecond

// Clock measures the time since New, suspended time included. It is safe for concurrent
// use: a call that begins after another one has returned returns no earlier time.
type Clock struct {
	source    Source
	running   time.Duration // when the clock began
	suspended time.Duration // before the clock began

	// Both only increase. known is set before looked, and looked is a time before the
	// source was read, so that what is known is never older than looked.
	known  atomic.Int64 // for how long the machine had been suspended at the last look
	looked atomic.Int64 // the running time of the last look
}

// New returns a clock that begins now.
func New(s Source) *Clock {
	running := s.Running()
	c := &Clock{source: s, running: running, suspended: s.Suspended(0, running)}
	c.known.Store(int64(c.suspended))
	c.looked.Store(int64(c.running))
	return c
}

// Now returns the time. It looks at the suspended time if the last look is more than a
// millisecond of running time ago.
func (c *Clock) Now() Instant {
	running := c.source.Running()
	if running-time.Duration(c.looked.Load()) > lookInterval {
		return c.Look()
	}
	return c.at(running)
}

// Look looks at the suspended time, and returns the time.
func (c *Clock) Look() Instant {
	before := c.source.Running()
	raise(&c.known, c.source.Suspended(time.Duration(c.known.Load()), before))
	raise(&c.looked, before)
	return c.at(c.source.Running())
}

// Until returns the time from now until i.
func (c *Clock) Until(i Instant) time.Duration { return time.Duration(i - c.Now()) }

func (c *Clock) at(running time.Duration) Instant {
	return Instant(running - c.running + time.Duration(c.known.Load()) - c.suspended)
}

// raise sets a to d unless it is later already: a look that was overtaken by another one
// must not turn the clock back.
func raise(a *atomic.Int64, d time.Duration) {
	for {
		old := a.Load()
		if old >= int64(d) || a.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}
