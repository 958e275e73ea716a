package sim

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// delivered is an outcome, or the end of a session, that a client must be delivered if it is
// attached in an earlier state.
type delivered struct {
	index   uint64
	seq     uint64 // 0: the end of a session
	more    bool
	session wire.ID
}

// noteDelivered notes what an entry means for clients, in order.
func (h *history) noteDelivered(index uint64, r fact.Result) {
	if len(h.sim.remotes) == 0 {
		return
	}
	note := func(of wire.ID, d delivered) {
		if _, client := h.clients[of]; client {
			h.delivered[of] = append(h.delivered[of], d)
		}
	}
	r.InOrder(func(o fact.Outcome) {
		note(o.Ticket.Incarnation, delivered{index: index, seq: o.Ticket.Seq, more: o.More})
	}, func(e fact.Ended) { note(e.Incarnation, delivered{index: index, session: e.Session}) })
}

// skipDelivered skips what the state includes to which a client is attached.
func (r *remote) skipDelivered(applied uint64) {
	all := r.sim.history.delivered[r.program.incarnation]
	for r.seen < len(all) && all[r.seen].index <= applied {
		r.seen++
	}
}

// checkDelivered checks that a member delivers everything after the state of the Attach,
// once and in the order of the log.
func (r *remote) checkDelivered(d *wire.Delivery) {
	all := r.sim.history.delivered[r.program.incarnation]
	for _, n := range d.GetNotices() {
		var got delivered
		switch body := n.GetBody().(type) {
		case *wire.Notice_Outcome:
			got = delivered{seq: body.Outcome.GetSeq(), more: body.Outcome.GetMore()}
		case *wire.Notice_Ended:
			got = delivered{session: wire.ID(body.Ended.GetSession())}
		default:
			continue
		}
		if r.seen >= len(all) {
			r.sim.fail("client %d is delivered %v, and the log has nothing more for it", r.n, n)
		}
		got.index = all[r.seen].index
		if want := all[r.seen]; got != want || want.index > d.GetApplied() {
			r.sim.fail("client %d is delivered %v up to %d, and the log has %+v next", r.n, n, d.GetApplied(), want)
		}
		r.seen++
	}
	if r.seen < len(all) && all[r.seen].index <= d.GetApplied() {
		r.sim.fail("client %d is delivered everything up to %d, but not %+v", r.n, d.GetApplied(), all[r.seen])
	}
}
