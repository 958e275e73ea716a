package core

import "time"

// groupClock is the leader's source of group time: the machine's time when this member
// became leader, plus the monotonic time since. Each step is capped, so that a leader
// that was paused does not resume with a jump that expires sessions that their owners
// have renewed with another leader (etcd#15247).
//
// Capping makes group time slower than real time, which is safe: deadlines are lower
// bounds.
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
