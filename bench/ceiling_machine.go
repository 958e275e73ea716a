package main

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// emptyMachine answers marked commands without doing anything. What else is in the log, such
// as registrations, is for the machine that it wraps, so that a member runs as usual.
type emptyMachine struct{ *machine.Machine }

func loadEmpty(state iter.Seq2[[]byte, []byte]) (cluster.Machine, error) {
	m, err := machine.Load(state)
	return emptyMachine{m}, err
}

// mark is the first byte of a marked command. No encoded message begins with it, as no field
// has the number 0.
const mark = 0

func isMarked(command []byte) bool { return len(command) > 0 && command[0] == mark }

var done = &wire.Reply{Code: wire.Code_OK}

// Apply implements cluster.Machine. A batch of marked commands reaches the wrapped machine
// without its submissions: then group time advances as usual, and the one change is the
// machine's own record, once for each entry. Outcomes are not kept: a member ignores the second
// outcome of a ticket.
func (m emptyMachine) Apply(index, term uint64, data []byte) wire.Result {
	var s scan
	if s.batch(data) && !s.others {
		r := m.Machine.Apply(index, term, data[:s.header])
		if r.Outcomes == nil {
			r.Outcomes = s.outcomes
		} else {
			r.Outcomes = append(r.Outcomes, s.outcomes...)
		}
		return r
	}
	return m.applyMixed(index, term, data)
}

// applyMixed applies a batch that contains commands for the wrapped machine. There are few.
func (m emptyMachine) applyMixed(index, term uint64, data []byte) wire.Result {
	var batch wire.Batch
	if proto.Unmarshal(data, &batch) != nil {
		return m.Machine.Apply(index, term, data)
	}
	var outcomes []wire.Outcome
	for _, s := range batch.Submissions {
		var rest []*wire.Call
		for _, c := range s.Calls {
			if !isMarked(c.Command) {
				rest = append(rest, c)
			} else if id, ok := wire.IDFrom(s.Incarnation); ok {
				outcomes = append(outcomes, wire.Outcome{Ticket: wire.Ticket{Incarnation: id, Seq: c.Seq}, Member: s.Member, Reply: done})
			}
		}
		s.Calls = rest
	}
	if len(outcomes) > 0 {
		data, _ = proto.Marshal(&batch) // fails for strings only, and a batch has none
	}
	r := m.Machine.Apply(index, term, data)
	r.Outcomes = append(r.Outcomes, outcomes...)
	return r
}

// scan reads an encoded wire.Batch without decoding it into messages: that would be the
// greatest part of an empty machine's time, and is not the loop's.
type scan struct {
	header   int // bytes before the first submission: a batch without submissions
	others   bool
	outcomes []wire.Outcome // of the marked commands
}

// batch reports whether data is what the scan can read.
func (s *scan) batch(data []byte) bool {
	rest := data
	for len(rest) > 0 {
		number, value, next, ok := field(rest)
		if !ok {
			return false
		}
		switch {
		case number != 3 && s.outcomes != nil: // the header is not in one piece
			return false
		case number != 3:
			s.header = len(data) - len(next)
		case !s.submission(value):
			return false
		}
		rest = next
	}
	return true
}

func (s *scan) submission(data []byte) bool {
	first := len(s.outcomes)
	var id wire.ID
	var member uint64
	for len(data) > 0 {
		number, value, next, ok := field(data)
		if !ok {
			return false
		}
		switch number {
		case 1:
			id, ok = wire.IDFrom(value)
		case 3:
			ok = s.call(value)
		case 4:
			member, _ = protowire.ConsumeVarint(value)
		}
		if !ok {
			return false
		}
		data = next
	}
	for i := range s.outcomes[first:] {
		o := &s.outcomes[first+i]
		o.Ticket.Incarnation, o.Member = id, member
	}
	return true
}

func (s *scan) call(data []byte) bool {
	o := wire.Outcome{Reply: done}
	for len(data) > 0 {
		number, value, next, ok := field(data)
		if !ok {
			return false
		}
		switch number {
		case 1:
			o.Ticket.Seq, _ = protowire.ConsumeVarint(value)
		case 2:
			s.others = s.others || !isMarked(value)
		}
		data = next
	}
	s.outcomes = append(s.outcomes, o)
	return true
}

// field returns the first field of a message: its number, the bytes of its value, and what
// follows it. ok is false if data is malformed.
func field(data []byte) (number protowire.Number, value, rest []byte, ok bool) {
	number, kind, n := protowire.ConsumeTag(data)
	if n < 0 {
		return 0, nil, nil, false
	}
	m := protowire.ConsumeFieldValue(number, kind, data[n:])
	if m < 0 {
		return 0, nil, nil, false
	}
	value = data[n : n+m]
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value)
	}
	return number, value, data[n+m:], true
}
