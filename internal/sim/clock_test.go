package sim

import "time"

// rate is by how many millionths a member's monotonic clock runs faster than
// the world's time.
type rate int64

const million = 1_000_000

// apart is how far the clocks of two members may be from each other: 1 %, which
// is what a holder takes off his own deadline for it.
const apart rate = million / 100

// The slowest and the fastest of coarse clocks run at half speed and at double. In
// worlds with them nothing holds that depends on how clocks agree: what a holder
// counts on, and how long a lock-delay is. What the log says holds.
const slowest, fastest rate = -million / 2, million

// setClocks gives each member a clock of its own: between 0.99 and 1.01, and no
// two further apart than the promise allows; or coarse ones.
func (w *world) setClocks() {
	low, high := rate(0), apart
	switch {
	case w.faults.coarse:
		low, high = slowest, fastest-slowest
	case w.faults.clocks:
		low = -rate(w.rng.Int64N(int64(apart) + 1))
	default:
		return
	}
	for _, m := range w.members {
		m.rate = low + rate(w.rng.Int64N(int64(high)+1))
		w.say("%d's clock: %+d millionths", m.n, m.rate)
	}
}

// clock is the process's monotonic clock: its core and its program see no other.
func (l *life) clock() time.Duration {
	return l.read + (l.w.now-l.readAt)*time.Duration(million+l.rate)/million
}

// setRate lets the clock go on at another rate.
func (l *life) setRate(r rate) {
	l.read, l.readAt = l.clock(), l.w.now
	l.rate = r
}

// lasts is how long the world waits until the member's clock has moved by d.
func (l *life) lasts(d time.Duration) time.Duration {
	speed := time.Duration(million + l.rate)
	return (d*million + speed - 1) / speed
}
