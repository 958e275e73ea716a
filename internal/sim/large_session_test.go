package sim

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A session holds 100,000 permits. Its process crashes, the leader too, and the session
// expires: everything is free on every member, and on a machine that replayed the log.
func TestLargeSession_ExpiresAcrossLeaderChange(t *testing.T) {
	holds := 100_000
	if testing.Short() {
		holds = 5_000
	}
	sim := newScriptedSimulation(t, 100, 3, faults{keepEntries: 100})
	holder := (sim.leader().n + 1) % 3
	sim.register(holder)
	s := sim.openSession(holder, 8*time.Second, 0, wire.Behavior_RELEASE)
	for granted := 0; granted < holds; {
		batch := min(2_000, holds-granted)
		pending := batch
		for range batch {
			sim.program(holder).submit(acquireCommand("many", s, uint32(holds), 1, false), true, func(r *wire.Reply) {
				if r.GetCode() != wire.Code_OK {
					sim.fail("acquire: %v", r)
				}
				pending--
			})
		}
		sim.program(holder).renew()
		sim.await(10*longestElection, "grants", func() bool { return pending == 0 })
		granted += batch
	}
	if v, _ := semaphoreOf(sim.history.oracle, "many"); v.Available != 0 {
		sim.fail("%d permits are available", v.Available)
	}
	leader := sim.leader().simMember
	sim.members[holder].crash("holder")
	sim.members[holder].start()
	leader.crash("leader")
	sim.awaitLeader()
	leader.start()
	sim.await(time.Minute, "expiry of the session", func() bool {
		v, exists := semaphoreOf(sim.history.oracle, "many")
		return !exists || v.Available == int64(holds)
	})
	sim.await(time.Minute, "equal indexes", func() bool {
		for _, m := range sim.members {
			if m.process.core.Status().Applied != sim.history.last() {
				return false
			}
		}
		return true
	})
}
