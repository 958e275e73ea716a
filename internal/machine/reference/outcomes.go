package reference

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// What is kept of outcomes that are not acknowledged.

// bounded reports that the group bounds them by bytes.
func (r *Model) bounded() bool { return r.Level >= wire.LevelBounds }

// reserving returns a limit, of which members have a part beyond that of clients.
func (r *Model) reserving(limit, reserved int) int {
	if r.bounded() && !r.forClient {
		limit += reserved
	}
	return limit
}

// kept counts the bytes that an incarnation leaves with the group, if the ticket is answered too.
func (inc *Incarnation) kept(seq uint64) (n int) {
	top := max(seq, inc.Floor)
	for _, o := range inc.answered {
		top = max(top, o.Ticket.Seq)
		n += 160 + 80*len(o.Reply.Keys) + 5*len(o.Reply.Slots)
		if o.Reply.Code == wire.Code_QUEUED && o.Reply.Holds <= MaxSlots {
			n += 5 * int(o.Reply.Holds)
		}
		if set := o.Reply.GetSet(); set != nil {
			n += 10*max(len(set.Fences), int(set.Shared)) + 80*len(set.Taken)
		}
		if o.Reply.GetRun() != nil {
			n += 80 + MaxRunDetail
		}
		for _, w := range o.Reply.GetCycle().GetWaits() {
			n += stepBytes(w)
		}
		for _, c := range o.Reply.Checks {
			n += 40 + len(c.Name)
		}
		if o.Reply.Code == wire.Code_CHECK_UNKNOWN || o.Reply.Code == wire.Code_CHECK_CRITICAL {
			n += len(o.Reply.Detail)
		}
	}
	return n + 32*int(top-inc.Floor)
}

// barred reports that a command is refused because of what its process leaves with the group.
func (r *Model) barred(t wire.Ticket, data []byte) bool {
	inc := r.Incarnation(t.Incarnation)
	if inc == nil || !r.bounded() {
		return false
	}
	if t.Seq <= inc.barred {
		return true
	}
	left := cmp.Or(r.AllOutcomes, MaxAllOutcomeBytes)
	for _, other := range r.Incarnations {
		if other.Client == inc.Client {
			left -= other.kept(0)
		}
	}
	limit := min(cmp.Or(r.MostOutcomes, MaxOutcomeBytes), max(left, cmp.Or(r.LeastOutcomes, MinOutcomeBytes)))
	c := new(wire.Command)
	if proto.Unmarshal(r.readable(data), c) != nil {
		c = nil
	}
	if c.GetDeregister() != nil {
		return false
	}
	if c.GetRenew() == nil && c.GetRenewClients() == nil && c.GetRenewSession() == nil && c.GetCloseSession() == nil &&
		c.GetUnlock() == nil && c.GetDowngrade() == nil && c.GetExtend() == nil && c.GetUnlockSet() == nil && c.GetEndRun() == nil && c.GetLeaveShards() == nil && c.GetReleaseShards() == nil && c.GetRelease() == nil && c.GetWithdraw() == nil {
		limit -= limit / 4
	}
	return inc.kept(t.Seq) >= limit
}

// bar refuses a ticket, and those before it without an outcome.
func (r *Model) bar(t wire.Ticket) {
	if inc := r.Incarnation(t.Incarnation); inc != nil && r.bounded() {
		inc.barred = max(inc.barred, t.Seq)
	}
}

func (r *Model) answered(t wire.Ticket) *fact.Outcome {
	if inc := r.Incarnation(t.Incarnation); inc != nil {
		for i := range inc.answered {
			if inc.answered[i].Ticket == t {
				return &inc.answered[i]
			}
		}
	}
	return nil
}

// final is the last outcome of a ticket; it replaces the stored one, if any.
func (r *Model) final(t wire.Ticket, reply *wire.Reply) {
	if reply.Index == 0 {
		reply.Index = r.index
	}
	if r.Incarnation(t.Incarnation) == nil {
		return // its process has ended
	}
	o := fact.Outcome{Ticket: t, Member: r.Incarnation(t.Incarnation).Member, Reply: reply}
	r.outcomes = append(r.outcomes, o)
	if old := r.answered(t); old != nil {
		*old = o
	}
}

func (r *Model) say(t wire.Ticket, code wire.Code) { r.final(t, answer(code)) }
