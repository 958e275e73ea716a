package machine

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/conclave-go/conclave/internal/wire"
)

// records has the message of each kind of record.
func records() map[string]proto.Message {
	return map[string]proto.Message{
		machineKey: (*wire.MachineState)(nil), "M" + be(9): (*wire.MemberState)(nil), "c" + be(1) + "x": (*wire.CheckRecord)(nil),
		"i" + unknown: (*wire.IncarnationState)(nil), "s" + unknown: (*wire.SessionState)(nil), "lz": (*wire.LockState)(nil),
		"ez": (*wire.LockState)(nil), "Sz": (*wire.SemaphoreState)(nil), "py\x00" + be(5): (*wire.PermitState)(nil),
		"wlx\x00" + be(5): (*wire.WaiterState)(nil), "kz": (*wire.KeyState)(nil), "dz": (*wire.KeyDelayState)(nil),
		"t" + soundInc + be(3): (*wire.Reply)(nil), "x" + unknown: (*wire.EndedClientState)(nil),
		"ny\x00" + be(5): (*wire.SlotState)(nil),
	}
}

// A record of 4 MiB has nothing but empty elements of a repeated field, for each such field of
// each kind of record. It is refused, and takes no more than its length.
func TestLoad_RepeatedFieldsBounded(t *testing.T) {
	const length = 4 << 20
	found := 0
	for key, message := range records() {
		fields := message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			switch nested := field.Message(); {
			case field.IsList():
				found++
				loadRepeated(t, key, field, bytes.Repeat(elementOf(field, nil), length/2))
			case nested != nil:
				for i := range nested.Fields().Len() {
					inner := nested.Fields().Get(i)
					if inner.IsList() {
						found++
						loadRepeated(t, key, inner, elementOf(field, bytes.Repeat(elementOf(inner, nil), length/3)))
						parts := elementOf(field, bytes.Repeat(elementOf(inner, nil), wire.MaxWaits))
						loadRepeated(t, key, inner, bytes.Repeat(parts, length/len(parts)))
					}
					if inner.Message() != nil {
						withoutLists(t, inner.Message())
					}
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("%d repeated fields", found)
	}
}

func elementOf(field protoreflect.FieldDescriptor, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field.Number(), protowire.BytesType), value)
}

// loadRepeated loads a record with too many elements of a field.
func loadRepeated(t *testing.T, key string, field protoreflect.FieldDescriptor, record []byte) {
	t.Helper()
	d := roomyDisk()
	d[key] = record
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Load(d.pairs())
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("%s: %v", field.FullName(), err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > uint64(len(record)) {
		t.Errorf("%s: a record of %d bytes took %d", field.FullName(), len(record), taken)
	}
}

// withoutLists checks that a message within a record repeats nothing: bounded sees its fields
// no more than once.
func withoutLists(t *testing.T, message protoreflect.MessageDescriptor) {
	t.Helper()
	for i := range message.Fields().Len() {
		if field := message.Fields().Get(i); field.IsList() || field.IsMap() {
			t.Errorf("%s is repeated within a record: bound it before it is decoded", field.FullName())
		} else if field.Message() != nil {
			withoutLists(t, field.Message())
		}
	}
}
