package conclave

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"google.golang.org/protobuf/proto"
)

// A group that is being deleted answers no query, as it executes no command: another member may have reported its
// deletion already.
func TestQuery_SealedGroup(t *testing.T) {
	first := machine.FirstStateOf(&fact.GroupRecord{
		Number: 3, Name: "a", Level: wire.FeatureLevel, Voters: []uint64{5}, Members: []fact.MemberRecord{{ID: 5, Level: wire.FeatureLevel}},
	})
	for _, sealed := range []bool{false, true} {
		m, err := machine.Load(func(yield func(key, value []byte) bool) {
			for _, c := range first {
				value := c.Value
				var state wire.MachineState
				if err := proto.Unmarshal(value, &state); err == nil && state.GetFollowing().GetGroup() == 3 {
					state.Following.Sealed = sealed
					value, _ = proto.Marshal(&state)
				}
				if !yield(c.Key, value) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if m.Following().Sealed != sealed {
			t.Fatalf("sealed: %t", !sealed)
		}
		_, err = beginQuery(m, machine.LockQuery{Name: "x"})()
		if errors.Is(convert(err), ErrGroupNotFound) != sealed {
			t.Errorf("sealed %t: %v", sealed, err)
		}
	}
}
