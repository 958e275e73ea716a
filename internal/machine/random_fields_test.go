package machine

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/conclave-go/conclave/internal/wire"
)

// fieldSet are fields that have had a value that is not their default.
type fieldSet map[protoreflect.FullName]bool

func newFieldSet() fieldSet {
	return fieldSet{"conclave.internal.v1.MachineState.epoch": true, "conclave.internal.v1.GroupState.epoch": true} // of a group that was restored
}

func (s fieldSet) look(r *rig, entry []byte) {
	eachCommand(entry, func(c *wire.Command) { s.add(c.ProtoReflect()) })
	if r.index%3 == 0 {
		eachRecord(r.straight, func(_ string, r record) { s.add(r.state().ProtoReflect()) })
	}
}

// check wants that the random logs set each field of each command, and that the state that they lead to sets each field of
// what is stored. So a field that the machine or the reference forgets is one that the comparison misses.
func (s fieldSet) check(t *testing.T) {
	t.Helper()
	messages := wire.File_github_com_conclave_go_conclave_internal_wire_wire_proto.Messages()
	for i := range messages.Len() {
		d := messages.Get(i)
		if name := string(d.Name()); name == "Command" || strings.HasSuffix(name, "State") || strings.HasSuffix(name, "Record") {
			s.wantAll(t, d)
		}
	}
	t.Logf("%d fields", len(s))
}

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
