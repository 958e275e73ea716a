package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A holder finds its hold lost before the group ends it, even if clocks differ by 1 % and leaders change, whatever was extended,
// or renewed while the request waited. checkEnded compares them.
func TestMaxHold_HolderLosesFirst(t *testing.T) {
	for _, c := range []struct {
		name           string
		holder, others rate
	}{
		{"slow holder, fast leaders", -maxSkew, 0},
		{"fast holder, slow leaders", 0, -maxSkew},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				sim := newScriptedSimulation(t, 2*seed, 3, faults{}, c.holder, c.others, c.others) // even: at the level for it
				sim.register(0)
				s := sim.openSession(0, time.Minute, 0, wire.Behavior_RELEASE)
				sim.program(0).renewEvery(time.Second)
				holder, waiter := &handle{session: s, n: 1, lock: locks[0]}, &handle{session: s, n: 2, lock: locks[0]}
				s.handles = append(s.handles, holder, waiter)
				for range 12 {
					sim.holdUntilEnd(holder, waiter)
				}
				if sim.ends.locks != 24 || sim.ends.later == 0 || sim.ends.earlier == 0 {
					t.Errorf("%+v", sim.ends)
				}
			})
		}
	}
}

// holdUntilEnd has both acquire a lock, one after the other has lost it, and extend it a few times.
func (sim *simulation) holdUntilEnd(holder, waiter *handle) {
	for _, h := range []*handle{holder, waiter} {
		h.request(true, sim.between(50*time.Second, 100*time.Second))
		sim.await(10*longestElection, "request", func() bool { return h.state == held || h.state == queued })
	}
	for _, h := range []*handle{holder, waiter} {
		sim.await(2*time.Minute, "grant", func() bool { return h.state == held })
		number := h.number()
		for range sim.rng.IntN(3) {
			sim.changeLeader(0)
			sim.advance(sim.between(0, time.Second))
			sim.extend(h, sim.between(20*time.Second, 60*time.Second))
		}
		if sim.chance(0.7) {
			sim.extendWithoutOutcome(h)
		}
		sim.await(2*time.Minute, "end of the hold", func() bool { return sim.history.audit.endedHolds[number] })
		h.state = idle
	}
}

// extend extends a hold and waits for the outcome.
func (sim *simulation) extend(h *handle, d time.Duration) {
	h.extendBy(d)
	sim.await(10*longestElection, "outcome", func() bool { return h.state == held })
}

// extendWithoutOutcome partitions the holder from the group while it makes its hold longer or shorter.
func (sim *simulation) extendWithoutOutcome(h *handle) {
	if sim.chance(0.5) {
		sim.extend(h, 2*time.Second)
		sim.isolate(0)
		h.extendBy(time.Minute)
	} else {
		h.extendBy(2 * time.Second)
		sim.advance(sim.between(0, 20*time.Millisecond))
		sim.isolate(0)
	}
	sim.advance(5 * time.Second)
	sim.network.heal()
}
