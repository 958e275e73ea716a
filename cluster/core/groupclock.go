package core

import "time"

// groupClock is the leader's source of group time: what the machine's time was
// when this member became leader, plus the monotonic time that has passed while
// the loop was demonstrably running. A step is capped, so that a leader that
// was paused or suspended does not wake up with a jump that expires every
// session whose owner renewed it elsewhere meanwhile (etcd#15247).
//
// A step that is cut makes group time fall behind real time. That is the safe
// side: deadlines are lower bounds.
type groupClock struct {
	cap     time.Duration
	running bool
	time    int64
	last    time.Duration // the monotonic reading at the last step
}

// start begins a term at the machine's time.
func (c *groupClock) start(machine int64, now time.Duration) {
	c.running, c.time, c.last = true, machine, now
}

func (c *groupClock) stop() { c.running = false }

// step moves group time to the monotonic reading now and returns it.
func (c *groupClock) step(now time.Duration) int64 {
	c.time += int64(min(max(now-c.last, 0), c.cap))
	c.last = now
	return c.time
}
