package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// ClientsConfig is what a member needs to serve clients: processes that are no members.
type ClientsConfig struct {
	// Registered reports whether the group knows the incarnation of a client, and
	// SessionOf returns the incarnation that a session is bound to, zero if it is unbound;
	// alive is false if there is no such session. They run on the loop's goroutine.
	Registered func(m Machine, incarnation wire.ID) bool
	SessionOf  func(m Machine, session wire.ID) (incarnation wire.ID, alive bool)
	// Occupied reports whether the incarnation of a client counts in a limit of the group,
	// registered or not any more, and Free returns how many more that limit admits. They run
	// on the loop's goroutine.
	Occupied func(m Machine, incarnation wire.ID) bool
	Free     func(m Machine) int
	// Serve answers a request, and writes the answer in parts. It must return once ctx is
	// done.
	Serve func(ctx context.Context, r *wire.Request, answer Answer) error
	// Failure describes an error of Serve to the client.
	Failure func(error) (wire.Failure, string)
}

// Answer is the answer to a request of a client. Write blocks while the client does not read.
type Answer interface {
	io.Writer
	// Hold counts bytes that are kept until Serve returns, as ClientConn.Hold does.
	Hold(bytes int)
	// Within returns the answer, whose writes end with ctx as well.
	Within(ctx context.Context) Answer
	// Client returns who asks, and the host that the connection comes from: see transport.HostOf.
	Client() (client uint64, host string)
}

// clients are the connections of clients. The loop's goroutine owns it.
type clients struct {
	attaching attachQueue             // that wait until the log is applied as far as they have seen it
	attached  map[wire.ID]*clientConn // by incarnation
	touched   []*clientConn           // that have notices to be sent
	renewing  []*clientConn           // that have asked for a renewal since the last tick; some may have ended since
	recent    []*clientConn           // that have been attached since the last tick; some may have ended since
	view      *wire.GroupView         // that was sent last; nil: none
	arrived   uint64                  // that have asked to be attached, ever

	registrations registrations
}

// clientConn is the connection of a client. The loop's goroutine owns it, except for conn,
// requests, handled and gathering, and for attach until it is complete.
type clientConn struct {
	clients     *clients
	conn        *transport.ClientConn
	client      uint64
	incarnation wire.ID
	attach      *wire.Attach    // what has come of it; nil: it has been answered
	gathering   bool            // the next frame has another part of attach
	place       int             // in clients.attaching, from 1 on; 0: none
	arrived     uint64          // its number of those that have asked to be attached
	notices     []*wire.Notice  // to be sent
	renewing    uint64          // the number of the last renewal that it has asked for; 0: none since the last tick
	views       bool            // it understands a GroupView
	view        *wire.GroupView // that it has
	requests    requests
	handled     wait.Signal // set when the loop has handled a frame
}

var (
	errClientProtocol = errors.New("unexpected frame")
	errTooManyItems   = errors.New("limit exceeded: more calls, or more to be looked up, than a client has")
	errReattach       = errors.New("a snapshot has replaced the state: attach again")
	errReplaced       = errors.New("replaced by a later connection of the same client")
)

// What a notice takes, and a key in the outcome of a Write, about: 128 of these are in one notice.
const (
	noticeBytes = 128
	keyBytes    = 48
)

// replyBytes is about what an outcome takes in a queue.
func replyBytes(r *wire.Reply) int {
	return noticeBytes + keyBytes*len(r.GetKeys()) + noticeBytes*len(r.GetChecks()) + len(r.GetDetail()) + len(r.GetTrace())
}

// sizeOf is about what notices take in a queue.
func sizeOf(notices []*wire.Notice) (n int) {
	for _, notice := range notices {
		n += replyBytes(notice.GetOutcome().GetReply()) + len(notice.GetRecall().GetLock())
	}
	return n
}

// attachedSize is about what the answer to an Attach takes in a queue.
func attachedSize(a *wire.Attached) int {
	n := noticeBytes * (len(a.GetSessions()) + len(a.GetElsewhere()) + len(a.GetMembers()))
	for _, o := range a.GetOutcomes() {
		n += replyBytes(o.GetReply())
	}
	return n
}

// clientsRefused implements transport.Config.ClientsRefused.
func (m *Member) clientsRefused() string {
	switch s := m.status.Load(); {
	case s == nil:
		return "this member has not found its group yet: ask another one, or retry"
	case s.level < wire.LevelClient:
		return fmt.Sprintf("the group has feature level %d, and clients need %d: upgrade every member first", s.level, wire.LevelClient)
	}
	return ""
}

// serveClient serves the connection of a client, on the goroutine of the connection.
func (m *Member) serveClient(conn *transport.ClientConn) {
	peer := conn.Peer()
	c := &clientConn{clients: &m.clients, conn: conn, client: peer.Member, incarnation: peer.Incarnation, handled: wait.NewSignal()}
	c.attach, c.gathering = new(wire.Attach), true
	c.requests.running = make(map[uint64]context.CancelFunc)
	ctx, cancel := context.WithCancel(m.lifetime)
	defer c.requests.wait()
	defer cancel()
	err := m.readClient(ctx, c)
	conn.Close(err)
	_ = m.fromClient(c, func(core *core.Core) { m.detachClient(core, c) }) // it fails only if nothing is attached any more
}

// fromClient has the loop run what follows from a frame, or from the end of the connection, in
// the order of these. It blocks until the loop has, so that the frames of one client do not fill
// the queue that it shares with the members.
func (m *Member) fromClient(c *clientConn, run func(*core.Core)) error {
	select {
	case m.inbound <- func(core *core.Core) { run(core); c.handled.Set() }:
	case <-m.lifetime.Done():
		return m.stopped()
	}
	select {
	case <-c.handled:
		return nil
	case <-m.lifetime.Done():
		return m.stopped()
	}
}

// readClient reads the frames of a client until the connection fails.
func (m *Member) readClient(ctx context.Context, c *clientConn) error {
	for {
		f := new(wire.ClientFrame)
		if err := c.conn.Read(f); err != nil {
			return err
		}
		if _, attaches := f.GetBody().(*wire.ClientFrame_Attach); attaches != c.gathering {
			return errClientProtocol
		}
		var run func(*core.Core)
		switch body := f.GetBody().(type) {
		case *wire.ClientFrame_Attach:
			if err := c.gather(body.Attach); err != nil {
				return err
			}
			if c.gathering {
				continue
			}
			run = func(core *core.Core) { m.attachClient(core, c) }
		case *wire.ClientFrame_Submission:
			if err := checkSubmission(body.Submission); err != nil {
				return err
			}
			s := c.submission(body.Submission)
			run = func(core *core.Core) { m.submitForClient(core, c, s) }
		case *wire.ClientFrame_Renew:
			run = func(*core.Core) { c.renews(body.Renew) }
		case *wire.ClientFrame_Request:
			if err := m.beginRequest(ctx, c, body.Request); err != nil {
				return err
			}
			continue
		case *wire.ClientFrame_Cancel:
			c.requests.cancel(body.Cancel)
			continue
		default:
			return errClientProtocol
		}
		if err := m.fromClient(c, run); err != nil {
			return err
		}
	}
}

// gather adds a part of the Attach. Each of its items has a bounded size (wire.Bounds).
func (c *clientConn) gather(part *wire.Attach) error {
	if part.GetApplied() > maxPosition {
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
		n += len(w.GetSemaphore())
	}
	return n
}

// checkSubmission refuses what no honest client submits, before its commands are decoded
// anywhere.
func checkSubmission(s *wire.Submission) error {
	if len(s.GetCalls()) > core.MaxClientCalls {
		return errTooManyItems
	}
	command := new(wire.Command)
	for _, c := range s.GetCalls() {
		if err := wire.Check(command, c.GetCommand()); err != nil {
			return err
		}
	}
	return nil
}

// submission is what the client submits, in its own name.
func (c *clientConn) submission(s *wire.Submission) *wire.Submission {
	return &wire.Submission{
		Member: c.client, Incarnation: c.incarnation[:], Client: true,
		Floor: s.GetFloor(), Calls: s.GetCalls(), Urgent: s.GetUrgent(), Applied: s.GetApplied(),
	}
}

// attachClient attaches a client now, or as soon as the log is applied far enough: its
// sessions would seem to have ended in an earlier state.
func (m *Member) attachClient(core *core.Core, c *clientConn) {
	m.clients.arrived++
	c.arrived = m.clients.arrived
	m.clients.attaching.add(c)
	m.attachClients(core)
}

// attachClients attaches the clients that the log is applied far enough for.
func (m *Member) attachClients(core *core.Core) {
	applied := core.Status().Applied
	for c := m.nextToAttach(applied); c != nil; c = m.nextToAttach(applied) {
		if m.clients.attached == nil {
			m.clients.attached = make(map[wire.ID]*clientConn)
		}
		if earlier := m.clients.attached[c.incarnation]; earlier != nil {
			earlier.conn.Close(errReplaced)
		}
		m.clients.attached[c.incarnation] = c
		m.metrics.Clients.Store(int64(len(m.clients.attached)))
		var attached *wire.Attached
		m.share.spend(func() { attached = m.attachedState(core, c) })
		c.conn.Hold(-attachedBytes(c.attach))
		c.attach = nil
		core.AttachClient(c.incarnation, c)
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Attached{Attached: attached}}, attachedSize(attached))
	}
}

// nextToAttach returns a client that is to be attached in this step; nil: there is none.
func (m *Member) nextToAttach(applied uint64) *clientConn {
	if m.clients.attaching.isDue(applied) && !m.share.isSpent() {
		return m.clients.attaching.due(applied)
	}
	return nil
}

// attachedState answers an Attach from the state that is applied now.
func (m *Member) attachedState(core *core.Core, c *clientConn) *wire.Attached {
	machine := core.Machine()
	c.views, c.view = c.attach.GetViews(), m.view(core)
	a := &wire.Attached{
		Applied: core.Status().Applied, Now: machine.Now(),
		Level: c.view.GetLevel(), Members: c.view.GetMembers(), Leaderless: c.view.GetLeaderless(),
	}
	m.clients.recent = append(m.clients.recent, c)
	for _, w := range c.attach.GetAwaiting() {
		session, _ := wire.IDFrom(w.GetSession())
		ticket := wire.Ticket{Incarnation: c.incarnation, Seq: w.GetSeq()}
		if reply := machine.Recheck(ticket, session, w.GetSemaphore()); reply != nil {
			a.Outcomes = append(a.Outcomes, &wire.DeliveredOutcome{Seq: w.GetSeq(), Reply: reply})
		}
	}
	for _, s := range c.attach.GetSessions() {
		id, ok := wire.IDFrom(s)
		if !ok {
			continue
		}
		switch bound, alive := m.cfg.Clients.SessionOf(machine, id); {
		case !alive:
		case bound == c.incarnation:
			a.Sessions = append(a.Sessions, s)
		default:
			a.Elsewhere = append(a.Elsewhere, s)
		}
	}
	return a
}

func (m *Member) detachClient(core *core.Core, c *clientConn) {
	core.DetachClient(c.incarnation, c)
	if m.clients.attached[c.incarnation] == c {
		delete(m.clients.attached, c.incarnation)
		m.metrics.Clients.Store(int64(len(m.clients.attached)))
	}
	m.clients.attaching.remove(c)
	c.renewing = 0 // in clients.renewing until the next tick
}

// Notify implements core.Client. The notices of one step are sent together.
func (c *clientConn) Notify(n *wire.Notice) {
	if len(c.notices) == 0 {
		c.clients.touched = append(c.clients.touched, c)
	}
	c.notices = append(c.notices, n)
}

// send sends a frame of about that size. A client that does not read loses its connection.
func (c *clientConn) send(f *wire.MemberFrame, size int) { c.conn.Send(f, size) }

// maxNotices are sent in one frame. The largest outcome, of a transaction, has some KiB, and a
// frame of a member 4 MiB at most.
const maxNotices = 500

// deliverToClients sends what the last step had for clients. Each part of it has the index of the
// whole: a client that gets the first one only must not attach to an earlier state, and asks for
// the outcomes that it lacks.
func (m *Member) deliverToClients() {
	for _, c := range m.clients.touched {
		for notices := range slices.Chunk(c.notices, maxNotices) {
			c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Delivery{Delivery: &wire.Delivery{
				Applied: m.core.Status().Applied, Notices: notices,
			}}}, sizeOf(notices))
		}
		c.notices = nil
	}
	clear(m.clients.touched)
	m.clients.touched = m.clients.touched[:0]
	if len(m.clients.attaching) > 0 {
		m.attachClients(m.core)
	}
}

// resend asks the clients to send again what has no outcome yet.
func (s *clients) resend() {
	for _, c := range s.attached { // order: the connections are independent of each other
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Resend{Resend: true}}, 0)
	}
}

// restored ends the connections after a snapshot has replaced the state: it stands for
// entries whose outcomes the clients have missed.
func (s *clients) restored() {
	for _, c := range s.attached { // order: as in resend
		c.conn.Close(errReattach)
	}
}
