package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

const (
	tick          = 100 * time.Millisecond
	electionTicks = 10
	faultPeriod   = 25 * time.Second
	recoveryLimit = 60 * time.Second // until the group must have converged
)

// simulation is one group of a run: its members, the environment that a seed decides,
// and the checkers. The default group has further ones beside it, see groups_test.go.
type simulation struct {
	*world
	record                           *fact.GroupRecord // of a further group; nil: this is the default one
	rng                              *rand.Rand
	extraRNG                         *rand.Rand // for what was added later, so that the runs of older seeds stay the same
	endsRNG                          *rand.Rand // for holds with MaxHold
	setsRNG                          *rand.Rand // for sets
	jobsRNG                          *rand.Rand // for jobs
	shardsRNG                        *rand.Rand // for shards
	tasksRNG                         *rand.Rand // for tasks
	members                          []*simMember
	standbys                         int          // how many of the members, the last ones, are standbys
	remotes                          []*simMember // hosts of clients
	faults                           faults
	firstLevel                       uint32 // feature level of the new group; 0: the lowest
	history                          *history
	clients                          *clientHistory
	lastFence                        map[string]uint64 // by lock: the last that a holder trusted
	fences                           map[grantOf]bool  // that holders have trusted
	phases                           map[grantOf]bool  // of these, those of shared phases
	modes                            modes
	ends                             ends
	sets                             sets
	claims                           claims
	jobs                             jobCounts
	runs                             runs
	lastKey                          uint64 // of the job with many
	shards                           shardCounts
	works                            works
	tasks                            taskCounts
	limits                           map[string]uint32 // of semaphores, as programs believe them agreed
	swapped                          map[string]bool   // key@index: a compare-and-swap against this index has succeeded
	writes                           int
	crashes                          int
	lies                             int // frames that no correct member sends
	flips, diverged                  int // bits flipped in memory; stops of members whose states differed
	decided                          int // disputes that an operator has ended
	deaths                           int // of registered processes, as recorded in the log
	crashReports                     int // of processes that the group records as crashed
	earlyDeaths                      int // reports of deaths that came too soon after a renewal
	tenures, recalls, local, refills int // see summary
	remote                           remoteCounts
	rest                             rest
	quiet                            quietMessages
	list                             *fact.Directory // of further groups, as the default one had it last
	deleted                          bool            // a further group that the default one has dropped
	forgotten                        int             // processes that have forgotten a further group, and are refused
	follows, refusedSeals            int             // of a further group: changes of its members; seals refused as it was in use
	traffic                          traffic
}

// world is what the groups of a run share.
type world struct {
	t               *testing.T
	seed            uint64
	now             time.Duration
	events          eventQueue
	sequence        uint64
	executed        int
	network         network
	disks           disks
	draining        bool                // programs finish what they hold
	programsStopped bool                // and then renew nothing
	script          func(*program)      // replaces what programs do
	onAdvance       func(time.Duration) // observes each advance of time
	further         []*simulation       // the further groups that there have ever been, by number
	plans           []*groupPlan        // of operators who create and delete them
	deletedFences   uint64              // the largest that a deleted one has granted
	rests           bool                // the further groups are quiet at times
	connections     hostConnections
	traceHash       interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	sim := newGroup(&world{t: t, seed: seed, traceHash: fnv.New64a()}, 0)
	if seed%2 == 0 { // the others as with a founder of an earlier build
		sim.firstLevel = wire.FeatureLevel
	}
	sim.history, sim.clients = newHistory(sim), newClientHistory(sim)
	return sim
}

// newGroup returns a group without members and checkers, which draws its random numbers from streams from the first one on.
func newGroup(w *world, first uint64) *simulation {
	stream := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, first+n)) }
	return &simulation{
		world: w, rng: stream(0), extraRNG: stream(1), endsRNG: stream(2), setsRNG: stream(3), jobsRNG: stream(4), shardsRNG: stream(5), tasksRNG: stream(6),
		lastFence: make(map[string]uint64), fences: make(map[grantOf]bool), phases: make(map[grantOf]bool),
		limits:  semaphoreLimits(),
		swapped: make(map[string]bool), runs: newRuns(), works: newWorks(),
		traffic: traffic{messages: make(map[raftpb.MessageType]int)},
	}
}

// formGroup starts a new group of voters and standbys.
func (sim *simulation) formGroup(voters, standbys int, f faults) {
	for i := range voters + standbys {
		sim.members = append(sim.members, newSimMember(sim, i))
	}
	if f.joins {
		sim.addNewcomers(4)
	}
	sim.addRemotes(f.clients)
	sim.faults, sim.standbys = f, standbys
	sim.setClocks()
	sim.bootGroup(f)
}

// bootGroup formats the disks of all members and starts them.
func (sim *simulation) bootGroup(f faults) {
	n := len(sim.members)
	sim.faults, sim.network = f, f.network(n+len(sim.remotes))
	n = len(sim.remaining())
	sim.trace("%d members, %d standbys, faults %+v", n, sim.standbys, f)
	for _, m := range sim.members {
		if m.absent {
			continue
		}
		m.bootstrap(n-sim.standbys, sim.standbys)
		m.start()
	}
	for _, m := range sim.remotes {
		m.startRemote()
	}
}

// shutDown ends all processes.
func (sim *simulation) shutDown() {
	for _, m := range sim.members {
		m.crash("end of the run")
	}
}

// runUntil executes events until the condition holds. After each one it checks the
// progress of every member. phase is for failure messages.
func (sim *simulation) runUntil(phase string, until func() bool) {
	defer func() {
		if p := recover(); p != nil {
			sim.fail("panic in %s: %v\n%s", phase, p, debug.Stack())
		}
	}()
	for !until() {
		e := heap.Pop(&sim.events).(simEvent)
		if sim.onAdvance != nil {
			sim.onAdvance(e.at - sim.now)
		}
		sim.now = e.at
		sim.executed++
		e.run()
		for _, g := range sim.groups() {
			for _, m := range g.members {
				m.checkProgress()
			}
		}
	}
}

// await is runUntil with a limit of simulated time.
func (sim *simulation) await(limit time.Duration, what string, until func() bool) {
	sim.t.Helper()
	limit += sim.now
	sim.runUntil(what, func() bool {
		if sim.now > limit {
			sim.logMembers()
			for _, m := range sim.remotes {
				if m.process != nil {
					sim.t.Logf("client, connected %t: %v", m.process.remote.connected(), m.process.program.unfinished())
				}
			}
			sim.t.Log(sim.history.audit.shards.unfinished())
			sim.fail("no %s by %v", what, limit)
		}
		return until()
	})
}

// logMembers logs what the members do.
func (sim *simulation) logMembers() {
	for _, g := range sim.groups() {
		for _, m := range g.members {
			if m.process != nil {
				sim.t.Log(g.label() + m.process.program.unfinished())
				sim.t.Logf("%smember %d: %v", g.label(), m.n, m.process.core)
			}
		}
	}
}

// trace adds a line to the run's trace.
func (sim *simulation) trace(format string, args ...any) {
	line := fmt.Sprintf("%9.4f ", sim.now.Seconds()) + sim.label() + fmt.Sprintf(format, args...)
	fmt.Fprintln(sim.traceHash, line)
	if *only != 0 {
		sim.t.Log(line)
	}
}

// fail ends the test with the command that repeats the run.
func (sim *simulation) fail(format string, args ...any) {
	sim.t.Helper()
	sim.t.Fatalf("seed %d at %v: %s%s\nrepeat it with: go test ./internal/sim -run TestSeeds -seed %d -v",
		sim.seed, sim.now, sim.label(), fmt.Sprintf(format, args...), sim.seed)
}

// chance returns true with probability p.
func (sim *simulation) chance(p float64) bool { return sim.rng.Float64() < p }

// between returns a random duration in [low, high].
func (sim *simulation) between(low, high time.Duration) time.Duration {
	return low + time.Duration(sim.rng.Int64N(int64(high-low)+1))
}

func (sim *simulation) newID() (id wire.ID) {
	for i := range id {
		id[i] = byte(sim.rng.Uint32())
	}
	return id
}

// converged reports whether all members are at the same index with nothing in
// progress, every program has acquired and released once more, and the sessions of lost members have ended, as well as the holds
// that were lost by their MaxHold and not released. No set waits for ever.
func (sim *simulation) converged() bool {
	for _, m := range sim.remaining() {
		proc := m.process
		if proc == nil || proc.diskBusy || proc.core.Status().Applied != sim.history.last() || !proc.program.atRest() {
			return false
		}
	}
	return sim.groupsConverged() && sim.remotesAtRest() && len(sim.history.audit.ends)+len(sim.history.audit.waitingSets) == 0 && sim.history.audit.jobs.atRest() && sim.history.audit.shards.quiet() && (!sim.faults.joins || sim.isFurther() || sim.reconciled()) &&
		!(sim.anyDestroyed() && slices.ContainsFunc(sessionsOf(sim.history.oracle), sim.ofDestroyed))
}

// remaining returns the members that are neither removed nor permanently lost, nor yet to join.
func (sim *simulation) remaining() []*simMember {
	return slices.DeleteFunc(slices.Clone(sim.members), func(m *simMember) bool { return m.removed || m.destroyed || m.absent })
}
