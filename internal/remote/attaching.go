package remote

import (
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// Attaching: a member delivers outcomes from the state on that it states in its answer.

// attach asks the member to deliver outcomes from now on. What it answers has no effect before
// attached.
func (g *Group) attach(l *link) (*wire.Attached, error) {
	timer := time.AfterFunc(attachTimeout, func() { l.conn.Close(errAttachTime) })
	defer timer.Stop()
	g.mailbox.Post(func() {
		for _, part := range parts(g.attachment()) {
			l.conn.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: part}}, 0)
		}
	})
	f := new(wire.MemberFrame)
	if err := l.conn.Read(f); err != nil {
		return nil, err
	}
	attached := f.GetAttached()
	if attached == nil {
		return nil, errUnexpected
	}
	if !timer.Stop() {
		return nil, errAttachTime
	}
	if attached.GetGroup() != g.cfg.Further {
		return nil, errNoFurther
	}
	return attached, nil
}

// attachment describes what this process may have missed.
func (g *Group) attachment() *wire.Attach {
	a := &wire.Attach{Applied: g.applied}
	for _, seq := range g.tickets.AwaitingInOrder() {
		call, _ := g.tickets.Awaiting(seq)
		w := &wire.Awaiting{Seq: seq}
		call.Recheck(noter{w}, wire.Ticket{Incarnation: g.identity.incarnation, Seq: seq})
		a.Awaiting = append(a.Awaiting, w)
	}
	for _, id := range g.cfg.Sessions() {
		a.Sessions = append(a.Sessions, id[:])
	}
	return a
}

// maxPart are in one frame: the name of a semaphore or of a job with its key has up to 1025 bytes, and a frame of a client
// some more than 1 MiB.
const maxPart = 900

// parts cuts an Attach into frames.
func parts(a *wire.Attach) (all []*wire.Attach) {
	for {
		awaiting, sessions := min(len(a.GetAwaiting()), maxPart), min(len(a.GetSessions()), maxPart)
		part := &wire.Attach{Applied: a.GetApplied(), Awaiting: a.GetAwaiting()[:awaiting], Sessions: a.GetSessions()[:sessions], Views: true}
		a.Awaiting, a.Sessions = a.GetAwaiting()[awaiting:], a.GetSessions()[sessions:]
		part.More = len(a.GetAwaiting())+len(a.GetSessions()) > 0
		if all = append(all, part); !part.More {
			return all
		}
	}
}

// noter is a wire.Rechecker that notes what a call asks for.
type noter struct{ awaiting *wire.Awaiting }

// Recheck implements wire.Rechecker.
func (n noter) Recheck(_ wire.Ticket, session wire.ID, semaphore, job string) *wire.Reply {
	n.awaiting.Session, n.awaiting.Semaphore, n.awaiting.Job = session[:], semaphore, job
	return nil
}

// attached begins to use a link. What this process has missed comes first.
func (g *Group) attached(l *link, a *wire.Attached, use rank) error {
	if l.incarnation != g.identity.incarnation {
		return tickets.ErrUnregistered
	}
	g.disconnect(errReconnected)
	g.link, g.applied, g.now = l, a.GetApplied(), max(g.now, a.GetNow())
	g.noteLevel(a.GetLevel())
	g.addresses.learn(a.GetMembers())
	g.noteLeader(l, a.GetLeaderless())
	if g.leaving.after = 0; use != useful {
		g.stay()
	}
	boundTo := make(map[wire.ID]wire.ID) // of the sessions that live
	for _, s := range a.GetElsewhere() {
		if id, ok := wire.IDFrom(s); ok {
			boundTo[id] = wire.ID{}
		}
	}
	for _, s := range a.GetSessions() {
		if id, ok := wire.IDFrom(s); ok {
			boundTo[id] = l.incarnation
		}
	}
	g.cfg.Replaced(func(q machine.Query) any {
		switch q := q.(type) {
		case machine.IndexQuery:
			return uint64(0)
		case machine.SessionQuery:
			if incarnation, alive := boundTo[q.ID]; alive {
				return &machine.SessionView{ID: q.ID, Incarnation: incarnation}
			}
		}
		return (*machine.SessionView)(nil)
	})
	for _, o := range a.GetOutcomes() {
		if call, ok := g.tickets.Settle(o.GetSeq()); ok {
			call.Deliver(wire.Ticket{Incarnation: l.incarnation, Seq: o.GetSeq()}, o.GetReply(), false)
		}
	}
	g.send(g.tickets.RetryAll)
	g.sendRenewal()
	g.place.set(l, nil)
	if peer := l.conn.Peer(); g.cfg.Named != nil {
		g.cfg.Named(peer.Member, peer.Name)
	}
	g.log.Info("connected to member", "addr", l.addr, "member", wire.MemberID(l.conn.Peer().Member))
	return nil
}
