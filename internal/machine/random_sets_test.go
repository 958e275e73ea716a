package machine

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// checkSets wants sets in each state, and each way into one and out of it.
func checkSets(t *testing.T, seen map[string]int) {
	t.Helper()
	t.Log("sets:", seen)
	for _, what := range []string{
		"granted at once", "granted later", "passed over", "reserved", "granted with a reservation", "claimed", "delayed", "ended by MaxHold", "withdrawn while waiting",
		"withdrawn", "released", "expired while waiting", "LOCKED", "LOCK_DELAY", "DEADLOCK", "a waiter that waits for a reservation", "in a cycle by a reservation",
	} {
		if seen[what] == 0 {
			t.Errorf("%s: never, so the generator does not reach it", what)
		}
	}
}

// setWatch counts what becomes of sets.
type setWatch struct {
	seen          map[string]int
	queued        map[wire.Ticket]bool
	held, waiting []reference.Set      // after the entry before
	undone        map[wire.Ticket]bool // that the entry withdraws
}

func (w *setWatch) look(r *rig, entry []byte) {
	w.undone = make(map[wire.Ticket]bool)
	eachCommand(entry, func(c *wire.Command) {
		if len(c.GetWithdraw().GetIncarnation()) == 16 {
			w.undone[wire.Ticket{Incarnation: wire.ID(c.GetWithdraw().Incarnation), Seq: c.GetWithdraw().Seq}] = true
		}
	})
	for _, o := range r.last.Outcomes {
		w.outcome(r, o.Ticket, o.Reply)
	}
	for _, s := range w.waiting {
		i := slices.IndexFunc(r.model.Waiting, func(now *reference.Set) bool { return now.Ticket == s.Ticket })
		switch {
		case i < 0:
			if s.Passed == reference.MaxPassed && slices.ContainsFunc(r.model.Sets, func(now *reference.Set) bool { return now.Ticket == s.Ticket }) {
				w.seen["granted with a reservation"]++
			}
		case r.model.Waiting[i].Passed > s.Passed:
			w.seen["passed over"]++
			if r.model.Waiting[i].Passed == reference.MaxPassed {
				w.seen["reserved"]++
			}
		}
	}
	for _, s := range w.held {
		w.former(r, s)
	}
	w.held, w.waiting = copies(r.model.Sets), copies(r.model.Waiting)
}

// outcome counts an outcome of a set, as far as it is known to be one.
func (w *setWatch) outcome(r *rig, t wire.Ticket, reply *wire.Reply) {
	set := reply.GetSet()
	switch {
	case reply.Index != r.index: // a duplicate
	case reply.Code == wire.Code_QUEUED && set != nil:
		w.queued[t] = true
	case w.queued[t]:
		w.seen[map[wire.Code]string{
			wire.Code_OK: "granted later", wire.Code_WITHDRAWN: "withdrawn while waiting", wire.Code_SESSION_EXPIRED: "expired while waiting",
		}[reply.Code]]++
	case reply.Code == wire.Code_OK && set != nil:
		w.seen["granted at once"]++
	case set != nil:
		w.seen[reply.Code.String()]++
	case reply.Code == wire.Code_QUEUED && reply.Holder.GetWaiting():
		w.seen["a waiter that waits for a reservation"]++
	}
	for _, step := range reply.GetCycle().GetWaits() {
		if step.Waiter.Set != 0 {
			w.seen["DEADLOCK"]++
		}
		if step.Holder.Reserved {
			w.seen["in a cycle by a reservation"]++
		}
	}
}

// former counts what has become of a set that was held.
func (w *setWatch) former(r *rig, s reference.Set) {
	is := func(now *reference.Set) bool { return now.Fence == s.Fence }
	again := func(now *reference.Set) bool {
		return s.Unclaimed && !now.Unclaimed && now.Session == s.Session && now.Fence > s.Fence && len(now.Parts) == len(s.Parts) && now.Parts[0].Name == s.Parts[0].Name
	}
	lives := slices.ContainsFunc(r.model.Sessions, func(of *reference.Session) bool { return of.ID == s.Session })
	switch {
	case slices.ContainsFunc(r.model.Sets, is):
		return
	case slices.ContainsFunc(r.model.Sets, again):
		w.seen["claimed"]++
		return
	case lives && s.Over(r.model.Now):
		w.seen["ended by MaxHold"]++
	case lives:
		w.seen["released"]++
		if w.undone[s.Ticket] {
			w.seen["withdrawn"]++
		}
	}
	for _, p := range s.Parts {
		if l := lockOf(r.straight, p.Name); l != nil && l.Delay > 0 {
			w.seen["delayed"]++
		}
	}
}

// eachCommand calls f with each command of an entry that can be decoded.
func eachCommand(entry []byte, f func(*wire.Command)) {
	batch := new(wire.Batch)
	if proto.Unmarshal(entry, batch) != nil {
		return
	}
	for _, s := range batch.GetSubmissions() {
		for _, call := range s.GetCalls() {
			if c := new(wire.Command); proto.Unmarshal(call.GetCommand(), c) == nil {
				f(c)
			}
		}
	}
}

func copies(sets []*reference.Set) (all []reference.Set) {
	for _, s := range sets {
		all = append(all, *s)
	}
	return all
}
