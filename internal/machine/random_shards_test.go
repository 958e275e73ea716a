package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// Logs of shards alone: few sets, the workers of which come back under their names, or do not.
func TestRandom_ShardsAgainstReference(t *testing.T) {
	if *seedFlag != 0 {
		runShards(t, *seedFlag, perSeed, nil)
		return
	}
	n := min(*commands/4, 60_000) // of a million the general logs have enough
	if testing.Short() {
		n = min(n, 6_000)
	}
	seen := make(map[string]int)
	for seed := range uint64(n / perSeed) {
		if runShards(t, seed+1, perSeed, seen); t.Failed() {
			return
		}
	}
	if n >= 25_000 {
		wantReached(t, seen, append(generalShardEvents, rareShardEvents...)...)
	}
}

// What happens to sets of shards in the logs of all commands.
var generalShardEvents = []string{
	"shards: a new worker", "shards: a join again", "shards: a leave", "shards: a release", "shards: a release ignored", "shards: a release with a lock-delay",
	"shards: taken over", "shards: taken over in an attached session", "shards: a claim", "shards: a grant", "shards: a recall", "shards: refused for the count",
	"shards: a change of count", "shards: the end of a change", "shards: expired", "shards: expired at once", "shards: the end of a shard's lock-delay", "shards: a set removed",
}

// What happens to them only where there are many.
var rareShardEvents = []string{
	"shards: taken over after it has expired", "shards: taken over in its lock-delay", "shards: the end of a worker's lock-delay", "shards: unclaimed, and its worker leaves",
	"shards: a change of count by a join", "shards: refused for another change", "shards: as many moves as there may be", "shards: released by a join", "shards: deserted",
	"shards: attached, and its worker leaves", "shards: a portion of expired ones left",
	"shards: a portion left", "shards: reloaded with a portion left", "shards: balanced",
}

// runShards counts in seen what happens, unless it is nil.
func runShards(t *testing.T, seed uint64, n int, seen map[string]int) {
	t.Helper()
	g, r := newShardLog(seed), newRig()
	level := uint32(wire.FeatureLevel)
	if seed%8 == 0 { // until a random command raises it
		level = wire.LevelJobs
	}
	r.begin(level)
	if seen == nil {
		seen = make(map[string]int)
	}
	if r.model.Reached = seen; seed%4 != 0 {
		r.split(1 + int(seed%3)*3)
	}
	for g.made < n {
		data := g.entry(&r.model)
		due := reference.DueShardSets(&r.model)
		if g.rand.IntN(30) == 0 || due > 0 && g.rand.IntN(4) == 0 {
			if err := r.reload(); err != nil {
				t.Fatalf("seed %d, index %d: reload: %v", seed, r.index, err)
			}
			if due > 0 {
				seen["shards: reloaded with a portion left"]++
			}
		}
		if err := r.apply(data); err != nil {
			t.Fatalf("seed %d, index %d: %v\nrepeat: go test ./internal/machine -run TestRandom_Shards -seed %d", seed, r.index, err, seed)
		}
	}
}
