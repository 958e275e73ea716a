package sim

import "time"

// rate is by how many millionths a member's monotonic clock runs faster than
// the world's time.
type rate int64

const million = 1_000_000

// apart is how far the clocks of two members may be from each other: 1 %, which
// is what a holder takes off his own deadline for it.
const apart rate = million / 100

// setClocks gives each member a clock of its own: between 0.99 and 1.01, and no
// two further apart than the promise allows.
func (w *world) setClocks() {
	if !w.faults.clocks {
		return
	}
	slowest := -rate(w.rng.Int64N(int64(apart) + 1))
	for _, m := range w.members {
		m.rate = slowest + rate(w.rng.Int64N(int64(apart)+1))
		w.say("%d's clock: %+d millionths", m.n, m.rate)
	}
}

// clock is the process's monotonic clock: its core and its program see no other.
func (l *life) clock() time.Duration {
	return (l.w.now - l.began) * time.Duration(million+l.rate) / million
}

// lasts is how long the world waits until the member's clock has moved by d.
func (l *life) lasts(d time.Duration) time.Duration {
	speed := time.Duration(million + l.rate)
	return (d*million + speed - 1) / speed
}
