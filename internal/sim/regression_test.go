package sim

import (
	"testing"
	"testing/cryptotest"
	"time"
)

// The first founder of a new group campaigns repeatedly, and votes take longer to
// arrive than a heartbeat interval.
func TestElection_SlowNetwork(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	sim := newSimulation(t, 1)
	sim.formGroup(3, 0, faults{sim: sim, keepEntries: 1000})
	defer sim.shutDown()
	sim.network.minDelay, sim.network.maxDelay = 120*time.Millisecond, 150*time.Millisecond
	sim.await(5*time.Second, "leader", func() bool { return len(sim.history.leaderOf) > 0 })
	sim.draining = true
	sim.await(recoveryLimit, "convergence", sim.converged)
	if term := sim.members[0].process.core.Status().Term; term > 6 {
		t.Errorf("elected in term %d, want at most 6", term)
	}
}

// A process registers and is isolated before the outcome arrives. When it is
// reconnected its registration has expired, and a snapshot has replaced the entry
// that registered it. It must neither be mistaken for a copied directory nor wait
// for an outcome that no longer exists: it registers again. (Seed 5002 found this.)
func TestRegistration_ExpiredBeforeOutcome(t *testing.T) {
	const lagging = 2
	sim := newScriptedSimulation(t, 1, 3, faults{keepEntries: 3})
	sim.register(0)
	sim.program(0).renewEvery(time.Second)
	p := sim.program(lagging)
	first := p.incarnation
	for other := range lagging {
		sim.network.cut[other][lagging] = true // it can send, and receives nothing
	}
	p.register()
	sim.await(longestElection, "registration in the log", func() bool { return registered(sim.history.oracle, first) })
	sim.isolate(lagging)
	sim.await(2*incarnationTTL, "expiry of the incarnation", func() bool { return !registered(sim.history.oracle, first) })
	sim.advance(10 * time.Second)
	sim.network.heal()
	sim.await(2*longestElection+incarnationTTL, "second registration", func() bool { return p.registered })
	if p.process.core.Status().Installed == 0 {
		t.Error("no snapshot was installed: the log reached the member")
	}
	if p.incarnation == first || !registered(sim.history.oracle, p.incarnation) {
		t.Errorf("registered as %s, after %s", p.incarnation, first)
	}
}
