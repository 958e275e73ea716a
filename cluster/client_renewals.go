package cluster

import "github.com/conclave-go/conclave/internal/wire"

// maxRenewals bounds the clients that one command renews, as the machine does.
const maxRenewals = 4096

// clientRenewal is the renewal of a client.
type clientRenewal struct {
	conn   *clientConn
	number uint64
}

// renews notes that the client has asked for a renewal. The answer to a later one is that to
// all before.
func (c *clientConn) renews(number uint64) {
	if c.renewing == 0 {
		c.clients.renewing = append(c.clients.renewing, c)
	}
	c.renewing = max(number, 1)
}

// renewClients renews the clients that have asked for it since the last tick, by one command:
// many clients cost the group as many entries as one does. It runs on the loop's goroutine.
func (m *Member) renewClients() {
	for len(m.clients.renewing) > 0 {
		n := min(len(m.clients.renewing), maxRenewals)
		c := &clientRenewals{member: m}
		ids := make([]wire.ID, 0, n)
		for _, conn := range m.clients.renewing[:n] {
			if conn.renewing == 0 {
				continue // its connection has ended
			}
			c.renewals = append(c.renewals, clientRenewal{conn, conn.renewing})
			ids = append(ids, conn.incarnation)
			conn.renewing = 0
		}
		if m.clients.renewing = m.clients.renewing[n:]; len(ids) == 0 {
			continue
		}
		m.core.Submit(m.cfg.Commands.RenewClients(ids), c, true)
	}
	m.clients.renewing = nil
}

// clientRenewals is the call that renews clients. A client that gets no answer goes on with
// another member.
type clientRenewals struct {
	member   *Member
	renewals []clientRenewal
}

// Deliver implements Call. A client that the group knows now has been known when it was
// renewed: none comes back.
func (c *clientRenewals) Deliver(_ wire.Ticket, r *wire.Reply, _ bool) {
	if r.GetCode() != wire.Code_OK {
		c.again()
		return
	}
	machine := c.member.core.Machine()
	level, _ := machine.Level()
	for _, r := range c.renewals {
		r.conn.send(&wire.MemberFrame{Body: &wire.MemberFrame_Renewed{Renewed: &wire.Renewed{
			Number: r.number, Level: level, Now: machine.Now(), Unknown: !c.member.cfg.Clients.Registered(machine, r.conn.incarnation),
		}}}, 0)
	}
}

// again renews with the next tick: the registration of this member has expired meanwhile.
func (c *clientRenewals) again() {
	for _, r := range c.renewals {
		if r.conn.renewing == 0 && r.conn.conn.Err() == nil {
			r.conn.renews(r.number)
		}
	}
}

// Fail implements Call.
func (c *clientRenewals) Fail(error) { c.again() }

// Cancelled implements Call.
func (c *clientRenewals) Cancelled(bool) {}

// Recheck implements Call.
func (c *clientRenewals) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
