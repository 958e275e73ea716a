package sim

import (
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/reference"
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
	c := &referenceChecker{sim: sim, model: reference.Model{Level: sim.firstLevel}, outcomes: make(map[wire.Ticket][]*wire.Reply)}
	if r := sim.record; r != nil {
		reference.Further(&c.model, r.Number, r.Created, r.Level, r.Fences, r.Wanted, r.Voters, r.Members)
	}
	return c
}

// entry applies the next entry to the reference model.
func (c *referenceChecker) entry(index, term uint64, data []byte) {
	if *plain {
		return
	}
	var batch *wire.Batch
	if len(data) > 0 {
		batch = new(wire.Batch)
		if err := proto.Unmarshal(data, batch); err != nil {
			c.sim.fail("decode an entry: %v", err)
		}
	}
	r := c.model.Apply(index, term, batch)
	c.results = append(c.results, resultSum(r))
	for _, o := range r.Outcomes {
		expected := c.outcomes[o.Ticket]
		if len(expected) == 0 || !proto.Equal(expected[len(expected)-1], o.Reply) {
			c.outcomes[o.Ticket] = append(expected, o.Reply)
		}
	}
}

// checkResult compares a member's result of an entry.
func (c *referenceChecker) checkResult(proc *process, index uint64, r fact.Result) {
	if !*plain && resultSum(r) != c.results[index-2] {
		c.sim.fail("member %d: entry %d yields %v, ended %v, keys %v, leaders %v; the reference model differs", proc.n, index, r.Outcomes, r.Ended, r.Keys, r.Leaders)
	}
}

// checkOutcome compares an outcome that a program receives with that of the
// reference model at the reply's index.
func (c *referenceChecker) checkOutcome(proc *process, ticket wire.Ticket, r *wire.Reply) {
	c.compared++
	bare := withoutDetail(r)
	if *plain {
		return
	}
	for _, expected := range c.outcomes[ticket] {
		if proto.Equal(expected, bare) {
			return
		}
	}
	c.sim.fail("member %d: ticket %d: outcome %v; the reference model has %v", proc.n, ticket.Seq, r, c.outcomes[ticket])
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
func resultSum(r fact.Result) uint64 {
	h := fnv.New64a()
	for _, o := range r.Outcomes {
		reply, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutDetail(o.Reply))
		fmt.Fprintf(h, "%x %d %t %x %v\n", o.Ticket.Incarnation[:], o.Ticket.Seq, o.More, reply, err)
	}
	fmt.Fprintf(h, "%x", notificationSum(r))
	return h.Sum64()
}
