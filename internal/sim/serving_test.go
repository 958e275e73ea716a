package sim

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// serving is what a member does for the clients that are connected to it. It stands for
// cluster/clients.go and cluster/client_renewals.go, whose connections have goroutines of
// their own: same steps, same order.
type serving struct {
	*process
	connections []*clientConn           // all that are open
	attaching   []*clientConn           // that wait until the log is applied as far as they have seen it
	attached    map[wire.ID]*clientConn // by incarnation
	touched     []*clientConn           // that have notices to be sent
	renewing    []*clientConn           // that have asked for a renewal since the last tick
}

// clientConn is a member's end of the connection of a client.
type clientConn struct {
	serving     *serving
	conn        *connection
	client      uint64
	incarnation wire.ID
	attach      *wire.Attach
	notices     []*wire.Notice
	renewing    uint64 // 0: not asked for since the last tick
}

// serves reports whether the member accepts clients. One whose state is wrong does not: its
// clients would see what is not the group's.
func (s *serving) serves() bool {
	level, _ := s.core.Machine().Level()
	return level >= wire.LevelClient && !s.tainted
}

// accept accepts the connection of a client that has proven its ID and incarnation.
func (s *serving) accept(conn *connection, client uint64, incarnation wire.ID) {
	c := &clientConn{serving: s, conn: conn, client: client, incarnation: incarnation}
	s.connections = append(s.connections, c)
	conn.ends[memberEnd].receive = c.receive
	conn.ends[memberEnd].lost = c.lost
}

// ended ends all connections with the process, or as it must not serve any more.
func (s *serving) ended() {
	for _, c := range s.connections {
		c.conn.close(memberEnd)
	}
	connections := s.connections
	s.connections = nil
	if s.process.process == s.process {
		for _, c := range connections {
			c.detachLater()
		}
	}
}

// receive handles a frame of the client.
func (c *clientConn) receive(body []byte) {
	s, f := c.serving, new(wire.ClientFrame)
	if err := proto.Unmarshal(body, f); err != nil {
		s.sim.fail("decode a client's frame: %v", err)
	}
	if attach := f.GetAttach(); (attach != nil) != (c.attach == nil) {
		s.sim.fail("client %x sends %v", c.client, f)
	}
	switch body := f.GetBody().(type) {
	case *wire.ClientFrame_Attach:
		c.attach = body.Attach
		s.post(func(of *core.Core) {
			s.attaching = append(s.attaching, c)
			s.attachClients(of)
		})
	case *wire.ClientFrame_Submission:
		sub := body.Submission
		submission := &wire.Submission{
			Member: c.client, Incarnation: c.incarnation[:], Client: true,
			Floor: sub.GetFloor(), Calls: sub.GetCalls(), Urgent: sub.GetUrgent(), Applied: sub.GetApplied(),
		}
		s.post(func(of *core.Core) { of.SubmitForClient(submission) })
	case *wire.ClientFrame_Renew:
		s.post(func(*core.Core) { c.renews(body.Renew) })
	case *wire.ClientFrame_Request:
		c.answer(body.Request)
	default:
		s.sim.fail("client %x sends %v", c.client, f)
	}
}

// attachClients attaches those that wait, as soon as the log is applied far enough: their
// sessions would seem to have ended in an earlier state.
func (s *serving) attachClients(of *core.Core) {
	applied := of.Status().Applied
	s.attaching = slices.DeleteFunc(s.attaching, func(c *clientConn) bool {
		if c.attach.GetApplied() > applied {
			return false
		}
		if s.attached == nil {
			s.attached = make(map[wire.ID]*clientConn)
		}
		if earlier := s.attached[c.incarnation]; earlier != nil {
			earlier.close()
		}
		s.attached[c.incarnation] = c
		attached := s.attachedState(of, c)
		of.AttachClient(c.incarnation, c)
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Attached{Attached: attached}})
		return true
	})
}

// attachedState answers an Attach from the state that is applied now.
func (s *serving) attachedState(of *core.Core, c *clientConn) *wire.Attached {
	m := of.Machine().(*observed)
	level, _ := m.Level()
	a := &wire.Attached{Applied: of.Status().Applied, Level: level, Now: m.Now()}
	for _, w := range c.attach.GetAwaiting() {
		session, _ := wire.IDFrom(w.GetSession())
		ticket := wire.Ticket{Incarnation: c.incarnation, Seq: w.GetSeq()}
		if reply := m.Recheck(ticket, session, w.GetSemaphore(), w.GetJob()); reply != nil {
			a.Outcomes = append(a.Outcomes, &wire.DeliveredOutcome{Seq: w.GetSeq(), Reply: reply})
		}
	}
	for _, id := range c.attach.GetSessions() {
		switch v, alive := liveSession(m.Machine, wire.ID(id)); {
		case !alive:
		case v.Incarnation == c.incarnation:
			a.Sessions = append(a.Sessions, id)
		default:
			a.Elsewhere = append(a.Elsewhere, id)
		}
	}
	return a
}

func (c *clientConn) lost() {
	s := c.serving
	s.connections = slices.DeleteFunc(s.connections, func(o *clientConn) bool { return o == c })
	c.detachLater()
}

// close closes the connection from this end.
func (c *clientConn) close() {
	if c.conn.ends[memberEnd].open {
		c.conn.close(memberEnd)
		c.lost()
	}
}

// detachLater stands for the end of the goroutine that reads the connection.
func (c *clientConn) detachLater() {
	s := c.serving
	s.after(s.sim.between(0, 100*time.Microsecond), func() {
		s.post(func(of *core.Core) {
			of.DetachClient(c.incarnation, c)
			if s.attached[c.incarnation] == c {
				delete(s.attached, c.incarnation)
			}
			s.attaching = slices.DeleteFunc(s.attaching, func(o *clientConn) bool { return o == c })
			s.renewing = slices.DeleteFunc(s.renewing, func(o *clientConn) bool { return o == c })
		})
	})
}

// Notify implements core.Client. The notices of one step are sent together.
func (c *clientConn) Notify(n *wire.Notice) {
	if len(c.notices) == 0 {
		c.serving.touched = append(c.serving.touched, c)
	}
	c.notices = append(c.notices, n)
}

func (c *clientConn) send(f *wire.MemberFrame) { c.conn.send(memberEnd, f) }

// deliver sends what the last step had for clients.
func (s *serving) deliver() {
	if s.process.process != s.process {
		return // it has crashed
	}
	for _, c := range s.touched {
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Delivery{Delivery: &wire.Delivery{
			Applied: s.core.Status().Applied, Notices: c.notices,
		}}})
		c.notices = nil
	}
	s.touched = nil
	if len(s.attaching) > 0 {
		s.attachClients(s.core)
	}
}

// resend asks the clients to send again what has no outcome yet.
func (s *serving) resend() {
	for _, c := range s.inOrder() {
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Resend{Resend: true}})
	}
}

// restored ends the connections after a snapshot has replaced the state.
func (s *serving) restored() {
	for _, c := range s.inOrder() {
		c.close()
	}
}

// inOrder returns the attached connections in the order in which they began.
func (s *serving) inOrder() (all []*clientConn) {
	for _, c := range s.connections {
		if s.attached[c.incarnation] == c {
			all = append(all, c)
		}
	}
	return all
}

// renews notes that the client has asked for a renewal.
func (c *clientConn) renews(number uint64) {
	if c.renewing == 0 {
		c.serving.renewing = append(c.serving.renewing, c)
	}
	c.renewing = max(number, 1)
}

// renewClients renews the clients that have asked for it since the last tick, by one
// command.
func (s *serving) renewClients() {
	if len(s.renewing) == 0 {
		return
	}
	r, renew := &clientRenewals{serving: s}, new(wire.RenewClients)
	for _, c := range s.renewing {
		r.conns, r.numbers = append(r.conns, c), append(r.numbers, c.renewing)
		renew.Incarnations = append(renew.Incarnations, slices.Clone(c.incarnation[:]))
		c.renewing = 0
	}
	s.renewing = nil
	body := s.program.encode(&wire.Command{Op: &wire.Command_RenewClients{RenewClients: renew}})
	s.core.Submit(body, r, true)
}

// clientRenewals is the call that renews clients.
type clientRenewals struct {
	serving *serving
	conns   []*clientConn
	numbers []uint64
}

// Deliver implements core.Call. A client that the group knows now has been known when it
// was renewed: none comes back.
func (r *clientRenewals) Deliver(t wire.Ticket, reply *wire.Reply, _ bool) {
	s := r.serving
	if s.tainted {
		return
	}
	if t.Seq > 0 {
		s.sim.history.checkOutcome(s.process, t, reply)
	}
	if reply.GetCode() != wire.Code_OK {
		r.again()
		return
	}
	m := s.core.Machine().(*observed)
	level, _ := m.Level()
	for i, c := range r.conns {
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Renewed{Renewed: &wire.Renewed{
			Number: r.numbers[i], Level: level, Now: m.Now(), Unknown: !registered(m.Machine, c.incarnation),
		}}})
	}
}

// again renews with the next tick: the registration of this member has expired meanwhile.
func (r *clientRenewals) again() {
	for i, c := range r.conns {
		if c.renewing == 0 && c.conn.ends[memberEnd].open {
			c.renews(r.numbers[i])
		}
	}
}

func (r *clientRenewals) Fail(error)                                      { r.again() }
func (r *clientRenewals) Cancelled(bool)                                  {}
func (r *clientRenewals) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }

// answer answers a query of the client, as Node.serve does.
func (c *clientConn) answer(r *wire.Request) {
	q, err := machine.DecodeQuery(r.GetKind(), r.GetBody())
	if err != nil {
		c.serving.sim.fail("client %x asks %v: %v", c.client, r, err)
	}
	c.serving.post(func(of *core.Core) {
		if err := of.Read(&servedRead{c, r, q}); err != nil {
			c.serving.sim.fail("member %d: read: %v", c.serving.n, err)
		}
	})
}

// servedRead is a linearizable read for a client.
type servedRead struct {
	conn    *clientConn
	request *wire.Request
	query   machine.Query
}

func (r *servedRead) Ended() bool { return !r.conn.conn.ends[memberEnd].open }

func (r *servedRead) Run(m core.Machine) {
	s := r.conn.serving
	if s.tainted {
		return
	}
	client := r.conn.conn.ends[clientEnd].process.remote
	a := machine.Ask[any](m.(*observed).Machine, r.query)
	if asked := client.reads[r.request.GetId()]; asked != nil {
		a = asked.evaluate(s.process, m) // checks how old the state is
	}
	var body []byte
	for part, err := range machine.EncodeAnswer(a) {
		if err != nil {
			s.sim.fail("encode an answer: %v", err)
		}
		body = append(body, part...)
	}
	r.conn.send(&wire.MemberFrame{Body: &wire.MemberFrame_Answer{Answer: &wire.Answer{Id: r.request.GetId(), Part: body, Last: true}}})
}
