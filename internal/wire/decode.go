package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Decoder decodes what a machine applies most, without reflection and into memory that it
// reuses: on a busy group every member decodes each command, and package proto took a
// third of the time of Apply. It reads only the plain form, which every encoder writes:
// known fields with their types, and no message twice where proto would merge two. It passes anything else
// on to package proto, which alone decides what is valid. The zero value is ready for use.
type Decoder struct {
	batch       Batch
	submissions []*Submission
	calls       []*Call
	used        struct{ submissions, calls int }

	command Command
	lock    Command_Lock
	unlock  Command_Unlock
}

// maxKeptCalls bounds the memory that a Decoder keeps for the next batch.
const maxKeptCalls = 4096

// Batch decodes the data of an entry. What it returns refers to data and to the decoder's
// memory: it is valid until Release.
func (d *Decoder) Batch(data []byte) (*Batch, error) {
	if d.plainBatch(data) {
		return &d.batch, nil
	}
	b := new(Batch)
	return b, proto.Unmarshal(data, b)
}

// Release releases the batch. The decoder keeps no reference to its data.
func (d *Decoder) Release() {
	for _, s := range d.submissions[:d.used.submissions] {
		s.Incarnation, s.Calls = nil, nil
	}
	for _, c := range d.calls[:d.used.calls] {
		c.Command = nil
	}
	if l := d.lock.Lock; l != nil {
		l.Session, l.Label = nil, nil
	}
	if u := d.unlock.Unlock; u != nil {
		u.Session, u.Trace = nil, nil
	}
	if len(d.calls)+len(d.submissions) > maxKeptCalls {
		d.submissions, d.calls, d.batch.Submissions = nil, nil, nil
	}
	d.used.submissions, d.used.calls = 0, 0
}

// Command decodes a command. What it returns is valid until the next call, and its session,
// label and trace refer to data.
func (d *Decoder) Command(data []byte) (*Command, error) {
	if d.plainCommand(data) {
		return &d.command, nil
	}
	c := new(Command)
	return c, proto.Unmarshal(data, c)
}

// field is a field of a message: number and type in one, as on the wire, and its value.
type field struct {
	tag    uint64
	number uint64
	bytes  []byte
}

// next reads a field. ok is false if it is malformed or of another type than number or bytes.
func next(data []byte) (f field, rest []byte, ok bool) {
	tag, n := protowire.ConsumeVarint(data)
	if n < 0 {
		return f, nil, false
	}
	f.tag, data = tag, data[n:]
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(data)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(data)
	default:
		return f, nil, false
	}
	if n < 0 {
		return f, nil, false
	}
	return f, data[n:], true
}

// Tags of numbers are 8 times the field number in wire.proto, those of bytes 2 more.

func (d *Decoder) plainBatch(data []byte) bool {
	b := &d.batch
	b.Version, b.Time, b.Submissions = 0, 0, b.Submissions[:0]
	d.used.submissions, d.used.calls = 0, 0
	for len(data) > 0 {
		f, rest, ok := next(data)
		if data = rest; !ok {
			return false
		}
		switch f.tag {
		case 8:
			b.Version = uint32(f.number)
		case 16:
			b.Time = int64(f.number)
		case 24 + 2:
			s := reuse(&d.submissions, &d.used.submissions)
			if !d.plainSubmission(s, f.bytes) {
				return false
			}
			b.Submissions = append(b.Submissions, s)
		default:
			return false
		}
	}
	return true
}

func (d *Decoder) plainSubmission(s *Submission, data []byte) bool {
	s.Incarnation, s.Floor, s.Calls, s.Member, s.Urgent, s.Applied, s.Client = nil, 0, nil, 0, false, 0, false
	first := d.used.calls
	for len(data) > 0 {
		f, rest, ok := next(data)
		if data = rest; !ok {
			return false
		}
		switch f.tag {
		case 8 + 2:
			s.Incarnation = f.bytes
		case 16:
			s.Floor = f.number
		case 24 + 2:
			if !plainCall(reuse(&d.calls, &d.used.calls), f.bytes) {
				return false
			}
		case 32:
			s.Member = f.number
		case 40:
			s.Urgent = f.number != 0
		case 48:
			s.Applied = f.number
		case 56:
			s.Client = f.number != 0
		default:
			return false
		}
	}
	s.Calls = d.calls[first:d.used.calls:d.used.calls]
	return true
}

func plainCall(c *Call, data []byte) bool {
	c.Seq, c.Command = 0, nil
	for len(data) > 0 {
		f, rest, ok := next(data)
		if data = rest; !ok {
			return false
		}
		switch f.tag {
		case 8:
			c.Seq = f.number
		case 16 + 2:
			c.Command = f.bytes
		default:
			return false
		}
	}
	return true
}

// reuse returns the next of the messages, a new one if all are used.
func reuse[T any](all *[]*T, used *int) *T {
	if *used == len(*all) {
		*all = append(*all, new(T))
	}
	*used++
	return (*all)[*used-1]
}

func (d *Decoder) plainCommand(data []byte) bool {
	f, rest, ok := next(data)
	if !ok || len(rest) > 0 {
		return false
	}
	switch f.tag {
	case 48 + 2:
		if d.lock.Lock == nil {
			d.lock.Lock = new(Lock)
		}
		d.command.Op = &d.lock
		return plainLock(d.lock.Lock, f.bytes)
	case 56 + 2:
		if d.unlock.Unlock == nil {
			d.unlock.Unlock = new(Unlock)
		}
		d.command.Op = &d.unlock
		return plainUnlock(d.unlock.Unlock, f.bytes)
	}
	return false
}

func plainLock(l *Lock, data []byte) bool {
	l.Name, l.Session, l.Handle, l.Reentrant, l.Limit, l.Wait, l.Fence, l.Lingering, l.Label = "", nil, 0, false, 0, false, 0, false, nil
	l.Shared, l.Share, l.RefuseDeadlock, l.MaxHold = false, 0, false, 0
	for len(data) > 0 {
		f, rest, ok := next(data)
		if data = rest; !ok {
			return false
		}
		switch f.tag {
		case 8 + 2:
			if !utf8.Valid(f.bytes) {
				return false
			}
			l.Name = string(f.bytes)
		case 16 + 2:
			l.Session = f.bytes
		case 24:
			l.Handle = f.number
		case 32:
			l.Reentrant = f.number != 0
		case 40:
			l.Limit = uint32(f.number)
		case 48:
			l.Wait = f.number != 0
		case 56:
			l.Fence = f.number
		case 80:
			l.Lingering = f.number != 0
		case 88 + 2:
			l.Label = f.bytes
		case 96:
			l.Shared = f.number != 0
		case 104:
			l.Share = f.number
		case 120:
			l.RefuseDeadlock = f.number != 0
		case 112:
			l.MaxHold = int64(f.number)
		default: // an election's also: a machine keeps the value
			return false
		}
	}
	return true
}

func plainUnlock(u *Unlock, data []byte) bool {
	u.Name, u.Session, u.Handle, u.Fence, u.Election, u.Trace = "", nil, 0, 0, false, nil
	u.Share = 0
	for len(data) > 0 {
		f, rest, ok := next(data)
		if data = rest; !ok {
			return false
		}
		switch f.tag {
		case 8 + 2:
			if !utf8.Valid(f.bytes) {
				return false
			}
			u.Name = string(f.bytes)
		case 16 + 2:
			u.Session = f.bytes
		case 24:
			u.Handle = f.number
		case 32:
			u.Fence = f.number
		case 40:
			u.Election = f.number != 0
		case 48 + 2:
			u.Trace = f.bytes
		case 56:
			u.Share = f.number
		default:
			return false
		}
	}
	return true
}
