package sim

import (
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// twin replays the log through the reference, which was written from the same
// rules by another hand. What any member or program is told of an entry, refusals
// included, is held against what the reference says at that index.
type twin struct {
	w        *world
	model    reference.Model
	results  []uint64 // checksums, from index 2 on
	outcomes map[wire.Ticket][]*wire.Reply
	compared int // outcomes that programs got
}

func newTwin(w *world) *twin { return &twin{w: w, outcomes: make(map[wire.Ticket][]*wire.Reply)} }

// entry gives the reference the next entry.
func (t *twin) entry(index, term uint64, data []byte) {
	var batch *wire.Batch
	if len(data) > 0 {
		batch = new(wire.Batch)
		if err := proto.Unmarshal(data, batch); err != nil {
			t.w.fail("an entry that cannot be decoded: %v", err)
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

// yielded compares what a member's machine made of an entry.
func (t *twin) yielded(l *life, index uint64, r wire.Result) {
	if resultSum(r) != t.results[index-2] {
		t.w.fail("member %d: entry %d yields %v, ended %v, keys %v, leaders %v, and the reference says otherwise", l.n, index, r.Outcomes, r.Ended, r.Keys, r.Leaders)
	}
}

// vouch compares an outcome that a program gets with what the reference said to
// that ticket at the reply's index.
func (t *twin) vouch(l *life, ticket wire.Ticket, r *wire.Reply) {
	t.compared++
	plain := wordless(r)
	for _, known := range t.outcomes[ticket] {
		if proto.Equal(known, plain) {
			return
		}
	}
	t.w.fail("member %d: ticket %d: outcome %v; the reference says %v", l.n, ticket.Seq, r, t.outcomes[ticket])
}

// wordless is the reply without its words for people, which the reference does
// not know.
func wordless(r *wire.Reply) *wire.Reply {
	switch {
	case r.GetDetail() == "", r.Code == wire.Code_CHECK_UNKNOWN, r.Code == wire.Code_CHECK_CRITICAL:
		return r
	}
	plain := proto.CloneOf(r)
	plain.Detail = ""
	return plain
}

// resultSum is a checksum of all that an entry yields but for the changes of the
// durable state.
func resultSum(r wire.Result) uint64 {
	h := fnv.New64a()
	for _, o := range r.Outcomes {
		reply, err := proto.MarshalOptions{Deterministic: true}.Marshal(wordless(o.Reply))
		fmt.Fprintf(h, "%x %d %t %x %v\n", o.Ticket.Incarnation[:], o.Ticket.Seq, o.More, reply, err)
	}
	fmt.Fprintf(h, "%x", told(r))
	return h.Sum64()
}
