package sim

import (
	"flag"
	"fmt"
	"testing"
	"testing/cryptotest"
	"time"
)

// The flags of TestSeeds and TestSeeds_Regressions.
var (
	seeds   = flag.Int("seeds", 5, "how many seeds TestSeeds runs; .ci/run has 300 run")
	first   = flag.Uint64("first", 1, "the first of them")
	plain   = flag.Bool("noreference", false, "compare nothing with the reference model, to see what the other checkers find")
	resting = flag.Bool("resting", false, "run only those of them whose further groups are quiet at times: a sixth")
	long    = flag.Bool("long", false, "run also the seeds that once found a defect, and repeat more, as .ci/run does")
	only    = flag.Uint64("seed", 0, "run only this one, and log its trace")
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
		if *resting && !hasRests(t, seed) {
			continue
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { sum.add(runSeed(t, seed)) }) {
			return
		}
	}
	if *resting {
		t.Logf("of %d seeds: %v", n, sum)
		return
	}
	t.Logf("%d seeds: %v", n, sum)
	if n >= 5 && !sum.modes.occurred() {
		t.Errorf("locks were not held in all ways: %+v", sum.modes)
	}
	if n >= 5 && !sum.ends.occurred() {
		t.Errorf("holds with MaxHold did not end in all ways: %+v", sum.ends)
	}
	if n >= 60 && !sum.claims.occurred() {
		t.Errorf("sets were not claimed in all ways: %+v", sum.claims)
	}
	if n >= 12 && !sum.jobs.occurred() || n >= 150 && !sum.jobs.allOccurred() {
		t.Errorf("not all happened to runs of jobs: %+v", sum.jobs)
	}
	if n >= 12 && !sum.shards.occurred() || n >= 150 && !sum.shards.allOccurred() {
		t.Errorf("not all happened to shards: %+v", sum.shards)
	}
	if n >= 150 && !sum.tasks.occurred() {
		t.Errorf("not all happened to tasks: %+v", sum.tasks)
	}
	if n >= 150 && !sum.groups.occurred() {
		t.Errorf("not all happened to further groups: %+v", sum.groups)
	}
	if n >= 12 && !sum.sets.occurred() {
		t.Errorf("not all happened to sets: %+v", sum.sets)
	}
}

// hasRests reports whether further groups are quiet at times in the run of a seed.
func hasRests(t *testing.T, seed uint64) bool {
	sim := newSimulation(t, seed)
	sim.chooseGroups()
	return sim.rests
}

// regressionSeeds once found a defect. Their runs change with the simulator, so that they prove no more than others; each
// defect also has a scripted test, or is a rule of the simulator now.
var regressionSeeds = map[uint64]string{
	227:   "the only member to know that a removal was committed informed the removed one and was lost: the others still needed the removed member's vote",
	262:   "a member stopped when its log showed its removal, though its vote was still needed to remove it",
	10757: "on coarse clocks a lock-delay lasts half as long",
	20083: "a session of a lost member may outlast the convergence of the others",
	11123: "the state of a snapshot may be ahead of the next change in the feed",
	19909: "a former leader forwarded a request for a leadership transfer to its successor, in the name of the requested leader",
	8802:  "the leader, of two voters, told of a demotion, crashed, and started again with the old configuration: it needed the vote of the demoted member, whose log was longer",
	13206: "a session was attached and ended in entries that a snapshot skipped, and its owner took the late answer for its state",
	1594:  "a member returned under a leader that had joined meanwhile, and refused it",
	4457:  "all members that a voter knew were replaced while it was down, and the group needed it",
	60267: "the digest of a state that an agreement had confirmed was unknown, as others had applied its entry together with later ones",
	40262: "a request that waited for the next registration was granted to a session without a TTL, whose program had attached it again and did not know of it",
	533:   "a session opened before a key's deletion received the same lock index twice, as a younger session had locked the new key first",
}

func TestSeeds_Regressions(t *testing.T) {
	if !*long {
		t.Skip("a seed like others: .ci/run has it with -long")
	}
	for seed, what := range regressionSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Log(what)
			runSeed(t, seed)
		})
	}
}

// The same seed is the same run, or a failure could not be investigated.
func TestSeedRepeats(t *testing.T) {
	repeated := []uint64{700024} // with groups that are quiet and share batches
	if *long {
		// With coarse clocks, with clients, with disks that keep unsynced data, with slow application.
		repeated = append(repeated, 4703, 4710, 4711, 4714)
	}
	for _, seed := range repeated {
		if a, b := runSeed(t, seed), runSeed(t, seed); a.traceHash.Sum64() != b.traceHash.Sum64() {
			t.Fatalf("seed %d: two runs differ", seed)
		}
	}
}

// runSeed runs one simulation, from the first start to the last check.
func runSeed(t *testing.T, seed uint64) *simulation {
	cryptotest.SetGlobalRandom(t, seed) // raft draws election timeouts from it
	sim := newSimulation(t, seed)
	n := []int{1, 3, 3, 3, 5}[sim.rng.IntN(5)]
	f := chooseFaults(sim)
	if f.removals && sim.extraRNG.IntN(2) == 0 {
		n = 4
	}
	standbys := 0
	if n == 1 && sim.extraRNG.IntN(3) > 0 {
		standbys = 1 + sim.extraRNG.IntN(2)
	}
	if sim.chooseGroups(); len(sim.plans) > 0 {
		f.flips = false // what one wrong member does to the list of groups is no fault of the others
	}
	sim.formGroup(n, standbys, f)
	defer sim.shutDown()
	if sim.rests {
		sim.beginConnections()
	}
	sim.scheduleFaults()
	sim.scheduleRemoteFaults()
	sim.pursuePlans()
	sim.runUntil("the fault period", func() bool { return sim.now >= sim.faultPeriod() })
	sim.heal()
	sim.settleTainted()
	sim.await(recoveryLimit, "convergence after the last fault", sim.converged)
	for _, g := range sim.groups() {
		g.checkNothingHeld()
	}
	sim.checkExpiryWithoutRenewals()
	sim.checkQuiet()
	sim.checkForgottenRefused()
	for _, m := range sim.remotes {
		m.kill()
	}
	for _, g := range sim.groups() {
		for _, m := range g.remaining() {
			g.history.audit.checkFeedComplete(m.process)
		}
	}
	sim.compareDisks()
	sim.clients.checkAll()
	for _, g := range sim.further {
		g.clients.checkAll()
	}
	sim.trace("end: %d entries, %v", sim.history.last(), sim.now)
	t.Logf("seed %d: %v", seed, new(summary).add(sim))
	return sim
}

// checkExpiryWithoutRenewals checks that sessions end soon after their TTLs when no
// program renews and the leader remains: none with a TTL is left. The registrations end
// too, so that the log is at rest.
func (sim *simulation) checkExpiryWithoutRenewals() {
	sim.programsStopped = true
	sim.advance(incarnationTTL + 2*longestElection)
	for _, g := range sim.groups() {
		for _, s := range sessionsOf(g.history.oracle) {
			if s.TTL != 0 {
				g.fail("session %s with a TTL of %v is alive without renewals", s.ID, time.Duration(s.TTL))
			}
		}
	}
}
