package sim

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

var permits = flag.Int("permits", 20_000, "how many a session holds in TestLargeSession; .ci/run has it hold 100,000")

// A session holds many permits. Its process crashes, the leader too, and the session
// expires: everything is free on every member, and on a machine that replayed the log.
// The permits are of several semaphores, as the reference model goes through all permits
// of one for each of them.
func TestLargeSession_ExpiresAcrossLeaderChange(t *testing.T) {
	holds := *permits
	if testing.Short() {
		holds = 5_000
	}
	sim := newScriptedSimulation(t, 100, 3, faults{keepEntries: 100})
	holder := (sim.leader().n + 1) % 3
	sim.register(holder)
	s := sim.openSession(holder, 8*time.Second, 0, wire.Behavior_RELEASE)
	const each = 500
	names := make([]string, holds/each)
	for i := range names {
		names[i] = fmt.Sprint("many", i)
		pending := each
		for range each {
			sim.program(holder).submit(acquireCommand(names[i], s, each, 1, false), true, func(r *wire.Reply) {
				if r.GetCode() != wire.Code_OK {
					sim.fail("acquire: %v", r)
				}
				pending--
			})
		}
		sim.program(holder).renew()
		sim.await(10*longestElection, "grants", func() bool { return pending == 0 })
		if v, _ := semaphoreOf(sim.history.oracle, names[i]); v.Available != 0 {
			sim.fail("%d permits of %s are available", v.Available, names[i])
		}
	}
	leader := sim.leader().simMember
	sim.members[holder].crash("holder")
	sim.members[holder].start()
	leader.crash("leader")
	sim.awaitLeader()
	leader.start()
	sim.await(time.Minute, "expiry of the session", func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			v, exists := semaphoreOf(sim.history.oracle, name)
			return exists && v.Available < each
		})
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
