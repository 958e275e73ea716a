package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// received calls visit with each message that another process can send, alone or within another.
func received(visit func(protoreflect.MessageDescriptor)) {
	seen := make(map[protoreflect.FullName]bool)
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		visit(m)
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	for _, m := range Received() {
		walk(m.ProtoReflect().Descriptor())
	}
}

// Every field that can grow, of every message that another process can send, has a bound by a
// name; what is one beyond it is refused before it is decoded, and what is at it is not.
func TestBounds_EveryField(t *testing.T) {
	stated := Bounds()
	maps.Copy(stated, commandBounds())
	received(func(m protoreflect.MessageDescriptor) {
		if n := slices.MaxFunc(append(shapes()[m.FullName()].fields, shapeField{}), byCounted).counted; n > maxCounted {
			t.Errorf("%s has %d lists and messages: raise maxCounted", m.Name(), n)
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := fmt.Sprintf("%s.%s", m.Name(), f.Name())
			text := f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
			switch b, ok := stated[name]; {
			case f.IsMap(), f.Kind() == protoreflect.GroupKind:
				t.Errorf("%s: of a kind that Check does not know", name)
			case !f.IsList() && !text:
			case !ok, text && b.Bytes == 0, f.IsList() && b.Count == 0:
				t.Errorf("%s has no bound: what another process sends in it must have one", name)
			default:
				checkBound(t, shapes()[m.FullName()], f, b)
			}
			delete(stated, name)
		}
	})
	for name := range stated {
		t.Errorf("there is a bound for %s, which no other process can send", name)
	}
}

func byCounted(a, b shapeField) int { return a.counted - b.counted }

func checkBound(t *testing.T, s *shape, f protoreflect.FieldDescriptor, b Bound) {
	t.Helper()
	value := func(n int) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), make([]byte, n))
	}
	refuses := func(beyond bool, body []byte) {
		if err := s.check(body); errors.Is(err, ErrBound) != beyond {
			t.Errorf("%s: beyond its bound: %t, but %v", f.FullName(), beyond, err)
		}
	}
	if b.Bytes > 0 {
		refuses(false, value(b.Bytes))
		refuses(true, value(b.Bytes+1))
	}
	if f.IsList() {
		var body []byte
		for range b.Count {
			body = append(body, value(0)...)
		}
		refuses(false, body)
		refuses(true, append(body, value(0)...))
	}
}

// A decoder merges a message that occurs twice, so its lists would be as long as both.
func TestCheck_MergedMessages(t *testing.T) {
	half := &ClientFrame{Body: &ClientFrame_Attach{Attach: &Attach{Sessions: make([][]byte, MaxAttached/2+1)}}}
	body, err := proto.Marshal(half)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(half, body); err != nil {
		t.Error(err)
	}
	if err := Check(half, append(body, body...)); !errors.Is(err, ErrBound) {
		t.Errorf("two halves are accepted: %v", err)
	}
}

// What a list takes in memory is in proportion to what it takes on the wire, or to its bound.
func TestDecode_EmptyElements(t *testing.T) {
	for _, m := range Received() {
		body := make([]byte, 0, MaxFrame)
		for len(body) < MaxFrame-8 { // submissions, pairs, outcomes: as many as fit
			inner := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), nil)
			body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), inner)
		}
		if err := Decode(body, m); err == nil && proto.Size(m) > MaxFrame {
			t.Errorf("%T is decoded as %d bytes", m, proto.Size(m))
		}
	}
}

// A message that is not among those received is refused, so that it gets bounds.
func TestDecode_Unknown(t *testing.T) {
	if err := Decode(nil, new(MachineState)); !errors.Is(err, ErrBound) {
		t.Errorf("a message without bounds: %v", err)
	}
	if err := Decode([]byte{0xff}, new(Hello)); err == nil || errors.Is(err, ErrBound) {
		t.Errorf("malformed: %v", err)
	}
}

func BenchmarkCheck_Submission(b *testing.B) {
	s := &Submission{Incarnation: make([]byte, 16), Floor: 1 << 30, Member: 1 << 60}
	for i := range 64 {
		s.Calls = append(s.Calls, &Call{Seq: uint64(1<<30 + i), Command: make([]byte, 60)})
	}
	f := &Frame{Body: &Frame_Submission{Submission: s}}
	body, err := proto.Marshal(f)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			_ = Check(f, body)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_ = proto.Unmarshal(body, new(Frame))
		}
	})
}
