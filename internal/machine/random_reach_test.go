package machine

import (
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// reachWatch looks for what the random logs must reach, as a comparison of what they do not reach proves nothing.
type reachWatch struct {
	fields fieldSet
	cycles cycleWatch
	sets   map[string]int
	jobs   map[string]int
}

func newReachWatch() *reachWatch {
	return &reachWatch{fields: newFieldSet(), cycles: cycleWatch{refused: make(map[uint32]int)}, sets: make(map[string]int), jobs: make(map[string]int)}
}

// begin returns what looks at each entry of one more log.
func (w *reachWatch) begin(log uint64) []func(r *rig, entry []byte) {
	sets := setWatch{seen: w.sets, queued: make(map[wire.Ticket]bool)}
	jobs := func(r *rig, _ []byte) { r.model.Reached = w.jobs }
	looks := []func(r *rig, entry []byte){w.cycles.look, sets.look, jobs}
	if log < 10 { // enough, and it looks at each record
		looks = append(looks, w.fields.look)
	}
	return looks
}

func (w *reachWatch) check(t *testing.T) {
	w.fields.check(t)
	w.cycles.check(t)
	checkSets(t, w.sets)
	wantReached(t, w.jobs, append(slices.Concat(generalJobEvents, generalShardEvents, groupEvents), "Every taken over in its time", "not reserved: a cycle", "a share behind a waiter")...) // in the others, one waits for it
}
