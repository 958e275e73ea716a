package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A standalone session is renewed by any process. It does not end before its TTL after the last
// acknowledged renewal was sent, whichever process sent it and however often leaders change; the process
// that created it crashes; and it ends in time once no renewal comes.
func TestStandalone_TTLIsLowerBound(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rate := []rate{0, -maxSkew, 0} // no clock is fast
			sim := newScriptedSimulation(t, seed, 3, faults{}, rate...)
			sim.register(0, 1, 2)
			sim.script = (*program).register // of processes that start again
			sim.mustInvoke(0, wire.Code_OK, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{
				Level: wire.LevelStandalone, Members: []uint64{1, 2, 3},
			}}})
			for range 4 {
				sim.standaloneUnderFaults()
			}
		})
	}
}

// standaloneUnderFaults runs one standalone session from its creation to its end.
func (sim *simulation) standaloneUnderFaults() {
	ttl := sim.between(1500*time.Millisecond, 3*time.Second)
	id, renewed, ended := sim.newID(), sim.now, time.Duration(0)
	var creator *program
	sim.await(10*longestElection, "process", func() bool { creator = sim.registeredProgram(); return creator != nil })
	sim.mustInvoke(creator.n, wire.Code_OK, &wire.Command{Op: &wire.Command_CreateSession{CreateSession: &wire.CreateSession{
		Session: &wire.OpenSession{Id: id[:], Ttl: int64(ttl)},
	}}})
	sim.history.onEntry = func() {
		if _, alive := liveSession(sim.history.oracle, id); !alive && ended == 0 {
			ended = sim.now
		}
	}
	creator.crash("to leave its session")
	sim.schedule(sim.between(0, ttl), creator.start)
	for end := sim.now + sim.between(ttl, 6*ttl); sim.now < end && ended == 0; {
		sim.changeLeader(-1)
		if p, sent := sim.registeredProgram(), sim.now; p != nil {
			p.submit(&wire.Command{Op: &wire.Command_RenewSession{RenewSession: &wire.RenewSession{Id: id[:]}}}, true, func(r *wire.Reply) {
				if r.GetCode() == wire.Code_OK {
					renewed = max(renewed, sent)
				}
			})
		}
		sim.advance(sim.between(100*time.Millisecond, ttl))
	}
	sim.awaitLeader()
	sim.await(3*ttl+10*longestElection, "end of the session", func() bool { return ended != 0 })
	if ended < renewed+ttl {
		sim.fail("a session ends at %v; its last renewal was sent at %v, and its TTL is %v", ended, renewed, ttl)
	}
}
