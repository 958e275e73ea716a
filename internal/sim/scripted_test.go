package sim

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// longestElection bounds an election without faults: raft draws its timeout below
// two election timeouts.
const longestElection = 2 * electionTicks * tick

// traffic counts the messages between members.
type traffic struct {
	messages map[raftpb.MessageType]int
	forwards int
}

// newScriptedSimulation starts a group without random faults, whose programs do
// nothing but what the test has them do. Member i has the clock rate rates[i].
func newScriptedSimulation(t *testing.T, seed uint64, members int, f faults, rates ...rate) *simulation {
	return newScriptedGroup(t, seed, members, 0, f, rates...)
}

// newScriptedGroup is newScriptedSimulation with standbys.
func newScriptedGroup(t *testing.T, seed uint64, voters, standbys int, f faults, rates ...rate) *simulation {
	cryptotest.SetGlobalRandom(t, seed)
	sim := newSimulation(t, seed)
	sim.script = func(*program) {}
	f.sim = sim
	if f.keepEntries == 0 {
		f.keepEntries = 10_000
	}
	sim.standbys = standbys
	for i := range voters + standbys {
		m := newSimMember(sim, i)
		if i < len(rates) {
			m.rate = rates[i]
		}
		sim.members = append(sim.members, m)
	}
	sim.bootGroup(f)
	t.Cleanup(sim.shutDown)
	sim.awaitLeader()
	return sim
}

// leader returns the leader of the newest term, or nil if it is down.
func (sim *simulation) leader() *process {
	var leader *process
	for _, m := range sim.members {
		if proc := m.process; proc != nil && proc.core.Status().Leads && (leader == nil || proc.core.Status().Term > leader.core.Status().Term) {
			leader = proc
		}
	}
	return leader
}

// awaitLeader waits until a leader advances group time.
func (sim *simulation) awaitLeader() {
	sim.t.Helper()
	sim.await(5*longestElection, "leader", func() bool { proc := sim.leader(); return proc != nil && proc.core.Status().Proposing })
}

// advance runs the simulation for d.
func (sim *simulation) advance(d time.Duration) {
	end := sim.now + d
	sim.schedule(d, func() {})
	sim.runUntil("a period", func() bool { return sim.now >= end })
}

// program returns the program of member n.
func (sim *simulation) program(n int) *program { return sim.members[n].process.program }

// invoke has member n submit a command and waits for its first outcome.
func (sim *simulation) invoke(n int, c *wire.Command) *wire.Reply {
	sim.t.Helper()
	var answer *wire.Reply
	sim.program(n).call(c, false, func(_ wire.Ticket, r *wire.Reply, _ bool) {
		if answer == nil {
			answer = r
		}
	})
	sim.await(10*longestElection, "outcome", func() bool { return answer != nil })
	return answer
}

// mustInvoke is invoke with an expected code.
func (sim *simulation) mustInvoke(n int, code wire.Code, c *wire.Command) *wire.Reply {
	sim.t.Helper()
	r := sim.invoke(n, c)
	if r.GetCode() != code {
		sim.fail("member %d: %v returns %v, want %v", n, c, r, code)
	}
	return r
}

// register registers the programs of members.
func (sim *simulation) register(members ...int) {
	sim.t.Helper()
	for _, n := range members {
		sim.program(n).register()
		sim.await(10*longestElection, "registration", func() bool { return sim.program(n).registered })
	}
}

// openSession opens a session for the program of member n.
func (sim *simulation) openSession(n int, ttl, delay time.Duration, behavior wire.Behavior) *simSession {
	sim.t.Helper()
	s := sim.program(n).newSession(ttl, delay, behavior)
	sim.await(10*longestElection, "session", func() bool { return s.open })
	return s
}
