package machine

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// submitter is the member or client that submits.
type submitter struct {
	member uint64
	client bool // the member is a client
}

// submit applies the calls of one incarnation. A submission under another member's
// incarnation, or under that of a client if it is not marked as a client's, has no effect and
// no outcome: its tickets belong to that member.
func (m *Machine) submit(s *wire.Submission) {
	id, ok := wire.IDFrom(s.Incarnation)
	if !ok {
		return // there is no ticket to answer
	}
	from := submitter{s.Member, s.Client && m.hasClients()}
	if inc := m.incarnation(id); inc != nil {
		if (submitter{inc.member, inc.client}) != from {
			return
		}
		m.raiseFloor(inc, s.Floor)
	}
	m.outcomes = slices.Grow(m.outcomes, len(s.Calls))
	for _, c := range s.Calls {
		m.call(wire.Ticket{Incarnation: id, Seq: c.Seq}, from, s.Floor, c.Command)
	}
}

// raiseFloor drops the outcomes that the member has received.
func (m *Machine) raiseFloor(inc *incarnation, floor uint64) {
	if floor <= inc.window.floor {
		return
	}
	before := inc.window.size(0)
	inc.window.raise(floor, func(seq uint64, at int32) { m.dirty.ticket(inc, seq, at, nil, false) })
	*m.retention.of(inc) += inc.window.size(0) - before
	if inc.barred <= floor {
		inc.barred = 0
	}
	m.dirty.put(inc.key(), inc)
}

// call applies a command unless its ticket shows that it has been applied. The floor of
// a registered incarnation is never below the submission's.
func (m *Machine) call(t wire.Ticket, from submitter, floor uint64, command []byte) {
	inc := m.incarnation(t.Incarnation)
	if inc != nil {
		floor = inc.window.floor
	}
	switch {
	case t.Seq <= floor:
		return // a late duplicate: its outcome has been received
	case t.Seq-floor > MaxInFlight && inc == nil:
		m.emit(t, from.member, m.refuse(wire.Code_BUSY, tooFarAhead), false)
		return
	case t.Seq-floor > MaxInFlight:
		m.bar(inc, t, tooFarAhead)
		return
	}
	if inc != nil {
		if stored := inc.window.at(t.Seq); stored != nil {
			r := stored.reply()
			m.emit(t, from.member, r, r.Code == wire.Code_QUEUED) // a second outcome would have replaced it
			return
		}
	}
	c, err := m.decoder.Command(wire.CommandAt(m.levels.agreed, command))
	if err != nil {
		c = nil
	}
	if inc != nil && (t.Seq <= inc.barred || !m.mayRetain(inc, t.Seq, c)) {
		m.bar(inc, t, notAcknowledged)
		return
	}
	m.answer(t, from.member, m.execute(t, from, floor, c, err))
}

const tooFarAhead = "too many calls in flight; wait for outcomes"

// answer emits the first outcome of a ticket, and stores it if the incarnation is
// registered after the command.
func (m *Machine) answer(t wire.Ticket, member uint64, r *wire.Reply) {
	m.emit(t, member, r, r.Code == wire.Code_QUEUED)
	if inc := m.incarnation(t.Incarnation); inc != nil {
		m.store(inc, t, r)
	}
}

// settle emits the second and last outcome of a ticket that was QUEUED. It replaces
// the first one if that is still stored, so that a retry of the call receives it.
func (m *Machine) settle(of ticket, r *wire.Reply) {
	if of.by.gone {
		return // nothing awaits it
	}
	t := of.wire()
	m.emit(t, of.by.member, r, false)
	if of.by.window.at(t.Seq) != nil {
		m.store(of.by, t, r)
	}
}

func (m *Machine) store(inc *incarnation, t wire.Ticket, r *wire.Reply) {
	known := inc.window.at(t.Seq) != nil
	a := m.keep(inc, t.Seq, r)
	a.touched = m.dirty.ticket(inc, t.Seq, a.touched, a, !known)
}
