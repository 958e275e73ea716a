package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// The limits of shards are those of the reference, to the last set, shard and worker, with the part that is reserved for members.
func TestLimits_OfShards(t *testing.T) {
	s := makeID("s")
	join := func(set string, count uint32, handle uint64) *wire.Command {
		return &wire.Command{Op: &wire.Command_JoinShards{JoinShards: &wire.JoinShards{Set: set, Count: count, Session: s[:], Handle: handle, Capacity: 1}}}
	}
	for name, last := range map[string]func() (most []*wire.Command){
		"sets": func() (most []*wire.Command) {
			for i := range MaxShardSets + ReservedShardSets {
				most = append(most, join(fmt.Sprintf("%05d", i), 1, 1))
			}
			return most
		},
		"shards": func() (most []*wire.Command) {
			for i := range (MaxAllShards + ReservedShards) / MaxShards {
				most = append(most, join(fmt.Sprintf("%05d", i), MaxShards, 1))
			}
			return most
		},
		"workers": func() (most []*wire.Command) {
			for i := range uint64(MaxShardWorkers) {
				most = append(most, join("x", 2, i))
			}
			return most
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.begin(wire.FeatureLevel)
			r.model.Reached = make(map[string]int)
			register := registerCommand(1, MaxTTL)
			register.GetRegister().FeatureLevel = wire.FeatureLevel
			r.applyAll(t, register, openCommand(s, MaxTTL, 0))
			most := last()
			if r.applyAll(t, most...); r.last.Outcomes[len(most)-1].Reply.Code != wire.Code_OK {
				t.Error(r.last.Outcomes[len(most)-1])
			}
			if r.applyAll(t, join("x", 2, MaxShardWorkers)); r.last.Outcomes[0].Reply.Code != wire.Code_BUSY || r.model.Reached["shards: too many "+name] != 1 {
				t.Errorf("%v, and %v was reached", r.last.Outcomes[0], r.model.Reached)
			}
			if err := r.reload(); err != nil {
				t.Error(err)
			}
		})
	}
}

// applyAll applies commands of one incarnation as an entry.
func (r *rig) applyAll(t *testing.T, commands ...*wire.Command) {
	t.Helper()
	inc := wire.ID{1}
	s := &wire.Submission{Member: 1, Incarnation: inc[:], Floor: r.index * MaxInFlight}
	for i, c := range commands {
		s.Calls = append(s.Calls, &wire.Call{Seq: s.Floor + uint64(i) + 1, Command: must(proto.Marshal(c))})
	}
	if err := r.apply(must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{s}}))); err != nil {
		t.Fatalf("index %d: %v", r.index, err)
	}
}
