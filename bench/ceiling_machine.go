package main

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// emptyMachine answers marked commands without doing anything. What else is in the log, such
// as registrations, is for the machine that it wraps, so that a member runs as usual.
type emptyMachine struct {
	*machine.Machine
	decoder wire.Decoder
}

func loadEmpty(state iter.Seq2[[]byte, []byte]) (cluster.Machine, error) {
	m, err := machine.Load(state)
	return &emptyMachine{Machine: m}, err
}

// mark is the first byte of a marked command. No encoded message begins with it, as no field
// has the number 0.
const mark = 0

func isMarked(command []byte) bool { return len(command) > 0 && command[0] == mark }

var done = &wire.Reply{Code: wire.Code_OK}

// Apply implements cluster.Machine. The wrapped machine gets a batch without the marked
// commands: then group time advances as usual, and if nothing is left, the one change is the
// machine's own record. Outcomes of marked commands are not kept: a member ignores the second
// outcome of a ticket.
func (m *emptyMachine) Apply(index, term uint64, data []byte) fact.Result {
	batch, err := m.decoder.Batch(data)
	defer m.decoder.Release()
	if err != nil || len(data) == 0 {
		return m.Machine.Apply(index, term, data)
	}
	rest := &wire.Batch{Version: batch.Version, Time: batch.Time}
	var outcomes []fact.Outcome
	for _, s := range batch.Submissions {
		id, ok := wire.IDFrom(s.Incarnation)
		outcomes = slices.Grow(outcomes, len(s.Calls))
		var others []*wire.Call
		for _, c := range s.Calls {
			if ok && isMarked(c.Command) {
				outcomes = append(outcomes, fact.Outcome{Ticket: wire.Ticket{Incarnation: id, Seq: c.Seq}, Member: s.Member, Reply: done})
			} else {
				others = append(others, c)
			}
		}
		if len(others) > 0 {
			s.Calls = others
			rest.Submissions = append(rest.Submissions, s)
		}
	}
	data, err = proto.Marshal(rest)
	if err != nil {
		return fact.Result{} // fails for strings only, and a batch has none
	}
	r := m.Machine.Apply(index, term, data)
	r.Outcomes = append(r.Outcomes, outcomes...)
	return r
}
