package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// Logs of few names and many shares, of which an entry grants one or two: what is left for the next entries meets sets,
// reservations, ends of each kind, and reloads.
func TestRandom_PortionsAgainstReference(t *testing.T) {
	if *seedFlag != 0 {
		runPortions(t, *seedFlag, perSeed)
		return
	}
	n := *commands / 20 // each entry is checked as often, and fewer of them reach as much
	if testing.Short() {
		n = min(n, 2_000)
	}
	for seed := range uint64(n / perSeed) {
		if runPortions(t, seed+5, perSeed); t.Failed() {
			return
		}
	}
}

// The logs have shares left for the next entries while each of portionEvents happens.
func TestRandom_ReachesPortions(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds on one goroutine, and minutes with the race detector")
	}
	const first, most = 86, 60 // seeds; from the first one on, few reach all
	w := portionWatch{seen: make(map[string]int)}
	for seed := uint64(first); len(w.missing()) > 0 && seed < first+most; seed++ {
		w.due, w.reloads, w.fence = nil, 0, 0
		if runPortions(t, seed, perSeed, w.look); t.Failed() {
			return
		}
	}
	t.Log(w.seen)
	for _, what := range w.missing() {
		t.Errorf("%s: never, so the generator does not reach it", what)
	}
}

// maxPortionVisits is far above what an entry of these logs looks at, and below what one does that goes on for ever.
const maxPortionVisits = 5_000

// runPortions calls each behind each entry.
func runPortions(t *testing.T, seed uint64, n int, each ...func(r *rig, entry []byte)) {
	t.Helper()
	g, r := newPortionLog(seed), newRig()
	level := uint32(wire.FeatureLevel)
	if seed%8 == 0 { // until a random command raises it
		level = wire.LevelBounds
	}
	r.begin(level)
	r.split(1 + int(seed%2))
	for g.made < n {
		data := g.entry(&r.model)
		if g.rand.IntN(30) == 0 || r.straight.portions.Len() > 0 && g.rand.IntN(6) == 0 {
			if err := r.reload(); err != nil {
				t.Fatalf("seed %d, index %d: reload: %v", seed, r.index, err)
			}
		}
		if err := r.apply(data); err != nil {
			t.Fatalf("seed %d, index %d: %v\nrepeat: go test ./internal/machine -run TestRandom_Portions -seed %d", seed, r.index, err, seed)
		}
		if r.visits > maxPortionVisits {
			t.Fatalf("seed %d, index %d: the entry looks at %d elements", seed, r.index, r.visits)
		}
		for _, f := range each {
			f(r, data)
		}
	}
}
