package sim

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// entry audits one entry; whole is its result when it is applied in one piece.
func (a *audit) entry(index, term uint64, data []byte, whole fact.Result) {
	var sum fact.Result
	planned, parts := false, a.split(data)
	for i, p := range parts {
		var r fact.Result
		if planned {
			r = a.applyAgain(index, term, parts[:i+1], &sum)
		} else {
			r = a.m.Apply(index, term, p.data)
			appendResult(&sum, r)
			planned = a.sim.faults.shards && hasPlanned(r)
		}
		a.command(p, r)
	}
	same := slices.EqualFunc(sum.Outcomes, whole.Outcomes, func(a, b fact.Outcome) bool {
		return a.Ticket == b.Ticket && a.More == b.More && proto.Equal(withoutTrace(a.Reply, planned), withoutTrace(b.Reply, planned))
	})
	if !same || notificationSum(sum) != notificationSum(whole) {
		a.sim.fail("entry %d: result %v in one piece, %v one command at a time", index, whole, sum)
	}
	a.compareKeys()
	if a.sim.faults.shards {
		a.shards.entry(whole.Shards)
		for _, c := range whole.Changes {
			if a.state[string(c.Key)] = c.Value; c.Value == nil {
				delete(a.state, string(c.Key))
			}
		}
	}
}

// appendResult adds the effects of the next part of an entry.
func appendResult(sum *fact.Result, r fact.Result) {
	for _, e := range r.Ended {
		e.Outcomes += len(sum.Outcomes)
		sum.Ended = append(sum.Ended, e)
	}
	sum.Outcomes = append(sum.Outcomes, r.Outcomes...)
	sum.Keys = append(sum.Keys, r.Keys...)
	sum.Leaders = append(sum.Leaders, r.Leaders...)
	sum.Shards = append(sum.Shards, r.Shards...)
}

// hasPlanned reports whether a part of an entry has changed a set of shards. Sets are planned once, at the end of the entry: what
// follows in the same entry has to be applied together with this.
func hasPlanned(r fact.Result) bool {
	return len(r.Shards) > 0 || slices.ContainsFunc(r.Changes, func(c wire.Change) bool {
		return c.Key[0] == 'a' || c.Key[0] == 'b' || c.Key[0] == 'f'
	})
}

// applyAgain applies the first parts of an entry together, on a machine in the state before it, and returns what the last of them adds.
// sum is the result of those before, and of all afterwards. The plan of the shards in it is not that of the whole entry but for the last part.
func (a *audit) applyAgain(index, term uint64, parts []part, sum *fact.Result) fact.Result {
	m, err := machine.Load(func(yield func(key, value []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(a.state)) {
			if !yield([]byte(k), a.state[k]) {
				return
			}
		}
	})
	if err != nil {
		a.sim.fail("load the state before entry %d: %v", index, err)
	}
	a.m = m
	all := m.Apply(index, term, a.join(parts))
	more := fact.Result{
		Outcomes: slices.Clone(all.Outcomes[len(sum.Outcomes):]), Ended: slices.Clone(all.Ended[len(sum.Ended):]),
		Keys: all.Keys[len(sum.Keys):], Leaders: all.Leaders[len(sum.Leaders):], Shards: all.Shards,
	}
	for i := range more.Ended {
		more.Ended[i].Outcomes -= len(sum.Outcomes)
	}
	*sum = all
	return more
}

// withoutTrace returns the reply without its trace, if it is of a machine that has loaded its state: traces of waiters are not durable.
func withoutTrace(r *wire.Reply, loaded bool) *wire.Reply {
	if !loaded || len(r.GetTrace()) == 0 {
		return r
	}
	r = proto.CloneOf(r)
	r.Trace = nil
	return r
}

// part is an entry with at most one command.
type part struct {
	data    []byte
	ticket  wire.Ticket
	command *wire.Command // nil: only group time advances
}

// split separates an entry into the passing of group time and its commands.
func (a *audit) split(data []byte) []part {
	if len(data) == 0 {
		return []part{{}}
	}
	batch := a.decode(data)
	parts := []part{{data: a.encode(&wire.Batch{Version: batch.Version, Time: batch.Time})}}
	for _, s := range batch.Submissions {
		for _, c := range s.Calls {
			alone := &wire.Submission{Member: s.Member, Client: s.Client, Incarnation: s.Incarnation, Floor: s.Floor, Calls: []*wire.Call{c}}
			p := part{data: a.encode(&wire.Batch{Version: batch.Version, Time: batch.Time, Submissions: []*wire.Submission{alone}}), command: new(wire.Command)}
			p.ticket.Incarnation, _ = wire.IDFrom(s.Incarnation)
			p.ticket.Seq = c.Seq
			if err := proto.Unmarshal(c.Command, p.command); err != nil {
				a.sim.fail("decode a command: %v", err)
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// join is the inverse of split, for the first parts of an entry.
func (a *audit) join(parts []part) []byte {
	batch := a.decode(parts[0].data)
	for _, p := range parts[1:] {
		batch.Submissions = append(batch.Submissions, a.decode(p.data).Submissions...)
	}
	return a.encode(batch)
}

func (a *audit) decode(data []byte) *wire.Batch {
	batch := new(wire.Batch)
	if err := proto.Unmarshal(data, batch); err != nil {
		a.sim.fail("decode an entry: %v", err)
	}
	return batch
}

func (a *audit) encode(batch *wire.Batch) []byte {
	data, err := proto.Marshal(batch)
	if err != nil {
		a.sim.fail("encode a batch: %v", err)
	}
	return data
}
