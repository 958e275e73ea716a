package inbox

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Of several entries in flight each has its own commands: when the first is applied, those
// of the second are still known as being in flight.
func TestInbox_DuplicatesOfEachEntry(t *testing.T) {
	var b Inbox
	command := func(seq uint64) *wire.Submission {
		return &wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: seq}}}
	}
	proposed := func() []uint64 {
		data, err := b.AppendBatch(nil, 1, 0, MaxBatchBytes)
		if err != nil {
			t.Fatal(err)
		}
		batch := new(wire.Batch)
		if err := proto.Unmarshal(data, batch); err != nil {
			t.Fatal(err)
		}
		var seqs []uint64
		for _, s := range batch.GetSubmissions() {
			for _, c := range s.GetCalls() {
				seqs = append(seqs, c.GetSeq())
			}
		}
		return seqs
	}
	b.Add(2, command(1))
	proposed()
	b.Add(2, command(2))
	proposed()
	b.Applied(10)
	applied := command(1)
	applied.Applied = 10 // a snapshot has skipped the outcome
	b.Add(2, applied)
	inFlight := command(2)
	inFlight.Applied = 10
	b.Add(2, inFlight)
	if got := proposed(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("proposes %d again", got)
	}
	b.Refused()
	b.Dropped()
	b.Add(2, command(2))
	if got := proposed(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("proposes %d after all was dropped", got)
	}
}
