package sim

import (
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// referenceChecker replays the log through the reference model, an independent
// implementation of the same rules. Every result of an entry on any member, and
// every outcome, refusals included, must be the reference's at that index.
type referenceChecker struct {
	sim      *simulation
	model    reference.Model
	results  []uint64 // checksums, from index 2 on
	outcomes map[wire.Ticket][]*wire.Reply
	compared int // outcomes that programs received
}

func newReferenceChecker(sim *simulation) *referenceChecker {
	return &referenceChecker{sim: sim, outcomes: make(map[wire.Ticket][]*wire.Reply)}
}

// entry applies the next entry to the reference model.
func (t *referenceChecker) entry(index, term uint64, data []byte) {
	var batch *wire.Batch
	if len(data) > 0 {
		batch = new(wire.Batch)
		if err := proto.Unmarshal(data, batch); err != nil {
			t.sim.fail("decode an entry: %v", err)
		}
	}
	r := t.model.Apply(index, term, batch)
	t.results = append(t.results, resultSum(r))
	for _, o := range r.Outcomes {
		known := t.outcomes[o.Ticket]
		if len(known) == 0 || !proto.Equal(known[len(known)-1], o.Reply) {
			t.outcomes[o.Ticket] = append(known, o.Reply)
		}
	}
}

// checkResult compares a member's result of an entry.
func (t *referenceChecker) checkResult(proc *process, index uint64, r wire.Result) {
	if resultSum(r) != t.results[index-2] {
		t.sim.fail("member %d: entry %d yields %v, ended %v, keys %v, leaders %v; the reference model differs", proc.n, index, r.Outcomes, r.Ended, r.Keys, r.Leaders)
	}
}

// checkOutcome compares an outcome that a program receives with that of the
// reference model at the reply's index.
func (t *referenceChecker) checkOutcome(proc *process, ticket wire.Ticket, r *wire.Reply) {
	t.compared++
	plain := withoutDetail(r)
	for _, known := range t.outcomes[ticket] {
		if proto.Equal(known, plain) {
			return
		}
	}
	t.sim.fail("member %d: ticket %d: outcome %v; the reference model has %v", proc.n, ticket.Seq, r, t.outcomes[ticket])
}

// withoutDetail returns the reply without its text for people, which the reference
// model does not produce.
func withoutDetail(r *wire.Reply) *wire.Reply {
	switch {
	case r.GetDetail() == "", r.Code == wire.Code_CHECK_UNKNOWN, r.Code == wire.Code_CHECK_CRITICAL:
		return r
	}
	plain := proto.CloneOf(r)
	plain.Detail = ""
	return plain
}

// resultSum is a checksum of a result, without the changes of the durable state.
func resultSum(r wire.Result) uint64 {
	h := fnv.New64a()
	for _, o := range r.Outcomes {
		reply, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutDetail(o.Reply))
		fmt.Fprintf(h, "%x %d %t %x %v\n", o.Ticket.Incarnation[:], o.Ticket.Seq, o.More, reply, err)
	}
	fmt.Fprintf(h, "%x", notificationSum(r))
	return h.Sum64()
}
