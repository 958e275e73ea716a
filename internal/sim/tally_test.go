package sim

import (
	"fmt"
	"time"
)

// tally is what runs of the simulator have checked.
type tally struct {
	time                time.Duration // of the worlds
	messages, crashes   int
	entries, outcomes   int // compared with the reference
	operations, open    int // checked from outside; of these: without outcome
	partitions, tooHard int
}

func (t *tally) add(w *world) *tally {
	o, twin := w.outside, w.history.twin
	t.time += w.now
	for _, n := range w.traffic.messages { // order: a sum
		t.messages += n
	}
	t.crashes += w.crashes
	t.entries += len(twin.results)
	t.outcomes += twin.compared
	t.operations += o.checked
	t.open += o.open
	t.partitions += o.partitions
	t.tooHard += o.unknown
	return t
}

func (t tally) String() string {
	return fmt.Sprintf("%.1f min, %d messages, %d crashes; %d entries and %d outcomes as in the reference; "+
		"%d operations checked from outside, %d of them without outcome; %d of %d searches given up (unknown)",
		t.time.Minutes(), t.messages, t.crashes, t.entries, t.outcomes, t.operations, t.open, t.tooHard, t.partitions)
}
