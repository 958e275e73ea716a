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
	if field, op := frequent(c); op != nil {
		return protowire.SizeTag(field) + protowire.SizeBytes(size(op))
	}
	return proto.Size(c)
}

// EncodeCommand encodes a command. It fails if a name is not valid UTF-8.
func EncodeCommand(c *Command) ([]byte, error) {
	if field, op := frequent(c); op != nil && utf8.ValidString(op.GetName()) {
		return appendNested(make([]byte, 0, CommandSize(c)), field, op, size(op)), nil
	}
	return proto.Marshal(c)
}

// SubmissionSize returns the size of what AppendSubmission appends, without its prefix.
func SubmissionSize(s *Submission) int { return size(s) }

// AppendSubmission appends a submission as a field of a Batch. size is its size.
func AppendSubmission(b []byte, s *Submission, size int) []byte {
	const submissions = 3
	return appendNested(b, submissions, s, size)
}

// operation is a message of a command with a name.
type operation interface {
	message
	GetName() string
}

// frequent returns the operation of a frequent command, and its field; nil for others.
func frequent(c *Command) (field protowire.Number, op operation) {
	switch op := c.GetOp().(type) {
	case *Command_Lock:
		return 6, op.Lock
	case *Command_Unlock:
		return 7, op.Unlock
	}
	return 0, nil
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
}

func (u *Unlock) fields(w *Writer) {
	w.String(1, u.Name)
	w.Bytes(2, u.Session)
	w.Number(3, u.Handle)
	w.Number(4, u.Fence)
	w.Flag(5, u.Election)
}

func (s *Submission) fields(w *Writer) {
	w.Bytes(1, s.Incarnation)
	w.Number(2, s.Floor)
	for _, c := range s.Calls {
		w.message(3, c)
	}
	w.Number(4, s.Member)
	w.Flag(5, s.Urgent)
	w.Number(6, s.Applied)
}

func (c *Call) fields(w *Writer) {
	w.Number(1, c.Seq)
	w.Bytes(2, c.Command)
}

// message is a message that passes its fields, in the order of their numbers, to a writer.
type message interface{ fields(*Writer) }

// Writer appends the fields of a message to Buf, as package proto does if they come in the
// order of their numbers. A field that has its default value is left out.
type Writer struct {
	Buf []byte

	count bool // add up the size instead
	size  int
}

func size(m message) int {
	w := Writer{count: true}
	m.fields(&w)
	return w.size
}

// appendNested appends a message of that size as a field of another one.
func appendNested(b []byte, field protowire.Number, m message, size int) []byte {
	w := Writer{Buf: protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))}
	m.fields(&w)
	return w.Buf
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

func (w *Writer) message(field protowire.Number, m message) {
	n := size(m)
	if w.count {
		w.size += protowire.SizeTag(field) + protowire.SizeBytes(n)
		return
	}
	w.Buf = appendNested(w.Buf, field, m, n)
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
