package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The functions of this file encode the most frequent messages as package proto does,
// without reflection.

// CommandSize returns the size of an encoded command.
func CommandSize(c *Command) int {
	w := Writer{count: true}
	if !c.fields(&w) {
		return proto.Size(c)
	}
	return w.size
}

// EncodeCommand encodes a command. It fails if a name is not valid UTF-8.
func EncodeCommand(c *Command) ([]byte, error) {
	w := Writer{Buf: make([]byte, 0, CommandSize(c))}
	if !c.fields(&w) {
		return proto.Marshal(c)
	}
	return w.Buf, nil
}

// SubmissionSize returns the size of what AppendSubmission appends, without its prefix.
func SubmissionSize(s *Submission) int {
	w := Writer{count: true}
	s.fields(&w)
	return w.size
}

// AppendSubmission appends a submission as a field of a Batch. size is its size.
func AppendSubmission(b []byte, s *Submission, size int) []byte {
	w := Writer{Buf: b}
	w.prefix(3, size)
	s.fields(&w)
	return w.Buf
}

// The methods called fields write the fields of a message. None takes a message by an
// interface, as the writer would then move to the heap.

// fields reports false if the command is not a frequent one, or is invalid.
func (c *Command) fields(w *Writer) bool {
	switch op := c.GetOp().(type) {
	case *Command_Lock:
		w.prefix(6, op.Lock.size())
		op.Lock.fields(w)
		return utf8.ValidString(op.Lock.GetName())
	case *Command_Unlock:
		w.prefix(7, op.Unlock.size())
		op.Unlock.fields(w)
		return utf8.ValidString(op.Unlock.GetName())
	}
	return false
}

func (l *Lock) size() int {
	w := Writer{count: true}
	l.fields(&w)
	return w.size
}

func (u *Unlock) size() int {
	w := Writer{count: true}
	u.fields(&w)
	return w.size
}

func (c *Call) size() int {
	w := Writer{count: true}
	c.fields(&w)
	return w.size
}

func (l *Lock) fields(w *Writer) {
	w.String(1, l.Name)
	w.Bytes(2, l.Session)
	w.Number(3, l.Handle)
	w.Flag(4, l.Reentrant)
	w.Number(5, uint64(l.Limit))
	w.Flag(6, l.Wait)
	w.Number(7, l.Fence)
	w.Flag(8, l.Election)
	w.Bytes(9, l.Value)
	w.Flag(10, l.Lingering)
	w.Bytes(11, l.Label)
	w.Flag(12, l.Shared)
	w.Number(13, l.Share)
	w.Number(14, uint64(l.MaxHold))
	w.Flag(15, l.RefuseDeadlock)
}

func (u *Unlock) fields(w *Writer) {
	w.String(1, u.Name)
	w.Bytes(2, u.Session)
	w.Number(3, u.Handle)
	w.Number(4, u.Fence)
	w.Flag(5, u.Election)
	w.Bytes(6, u.Trace)
	w.Number(7, u.Share)
}

func (s *Submission) fields(w *Writer) {
	w.Bytes(1, s.Incarnation)
	w.Number(2, s.Floor)
	for _, c := range s.Calls {
		w.prefix(3, c.size())
		c.fields(w)
	}
	w.Number(4, s.Member)
	w.Flag(5, s.Urgent)
	w.Number(6, s.Applied)
	w.Flag(7, s.Client)
}

func (c *Call) fields(w *Writer) {
	w.Number(1, c.Seq)
	w.Bytes(2, c.Command)
}

// Writer appends the fields of a message to Buf, as package proto does if they come in the
// order of their numbers. A field that has its default value is left out.
type Writer struct {
	Buf []byte

	count bool // add up the size instead
	size  int
}

// prefix begins a field whose value is a message of that size: its fields follow.
func (w *Writer) prefix(field protowire.Number, size int) {
	if w.count {
		w.size += protowire.SizeTag(field) + protowire.SizeVarint(uint64(size))
		return
	}
	w.Buf = protowire.AppendVarint(protowire.AppendTag(w.Buf, field, protowire.BytesType), uint64(size))
}

// Number appends a field of a number.
func (w *Writer) Number(field protowire.Number, n uint64) {
	switch {
	case n == 0:
	case w.count:
		w.size += protowire.SizeTag(field) + protowire.SizeVarint(n)
	default:
		w.Buf = protowire.AppendVarint(protowire.AppendTag(w.Buf, field, protowire.VarintType), n)
	}
}

// Flag appends a field of a bool.
func (w *Writer) Flag(field protowire.Number, set bool) {
	if set {
		w.Number(field, 1)
	}
}

// Numbers appends a field of numbers, packed.
func (w *Writer) Numbers(field protowire.Number, all []uint32) {
	if len(all) == 0 {
		return
	}
	size := 0
	for _, n := range all {
		size += protowire.SizeVarint(uint64(n))
	}
	if w.prefix(field, size); w.count {
		w.size += size
		return
	}
	for _, n := range all {
		w.Buf = protowire.AppendVarint(w.Buf, uint64(n))
	}
}

// Bytes appends a field of bytes.
func (w *Writer) Bytes(field protowire.Number, of []byte) { appendField(w, field, of) }

// String appends a field of text, which must be valid UTF-8.
func (w *Writer) String(field protowire.Number, of string) { appendField(w, field, of) }

func appendField[T string | []byte](w *Writer, field protowire.Number, of T) {
	switch {
	case len(of) == 0:
	case w.count:
		w.size += protowire.SizeTag(field) + protowire.SizeBytes(len(of))
	default:
		w.Buf = protowire.AppendVarint(protowire.AppendTag(w.Buf, field, protowire.BytesType), uint64(len(of)))
		w.Buf = append(w.Buf, of...)
	}
}
