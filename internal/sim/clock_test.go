package sim

import (
	"slices"
	"time"
)

// rate is the deviation of a member's monotonic clock from simulated time, in
// millionths.
type rate int64

const million = 1_000_000

// maxSkew is how far the clocks of two members may drift apart: 1 %, which a holder
// subtracts from its own deadline.
const maxSkew rate = million / 100

// Coarse clocks run at between half and double speed. With them, nothing is checked
// that depends on the agreement of clocks: the holder's deadline and the length of
// a lock-delay. All else is.
const slowest, fastest rate = -million / 2, million

// setClocks gives each member's clock a rate: at most maxSkew apart, or coarse.
func (sim *simulation) setClocks() {
	low, high := rate(0), maxSkew
	switch {
	case sim.faults.coarseClocks:
		low, high = slowest, fastest-slowest
	case sim.faults.clockSkew:
		low = -rate(sim.rng.Int64N(int64(maxSkew) + 1))
	default:
		return
	}
	for _, m := range slices.Concat(sim.members, sim.remotes) {
		m.rate = low + rate(sim.rng.Int64N(int64(high)+1))
		sim.trace("clock of member %d: %+d millionths", m.n, m.rate)
	}
}

// clock is the process's monotonic clock, the only one that its core and its
// program see.
func (proc *process) clock() time.Duration {
	return proc.clockBase + (proc.sim.now-proc.clockSetAt)*time.Duration(million+proc.rate)/million
}

// setRate changes the clock's rate from now on.
func (proc *process) setRate(r rate) {
	proc.clockBase, proc.clockSetAt = proc.clock(), proc.sim.now
	proc.rate = r
}

// simulatedTime returns the simulated time in which the member's clock advances by
// d.
func (proc *process) simulatedTime(d time.Duration) time.Duration {
	speed := time.Duration(million + proc.rate)
	return (d*million + speed - 1) / speed
}
