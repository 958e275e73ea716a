package core

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Of several entries in flight each has its own commands: when the first is applied, those
// of the second are still known as being in flight.
func TestPropose_DuplicatesOfEachEntry(t *testing.T) {
	var b inbox
	proposed := func() []uint64 {
		data, err := b.appendBatch(nil, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		batch := new(wire.Batch)
		if err := proto.Unmarshal(data, batch); err != nil {
			t.Fatal(err)
		}
		return commands([]*wire.Batch{batch})
	}
	b.add(2, command(1))
	proposed()
	b.add(2, command(2))
	proposed()
	b.applied(10)
	applied := command(1)
	applied.Applied = 10 // a snapshot has skipped the outcome
	b.add(2, applied)
	inFlight := command(2)
	inFlight.Applied = 10
	b.add(2, inFlight)
	if got := proposed(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("proposes %d again", got)
	}
	b.refused()
	b.dropped()
	b.add(2, command(2))
	if got := proposed(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("proposes %d after all was dropped", got)
	}
}
