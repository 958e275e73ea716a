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
func (m *Machine) settle(w *waiter, r *wire.Reply) {
	if w.ticket.by.gone {
		return // nothing awaits it
	}
	t := w.ticket.wire()
	m.emit(t, w.ticket.by.member, r, false)
	if w.ticket.by.window.at(t.Seq) != nil {
		m.store(w.ticket.by, t, r)
	}
}

func (m *Machine) store(inc *incarnation, t wire.Ticket, r *wire.Reply) {
	known := inc.window.at(t.Seq) != nil
	a := m.keep(inc, t.Seq, r)
	a.touched = m.dirty.ticket(inc, t.Seq, a.touched, a, !known)
}

// execute executes a command and returns its outcome; malformed is the decoder's error.
func (m *Machine) execute(t wire.Ticket, from submitter, floor uint64, c *wire.Command, malformed error) *wire.Reply {
	bad := malformed != nil
	m.forClient = from.client
	inc := m.incarnation(t.Incarnation)
	if !bad {
		switch op := c.Op.(type) {
		case *wire.Command_Register:
			if !from.client {
				return m.register(t.Incarnation, from.member, floor, op.Register)
			}
		case *wire.Command_RegisterClient:
			return m.registerClient(t.Incarnation, from, floor, op.RegisterClient)
		}
	}
	if inc == nil {
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the incarnation is not registered; register a new one")
	}
	if bad {
		return m.refuse(wire.Code_INVALID, "the command cannot be decoded")
	}
	if from.client {
		if r := m.mayClient(c); r != nil {
			return r
		}
	}
	switch op := c.Op.(type) {
	case *wire.Command_Renew:
		m.renewed(inc)
		return m.reply(wire.Code_OK)
	case *wire.Command_Deregister:
		m.drop(inc, wire.Closed)
		return m.reply(wire.Code_OK)
	case *wire.Command_OpenSession:
		return m.openSession(inc, op.OpenSession)
	case *wire.Command_CloseSession:
		return m.closeSession(inc, op.CloseSession)
	case *wire.Command_Lock:
		return m.lock(inc, t.Seq, op.Lock)
	case *wire.Command_Unlock:
		return m.unlock(op.Unlock)
	case *wire.Command_Withdraw:
		return m.withdraw(inc, op.Withdraw)
	case *wire.Command_Proclaim:
		return m.proclaim(op.Proclaim)
	case *wire.Command_Acquire:
		return m.acquire(inc, t.Seq, op.Acquire)
	case *wire.Command_Release:
		return m.releasePermit(op.Release)
	case *wire.Command_Resize:
		return m.resize(op.Resize)
	case *wire.Command_Write:
		return m.write(op.Write)
	}
	return m.executeRare(inc, c)
}

// executeRare executes the infrequent commands.
func (m *Machine) executeRare(inc *incarnation, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_RemoveMember:
		return m.removeMember(inc, op.RemoveMember)
	case *wire.Command_AdmitMember:
		return m.admitMember(op.AdmitMember)
	case *wire.Command_SetGroupConfig:
		return m.setGroupConfig(op.SetGroupConfig)
	case *wire.Command_AttachSession:
		return m.attachSession(inc, op.AttachSession)
	case *wire.Command_SetCheck:
		return m.setCheck(inc, op.SetCheck)
	case *wire.Command_DropCheck:
		return m.dropCheck(inc, op.DropCheck)
	case *wire.Command_ReportGossip:
		return m.reportGossip(op.ReportGossip)
	case *wire.Command_RaiseLevel:
		return m.raiseLevel(inc, op.RaiseLevel)
	case *wire.Command_RenewClients:
		return m.renewClients(op.RenewClients)
	case *wire.Command_CreateSession:
		return m.createSession(inc, op.CreateSession.Session)
	case *wire.Command_RenewSession:
		return m.renewSession(op.RenewSession)
	case *wire.Command_Refill:
		if m.levels.agreed >= wire.LevelLinger {
			return m.refill(op.Refill)
		}
	}
	return m.refuse(wire.Code_INVALID, "unknown command")
}
