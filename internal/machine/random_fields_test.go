package machine

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/conclave-go/conclave/internal/wire"
)

// The random logs set each field of each command, and the state that they lead to sets each field of what is
// stored. So a field that the machine or the reference forgets is one that the comparison misses.
func TestRandom_SetsEachField(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 commands on one goroutine: seconds, and minutes with the race detector")
	}
	set := fieldSet{"conclave.internal.v1.MachineState.epoch": true} // of a group that was restored
	for seed := range uint64(10) {
		runRandom(t, seed+1, 2_000, func(r *rig, entry []byte) {
			batch := new(wire.Batch)
			if proto.Unmarshal(entry, batch) == nil {
				for _, s := range batch.GetSubmissions() {
					for _, c := range s.GetCalls() {
						if command := new(wire.Command); proto.Unmarshal(c.GetCommand(), command) == nil {
							set.add(command.ProtoReflect())
						}
					}
				}
			}
			if r.index%3 > 0 {
				return
			}
			eachRecord(r.straight, func(_ string, r record) {
				set.add(r.state().ProtoReflect())
			})
		})
		if t.Failed() {
			return
		}
	}
	messages := wire.File_github_com_conclave_go_conclave_internal_wire_wire_proto.Messages()
	for i := range messages.Len() {
		d := messages.Get(i)
		if name := string(d.Name()); name == "Command" || strings.HasSuffix(name, "State") || strings.HasSuffix(name, "Record") {
			set.wantAll(t, d)
		}
	}
	t.Logf("%d fields", len(set))
}

// fieldSet are fields that have had a value that is not their default.
type fieldSet map[protoreflect.FullName]bool

func (s fieldSet) add(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		s[f.FullName()] = true
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				s.add(v.List().Get(i).Message())
			}
		default:
			s.add(v.Message())
		}
		return true
	})
}

func (s fieldSet) wantAll(t *testing.T, d protoreflect.MessageDescriptor) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if !s[f.FullName()] {
			t.Errorf("%s is never set", f.FullName())
		} else if f.Message() != nil {
			s.wantAll(t, f.Message())
		}
	}
}
