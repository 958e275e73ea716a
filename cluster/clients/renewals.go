package clients

import "github.com/conclave-go/conclave/internal/wire"

// maxRenewals bounds the clients that one command renews, as the machine does.
const maxRenewals = 4096

// renewal is the renewal of a client.
type renewal struct {
	conn   *conn
	number uint64
}

// renews notes that the client has asked for a renewal. The answer to a later one is that to
// all before.
func (c *conn) renews(number uint64) {
	if c.renewing == 0 {
		c.server.renewing = append(c.server.renewing, c)
	}
	c.renewing = max(number, 1)
}

// renewClients renews the clients that have asked for it since the last tick, by one command:
// many clients cost the group as many entries as one does.
func (s *Server) renewClients() {
	renewing := s.renewing
	s.renewing = nil // what is refused at once renews with the next tick
	for len(renewing) > 0 {
		n := min(len(renewing), maxRenewals)
		c := &renewalCall{server: s}
		ids := make([]wire.ID, 0, n)
		for _, conn := range renewing[:n] {
			if conn.renewing == 0 {
				continue // its connection has ended
			}
			c.renewals = append(c.renewals, renewal{conn, conn.renewing})
			ids = append(ids, conn.incarnation)
			conn.renewing = 0
		}
		if renewing = renewing[n:]; len(ids) == 0 {
			continue
		}
		if s.cfg.Submitting != nil {
			s.cfg.Submitting()
		}
		s.core.Submit(s.cfg.Renew(ids), c, true)
	}
}

// renewalCall is the call that renews clients. A client that gets no answer goes on with
// another member.
type renewalCall struct {
	server   *Server
	renewals []renewal
}

// Deliver implements Call. A client that the group knows now has been known when it was
// renewed: none comes back.
func (c *renewalCall) Deliver(_ wire.Ticket, r *wire.Reply, _ bool) {
	if r.GetCode() != wire.Code_OK {
		c.again()
		return
	}
	machine := c.server.core.Machine()
	level, _ := machine.Level()
	for _, r := range c.renewals {
		r.conn.send(&wire.MemberFrame{Body: &wire.MemberFrame_Renewed{Renewed: &wire.Renewed{
			Number: r.number, Level: level, Now: machine.Now(), Unknown: !c.server.cfg.Registered(machine, r.conn.incarnation),
		}}}, 0)
	}
}

// again renews with the next tick: the registration of this member has expired meanwhile.
func (c *renewalCall) again() {
	for _, r := range c.renewals {
		if r.conn.renewing == 0 && r.conn.conn.Err() == nil {
			r.conn.renews(r.number)
		}
	}
}

// Fail implements Call.
func (c *renewalCall) Fail(error) { c.again() }

// Cancelled implements Call.
func (c *renewalCall) Cancelled(bool) {}

// Recheck implements Call.
func (c *renewalCall) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
