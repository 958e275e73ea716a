package grouptest

import "time"

// poll waits until done returns true, and reports whether it did in time. It is for
// what only a snapshot such as Status shows, and nothing signals.
func (g *Group) poll(patience time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			return false
		}
		Pass(g.interval)
	}
	return true
}

// Pass waits for d, which in a bubble is virtual time.
func Pass(d time.Duration) { <-time.After(d) }
