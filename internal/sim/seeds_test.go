package sim

import (
	"container/heap"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// A whole group on one goroutine, from one seed: the production core, machine,
// log and database, over a disk that loses what was not synced, a network that
// loses, doubles, delays and cuts, clocks that do not quite agree, and programs
// that lock and unlock.
//
//	go test ./internal/sim -run TestSeeds -seeds 50 -first 1
//	go test ./internal/sim -run TestSeeds -seed 7      one run, and its story
//
// The world (this file) is the queue of events, member_test.go drives a
// core as the loop and the writer do, program_test.go is what a process
// does: with locks, elections and semaphores (handle, space), with keys (write),
// with checks (check), with a session that outlives it (keeper), and at last it
// may leave (leave). fault_test.go and link_test.go are what goes wrong.
//
// Three kinds of checks know nothing of each other: history_test.go and
// reference_test.go hold all that is said against the log, replayed by a
// machine and by the reference; audit*_test.go hold the log against the
// promises; outside_test.go and its models look at what programs were told,
// without the log.
//
// Directed runs, in scripted worlds (script): ttl, delay, herd, directed.
var (
	seeds = flag.Int("seeds", 24, "how many seeds TestSeeds runs")
	first = flag.Uint64("first", 1, "the first of them")
	only  = flag.Uint64("seed", 0, "run only this one, and log its trace")
)

func TestSeeds(t *testing.T) {
	if *only != 0 {
		runSeed(t, *only)
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 5) // one goroutine: more seeds show the race detector nothing new
	}
	var sum summary
	for i := range uint64(n) {
		seed := *first + i
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { sum.add(runSeed(t, seed)) }) {
			return
		}
	}
	t.Logf("%d seeds: %v", n, sum)
}

// regressionSeeds once found a defect. Their runs change with the simulator; each
// defect also has a scripted test, or is a rule of the simulator now.
var regressionSeeds = map[uint64]string{
	227:   "the only member to know that a removal was committed informed the removed one and was lost: the others still needed the removed member's vote",
	262:   "a member stopped when its log showed its removal, though its vote was still needed to remove it",
	10757: "on coarse clocks a lock-delay lasts half as long",
	11123: "the state of a snapshot may be ahead of the next change in the feed",
	19909: "a former leader forwarded a request for a leadership transfer to its successor, in the name of the requested leader",
	533:   "a session opened before a key's deletion received the same lock index twice, as a younger session had locked the new key first",
}

func TestSeeds_Regressions(t *testing.T) {
	for seed, what := range regressionSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Log(what)
			runSeed(t, seed)
		})
	}
}

// The same seed is the same run, or a failure could not be investigated.
func TestSeedRepeats(t *testing.T) {
	for _, seed := range []uint64{4709, 4711, 4714} { // with coarse clocks, with disks that keep unsynced data, with slow application
		if a, b := runSeed(t, seed), runSeed(t, seed); a.traceHash.Sum64() != b.traceHash.Sum64() {
			t.Fatalf("seed %d: two runs differ", seed)
		}
	}
}

// runSeed runs one simulation, from the first start to the last check.
func runSeed(t *testing.T, seed uint64) *simulation {
	cryptotest.SetGlobalRandom(t, seed) // raft draws election timeouts from it
	sim := newWorld(t, seed)
	n := []int{1, 3, 3, 3, 5}[sim.rng.IntN(5)]
	f := chooseFaults(sim)
	if f.removals && sim.extraRNG.IntN(2) == 0 {
		n = 4
	}
	sim.formGroup(n, f)
	defer sim.shutDown()
	sim.scheduleFaults()
	sim.runUntil("the fault period", func() bool { return sim.now >= faultPeriod })
	sim.heal()
	sim.await(recoveryLimit, "convergence after the last fault", sim.converged)
	sim.checkExpiryWithoutRenewals()
	for _, m := range sim.remaining() {
		sim.history.audit.checkFeedComplete(m.process)
	}
	sim.compareDisks()
	sim.clients.checkAll()
	sim.trace("end: %d entries, %v", sim.history.last(), sim.now)
	t.Logf("seed %d: %v", seed, new(summary).add(sim))
	return sim
}

// checkExpiryWithoutRenewals checks that sessions end soon after their TTLs when no
// program renews and the leader remains: none with a TTL is left.
func (sim *simulation) checkExpiryWithoutRenewals() {
	sim.programsStopped = true
	sim.advance(longestTTL + 2*longestElection)
	for _, s := range sim.history.oracle.Sessions() {
		if s.TTL != 0 {
			sim.fail("session %s with a TTL of %v is alive without renewals", s.ID, time.Duration(s.TTL))
		}
	}
}

const (
	tick          = 100 * time.Millisecond
	electionTicks = 10
	faultPeriod   = 25 * time.Second
	recoveryLimit = 60 * time.Second // until the group must have converged
)

type simulation struct {
	t               *testing.T
	seed            uint64
	rng             *rand.Rand
	extraRNG        *rand.Rand // for what was added later, so that the runs of older seeds stay the same
	now             time.Duration
	events          eventQueue
	sequence        uint64
	executed        int
	members         []*simMember
	network         network
	disks           struct{ slow bool }
	faults          faults
	history         *history
	clients         *clientHistory
	lastFence       map[string]uint64 // by lock: the last that a holder trusted
	draining        bool              // programs finish what they hold
	programsStopped bool              // and then renew nothing
	limits          map[string]uint32 // of semaphores, as programs believe them agreed
	swapped         map[string]bool   // key@index: a compare-and-swap against this index has succeeded
	writes          int
	crashes         int
	traffic         traffic
	script          func(*program)      // replaces what programs do
	onAdvance       func(time.Duration) // observes each advance of time
	traceHash       interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
}

func newWorld(t *testing.T, seed uint64) *simulation {
	sim := &simulation{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), extraRNG: rand.New(rand.NewPCG(seed, 1)), traceHash: fnv.New64a(), lastFence: make(map[string]uint64)}
	sim.traffic.messages = make(map[raftpb.MessageType]int)
	sim.limits = semaphoreLimits()
	sim.swapped = make(map[string]bool)
	sim.history, sim.clients = newHistory(sim), newClientHistory(sim)
	return sim
}

// formGroup starts a new group of n members.
func (sim *simulation) formGroup(n int, f faults) {
	for i := range n {
		sim.members = append(sim.members, newSimMember(sim, i))
	}
	sim.faults = f
	sim.setClocks()
	sim.bootGroup(f)
}

func (sim *simulation) bootGroup(f faults) {
	n := len(sim.members)
	sim.faults, sim.network = f, f.network(n)
	sim.trace("%d members, faults %+v", n, f)
	for _, m := range sim.members {
		m.bootstrap(n)
		m.start()
	}
}

func (sim *simulation) shutDown() {
	for _, m := range sim.members {
		m.crash("end")
	}
}

// simEvent happens at a time. Events of one time happen in the order in which they
// were scheduled.
type simEvent struct {
	at       time.Duration
	sequence uint64
	run      func()
}

type eventQueue []simEvent

func (e eventQueue) Len() int { return len(e) }
func (e eventQueue) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].sequence < e[j].sequence
}
func (e eventQueue) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *eventQueue) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *eventQueue) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (sim *simulation) schedule(d time.Duration, run func()) {
	sim.sequence++
	heap.Push(&sim.events, simEvent{sim.now + d, sim.sequence, run})
}

func (sim *simulation) runUntil(chapter string, until func() bool) {
	defer func() {
		if p := recover(); p != nil {
			sim.fail("panic in %s: %v\n%s", chapter, p, debug.Stack())
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
		for _, m := range sim.members {
			m.checkProgress()
		}
	}
}

func (sim *simulation) await(limit time.Duration, what string, until func() bool) {
	sim.t.Helper()
	limit += sim.now
	sim.runUntil(what, func() bool {
		if sim.now > limit {
			for _, m := range sim.members {
				if m.process != nil {
					sim.t.Log(m.process.program.unfinished())
				}
			}
			sim.fail("no %s until %v", what, limit)
		}
		return until()
	})
}

// trace adds a line to the run's trace.
func (sim *simulation) trace(format string, args ...any) {
	line := fmt.Sprintf("%9.4f ", sim.now.Seconds()) + fmt.Sprintf(format, args...)
	fmt.Fprintln(sim.traceHash, line)
	if *only != 0 {
		sim.t.Log(line)
	}
}

func (sim *simulation) fail(format string, args ...any) {
	sim.t.Helper()
	sim.t.Fatalf("seed %d at %v: %s\nrepeat it with: go test ./internal/sim -run TestSeeds -seed %d -v",
		sim.seed, sim.now, fmt.Sprintf(format, args...), sim.seed)
}

func (sim *simulation) chance(p float64) bool { return sim.rng.Float64() < p }

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
// progress, and every program has acquired and released once more.
func (sim *simulation) converged() bool {
	for _, m := range sim.remaining() {
		proc := m.process
		if proc == nil || proc.diskBusy || proc.core.Status().Applied != sim.history.last() || !proc.program.atRest() {
			return false
		}
	}
	return true
}

// remaining returns the members that are neither removed nor permanently lost.
func (sim *simulation) remaining() []*simMember {
	return slices.DeleteFunc(slices.Clone(sim.members), func(m *simMember) bool { return m.removed || m.destroyed })
}
