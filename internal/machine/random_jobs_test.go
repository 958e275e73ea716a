package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// Logs of jobs alone, with few keys and many requests for each, and now and then with more keys than are retained.
func TestRandom_JobsAgainstReference(t *testing.T) {
	if *seedFlag != 0 {
		runJobs(t, *seedFlag, perSeed, nil)
		return
	}
	n := min(*commands/4, 60_000) // of a million the general logs have enough jobs; these reach all by then
	if testing.Short() {
		n = min(n, 6_000)
	}
	seen := make(map[string]int)
	for seed := range uint64(n / perSeed) {
		if runJobs(t, seed+1, perSeed, seen); t.Failed() {
			return
		}
	}
	if n >= 25_000 {
		wantReached(t, seen, append(generalJobEvents, rareJobEvents...)...)
	}
}

// What happens to jobs in the logs of all commands.
var generalJobEvents = []string{
	"granted at once", "granted from the queue", "DONE", "FAILED", "NOT_STARTED", "LOST", "a run withdrawn",
	"JOB_DONE at once: DONE", "JOB_DONE at once: FAILED", "JOB_DONE at once: LOST",
	"JOB_DONE in the queue: DONE", "JOB_DONE in the queue: FAILED", "JOB_DONE in the queue: LOST",
	"FORGOTTEN", "taken over", "taken over and refused", "Every taken over", "Every delayed", "lock-delay after a lost run",
	"a job deleted", "a job in use not deleted",
}

// What happens to them only where there are many.
var rareJobEvents = []string{
	"forgotten by time: FAILED", "forgotten by time: LOST", "forgotten for a new key",
	"FORGOTTEN: below all that are retained", "BUSY: all keys are in use", "an old period forgotten",
	"a portion left", "reloaded with a portion left",
}

func wantReached(t *testing.T, seen map[string]int, events ...string) {
	t.Helper()
	t.Log(seen)
	for _, what := range events {
		if seen[what] == 0 {
			t.Errorf("%s: never, so the generator does not reach it", what)
		}
	}
}

// runJobs counts in seen what happens, unless it is nil.
func runJobs(t *testing.T, seed uint64, n int, seen map[string]int) {
	t.Helper()
	g, r := newJobLog(seed), newRig()
	level := uint32(wire.FeatureLevel)
	if seed%8 == 0 { // until a random command raises it
		level = wire.LevelSets
	}
	r.begin(level)
	if r.model.Reached = seen; seed%4 != 0 {
		r.split(1 + int(seed%3))
	}
	for g.made < n {
		data := g.entry(&r.model)
		due := reference.DueRuns(&r.model)
		if g.rand.IntN(30) == 0 || due > 0 && g.rand.IntN(4) == 0 {
			if err := r.reload(); err != nil {
				t.Fatalf("seed %d, index %d: reload: %v", seed, r.index, err)
			}
			if due > 0 && seen != nil {
				seen["reloaded with a portion left"]++
			}
		}
		if err := r.apply(data); err != nil {
			t.Fatalf("seed %d, index %d: %v\nrepeat: go test ./internal/machine -run TestRandom_Jobs -seed %d", seed, r.index, err, seed)
		}
	}
}
