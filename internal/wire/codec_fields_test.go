package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What encodes and decodes without reflection names the fields one by one: none that the messages have is
// missing there. A field that only a generator of random messages lacks as well would pass the other tests.
func TestCodec_EachField(t *testing.T) {
	d := new(Decoder)
	commands := eachField(new(Command), func(c *Command) {
		want := must(proto.Marshal(c))
		if got, err := EncodeCommand(c); err != nil || !bytes.Equal(got, want) || CommandSize(c) != len(want) {
			t.Errorf("%v\nas %x, %v, with size %d\nwant %x", c, got, err, CommandSize(c), want)
		}
		checkCommand(t, d, want)
		d.Release()
	})
	batches := eachField(new(Batch), func(b *Batch) {
		checkBatch(t, d, must(proto.Marshal(b)))
		for _, s := range b.GetSubmissions() {
			want := must(proto.Marshal(&Batch{Submissions: []*Submission{s}}))
			if got := AppendSubmission(nil, s, SubmissionSize(s)); !bytes.Equal(got, want) {
				t.Errorf("%v\nas %x\nwant %x", s, got, want)
			}
		}
	})
	t.Logf("%d commands and %d batches with one field each", commands, batches)
}

// eachField calls check with a message that has one field set, for each field of the message and of those in
// it, and returns how many there are.
func eachField[M proto.Message](m M, check func(M)) (n int) {
	var each func(protoreflect.Message)
	each = func(in protoreflect.Message) {
		checked := func() { n++; check(m) }
		fields := in.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			switch {
			case f.IsList() && f.Message() != nil:
				item := in.Mutable(f).List().AppendMutable().Message()
				checked()
				each(item)
			case f.IsList():
				in.Mutable(f).List().Append(valueOf(f))
				checked()
			case f.Message() != nil:
				part := in.Mutable(f).Message()
				checked()
				each(part)
			default:
				in.Set(f, valueOf(f))
				checked()
			}
			in.Clear(f)
		}
	}
	each(m.ProtoReflect())
	return n
}

// valueOf is a value of a field that is not its default.
func valueOf(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-3)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-3)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(300)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(300)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("value")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("value"))
	}
	panic("a kind of field that no message has yet: " + f.Kind().String())
}
