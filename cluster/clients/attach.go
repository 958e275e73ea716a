package clients

import (
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// gather adds a part of the Attach. Each of its items has a bounded size (wire.Bounds).
func (c *conn) gather(part *wire.Attach) error {
	if part.GetApplied() > core.MaxPosition {
		return errClientProtocol
	}
	a := c.attach
	if max(len(a.GetAwaiting())+len(part.GetAwaiting()), len(a.GetSessions())+len(part.GetSessions())) > wire.MaxAttached {
		return errTooManyItems
	}
	c.conn.Hold(attachedBytes(part))
	a.Applied, c.gathering = max(a.GetApplied(), part.GetApplied()), part.GetMore()
	a.Views = a.GetViews() || part.GetViews()
	a.Awaiting = append(a.GetAwaiting(), part.GetAwaiting()...)
	a.Sessions = append(a.GetSessions(), part.GetSessions()...)
	return nil
}

// attachedBytes is about what a part of an Attach takes in memory.
func attachedBytes(a *wire.Attach) int {
	const awaiting, session = 128, 48
	n := session*len(a.GetSessions()) + awaiting*len(a.GetAwaiting())
	for _, w := range a.GetAwaiting() {
		n += len(w.GetSemaphore()) + len(w.GetJob())
	}
	return n
}

// attach attaches a client now, or as soon as the log is applied far enough: its
// sessions would seem to have ended in an earlier state.
func (s *Server) attach(c *conn) {
	s.arrived++
	c.arrived = s.arrived
	s.attaching.add(c)
	s.AttachDue()
}

// AttachDue attaches the clients that the log is applied far enough for, as far as the step's share of time lasts.
func (s *Server) AttachDue() {
	applied := s.core.Status().Applied
	for c := s.nextToAttach(applied); c != nil; c = s.nextToAttach(applied) {
		if earlier := s.attached[c.incarnation]; earlier != nil {
			earlier.conn.Close(errReplaced)
		}
		s.attached[c.incarnation] = c
		s.cfg.Attached.Store(int64(len(s.attached)))
		var attached *wire.Attached
		s.cfg.Spend(func() { attached = s.attachedState(c) })
		c.conn.Hold(-attachedBytes(c.attach))
		c.attach = nil
		s.core.AttachClient(c.incarnation, c)
		rest := cutAttached(attached)
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Attached{Attached: attached}}, attachedSize(attached))
		c.deliver(attached.GetApplied(), rest)
	}
}

// nextToAttach returns a client that is to be attached in this step; nil: there is none.
func (s *Server) nextToAttach(applied uint64) *conn {
	if s.attaching.isDue(applied) && !s.cfg.IsSpent() {
		return s.attaching.due(applied)
	}
	return nil
}

// attachedState answers an Attach from the state that is applied now.
func (s *Server) attachedState(c *conn) *wire.Attached {
	machine := s.core.Machine()
	c.views, c.view = c.attach.GetViews(), s.viewNow()
	a := &wire.Attached{
		Applied: s.core.Status().Applied, Now: machine.Now(),
		Level: c.view.GetLevel(), Members: c.view.GetMembers(), Leaderless: c.view.GetLeaderless(), Group: s.cfg.Group,
	}
	s.recent = append(s.recent, c)
	for _, w := range c.attach.GetAwaiting() {
		session, _ := wire.IDFrom(w.GetSession())
		ticket := wire.Ticket{Incarnation: c.incarnation, Seq: w.GetSeq()}
		if reply := machine.Recheck(ticket, session, w.GetSemaphore(), w.GetJob()); reply != nil {
			a.Outcomes = append(a.Outcomes, &wire.DeliveredOutcome{Seq: w.GetSeq(), Reply: reply})
		}
	}
	for _, session := range c.attach.GetSessions() {
		id, ok := wire.IDFrom(session)
		if !ok {
			continue
		}
		switch bound, alive := s.cfg.SessionOf(machine, id); {
		case !alive:
		case bound == c.incarnation:
			a.Sessions = append(a.Sessions, session)
		default:
			a.Elsewhere = append(a.Elsewhere, session)
		}
	}
	return a
}

func (s *Server) detach(c *conn) {
	s.core.DetachClient(c.incarnation, c)
	if s.attached[c.incarnation] == c {
		delete(s.attached, c.incarnation)
		s.cfg.Attached.Store(int64(len(s.attached)))
	}
	s.attaching.remove(c)
	c.renewing = 0 // in clients.renewing until the next tick
}
