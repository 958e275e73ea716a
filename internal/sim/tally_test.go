package sim

import (
	"fmt"
	"time"
)

// summary is what runs of the simulator have checked.
type summary struct {
	time                time.Duration // simulated
	messages, crashes   int
	entries, outcomes   int // compared with the reference model
	operations, pending int // searched in client histories; of these: without an outcome
	partitions, unknown int
}

func (t *summary) add(sim *simulation) *summary {
	o, twin := sim.clients, sim.history.reference
	t.time += sim.now
	for _, n := range sim.traffic.messages { // order: a sum
		t.messages += n
	}
	t.crashes += sim.crashes
	t.entries += len(twin.results)
	t.outcomes += twin.compared
	t.operations += o.checked
	t.pending += o.pending
	t.partitions += o.partitions
	t.unknown += o.unknown
	return t
}

func (t summary) String() string {
	return fmt.Sprintf("%.1f min, %d messages, %d crashes; %d entries and %d outcomes equal to the reference model; "+
		"%d operations searched, %d of them without an outcome; %d of %d searches given up (unknown)",
		t.time.Minutes(), t.messages, t.crashes, t.entries, t.outcomes, t.operations, t.pending, t.unknown, t.partitions)
}
