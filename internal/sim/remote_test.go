package sim

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// remote is a client's way to the group: a connection to one member after the other. It
// stands for internal/remote, whose connections have goroutines of their own: same steps,
// same order, the production tickets. A client's process has no core and no disk, and its
// number follows those of the members.
type remote struct {
	*process
	key      []byte
	id       uint64
	tickets  *tickets.Table[*simCall]
	renewals []remoteRenewal
	renewed  uint64 // the number of the last renewal
	applied  uint64 // everything up to here has been delivered
	now      int64  // group time, as a member has stated it last
	agreed   uint32 // feature level
	ticks    uint64
	link     *link // attached; nil: none
	next     int   // the member to try next
	begun    bool  // the first registration was submitted
	renews   bool  // and has succeeded
	seen     int   // of what the log has for the incarnation: see delivered
	lastRead uint64
	reads    map[uint64]*simRead // without an answer
}

// remoteRenewal is a renewal without an answer.
type remoteRenewal struct {
	number uint64
	on     func(*wire.Reply)
}

// link is a connection to a member.
type link struct {
	conn        *connection
	incarnation wire.ID
	attached    bool
	attachedAt  uint64 // a tick
	askedAt     uint64 // the tick at which the oldest renewal without an answer was sent; 0: none
}

// As in production.
const (
	attachTimeout  = 3 * time.Second
	clientMaxCalls = 100
)

// addRemotes adds the hosts of clients. Their numbers follow those of the members.
func (sim *simulation) addRemotes(n int) {
	for range n {
		sim.remotes = append(sim.remotes, &simMember{host: new(host), sim: sim, n: len(sim.members) + len(sim.remotes)})
	}
}

// startRemote starts a new client on the host.
func (m *simMember) startRemote() {
	m.boot++
	proc := &process{simMember: m, hostProcess: &hostProcess{startedAt: m.sim.now, clockSetAt: m.sim.now}}
	m.process = proc
	r := &remote{process: proc, tickets: tickets.New[*simCall](), next: m.sim.rng.IntN(len(m.sim.members)), reads: make(map[uint64]*simRead)}
	proc.remote = r
	proc.program = &program{process: proc, gateway: r, knownKeys: make(map[string]*wire.KeyMeta)}
	r.drawKey()
	r.tickets.Gate()
	m.sim.trace("client %d starts, number %d", m.n, m.boot)
	proc.after(0, r.connect)
	proc.after(m.sim.between(0, tick), r.tick)
	proc.after(m.sim.between(0, 100*time.Millisecond), proc.program.act)
}

// kill ends the client's process.
func (m *simMember) kill() {
	proc := m.process
	if proc == nil {
		return
	}
	m.sim.trace("client %d is killed", m.n)
	m.sim.remote.killed++
	m.process = nil
	proc.program.terminate()
	if l := proc.remote.link; l != nil {
		l.conn.close(clientEnd)
	}
}

// drawKey draws the identity for the next registration.
func (r *remote) drawKey() {
	a, b := r.sim.newID(), r.sim.newID()
	r.key = slices.Concat(a[:], b[:])
	r.id, r.program.incarnation = wire.FingerprintOf(r.key), wire.ClientIncarnation(r.key)
	r.seen, r.sim.history.clients[r.program.incarnation] = 0, true
}

// registration makes the command that registers the client.
func (r *remote) registration() ([]byte, *simCall) {
	p, incarnation := r.program, r.program.incarnation
	command := &wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: &wire.RegisterClient{
		Key: r.key, Ttl: int64(incarnationTTL), Until: r.now + min(int64(incarnationTTL), machine.MaxRegistering),
	}}}
	return p.encode(command), p.newCall(func(_ wire.Ticket, reply *wire.Reply, _ bool) {
		if incarnation != p.incarnation || reply == nil || reply.GetCode() == wire.Code_UNKNOWN_INCARNATION {
			return // replaced, or it came too late
		}
		if reply.GetCode() != wire.Code_OK {
			p.sim.fail("client %d: register: %v", p.n, reply)
		}
		p.registered, r.renews = true, true
		r.sim.remote.registrations++
	})
}

func (r *remote) tick() {
	r.ticks++
	r.send(r.tickets.Overdue)
	r.checkLink()
	r.send(r.tickets.Issue)
	r.after(r.simulatedTime(tick), r.tick)
}

// checkLink gives up a member that does not acknowledge renewals, or the registration.
func (r *remote) checkLink() {
	l := r.link
	if l == nil {
		return
	}
	asked := l.askedAt
	if !r.tickets.Registered() {
		asked = l.attachedAt
	} else if asked == 0 {
		return
	}
	if time.Duration(r.ticks-asked)*tick > r.patience() {
		r.sim.trace("client %d gives its member up", r.n)
		r.drop(l)
	}
}

// patience is how long a member may take to acknowledge a renewal, as Client.patience says.
func (r *remote) patience() time.Duration {
	span := incarnationTTL
	if s := r.program.session; s != nil {
		span = min(span, s.ttl)
	}
	return min(max(span/3, 300*time.Millisecond), 2*time.Second)
}

// connect tries the next member, or the same one again, as if it were the only address.
func (r *remote) connect() {
	if r.sim.chance(0.7) {
		r.next++
	}
	m := r.sim.members[r.next%len(r.sim.members)]
	r.after(r.sim.between(2*r.sim.network.minDelay, 2*r.sim.network.maxDelay), func() {
		cut, to := r.sim.network.cut, m.process
		if to == nil || to.pausedUntil > r.sim.now || cut[r.n][m.n] || cut[m.n][r.n] || !to.serving.serves() {
			r.reconnect()
			return
		}
		l := &link{conn: newConnection(r.process, to), incarnation: r.program.incarnation}
		l.conn.ends[clientEnd].receive = func(body []byte) { r.receive(l, body) }
		l.conn.ends[clientEnd].lost = func() { r.lose(l) }
		to.serving.accept(l.conn, r.id, l.incarnation)
		l.conn.send(clientEnd, &wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: r.attachment()}})
		r.after(r.simulatedTime(attachTimeout), func() {
			if !l.attached {
				r.drop(l)
			}
		})
	})
}

// reconnect connects to another member after a pause.
func (r *remote) reconnect() {
	r.after(r.sim.between(25*time.Millisecond, 500*time.Millisecond), r.connect)
}

// drop closes a link from this end.
func (r *remote) drop(l *link) {
	if l.conn.ends[clientEnd].open {
		l.conn.close(clientEnd)
		r.lose(l)
	}
}

func (r *remote) lose(l *link) {
	if r.link == l {
		r.link = nil
		r.sim.trace("client %d loses its member", r.n)
	}
	r.reconnect()
}

// attachment describes what the client may have missed.
func (r *remote) attachment() *wire.Attach {
	a := &wire.Attach{Applied: r.applied}
	for _, seq := range r.tickets.AwaitingInOrder() {
		call, _ := r.tickets.Awaiting(seq)
		w := &wire.Awaiting{Seq: seq}
		call.Recheck(noter{w}, wire.Ticket{Incarnation: r.program.incarnation, Seq: seq})
		a.Awaiting = append(a.Awaiting, w)
	}
	for _, s := range []*simSession{r.program.session, r.program.noTTL} {
		if s != nil && s.open && !s.lost {
			a.Sessions = append(a.Sessions, slices.Clone(s.id[:]))
		}
	}
	return a
}

// noter is a wire.Rechecker that notes what a call asks for.
type noter struct{ awaiting *wire.Awaiting }

func (n noter) Recheck(_ wire.Ticket, session wire.ID, semaphore, job string) *wire.Reply {
	n.awaiting.Session, n.awaiting.Semaphore, n.awaiting.Job = session[:], semaphore, job
	return nil
}

// receive handles a frame of the member.
func (r *remote) receive(l *link, body []byte) {
	f := new(wire.MemberFrame)
	if err := proto.Unmarshal(body, f); err != nil {
		r.sim.fail("decode a member's frame: %v", err)
	}
	if attached := f.GetAttached(); (attached != nil) == l.attached {
		r.sim.fail("client %d receives %v", r.n, f)
	}
	switch body := f.GetBody().(type) {
	case *wire.MemberFrame_Attached:
		if l.attached = true; l.incarnation != r.program.incarnation {
			r.drop(l)
			return
		}
		r.attached(l, body.Attached)
	case *wire.MemberFrame_Delivery:
		r.deliver(body.Delivery)
	case *wire.MemberFrame_Renewed:
		l.askedAt = 0
		r.renewedBy(body.Renewed)
	case *wire.MemberFrame_Resend:
		r.send(r.tickets.RetryAll)
		r.sendRenewal()
	case *wire.MemberFrame_Answer:
		r.answered(body.Answer)
	default:
		r.sim.fail("client %d receives %v", r.n, f)
	}
	r.send(r.tickets.Issue)
}

// attached begins to use a link. What the client has missed comes first.
func (r *remote) attached(l *link, a *wire.Attached) {
	if a.GetApplied() < r.applied {
		r.sim.fail("client %d has seen entry %d and attaches to the state of entry %d", r.n, r.applied, a.GetApplied())
	}
	r.sim.trace("client %d attaches to member %d at %d", r.n, l.conn.ends[memberEnd].process.n, a.GetApplied())
	r.sim.remote.attached++
	l.attachedAt = r.ticks
	r.link, r.applied, r.now, r.agreed = l, a.GetApplied(), a.GetNow(), a.GetLevel()
	r.skipDelivered(a.GetApplied())
	p, ticket := r.program, wire.Ticket{Incarnation: l.incarnation}
	for _, id := range a.GetElsewhere() {
		p.sessionEnded(fact.Ended{Incarnation: l.incarnation, Session: wire.ID(id), Unbound: true})
	}
	p.replaced(func(id wire.ID) bool {
		return slices.ContainsFunc(a.GetSessions(), func(bound []byte) bool { return wire.ID(bound) == id })
	})
	for _, o := range a.GetOutcomes() {
		if call, ok := r.tickets.Settle(o.GetSeq()); ok {
			ticket.Seq, call.rechecked = o.GetSeq(), o.GetReply()
			call.Deliver(ticket, o.GetReply(), false)
			r.sim.remote.rechecked++
		}
	}
	r.send(r.tickets.RetryAll)
	r.sendRenewal()
	if !r.begun {
		r.begun = true
		p.register()
	}
	for _, id := range slices.Sorted(maps.Keys(r.reads)) {
		read := r.reads[id]
		delete(r.reads, id)
		r.ask(read)
	}
}

// deliver delivers what a member sends, in the order of the log.
func (r *remote) deliver(d *wire.Delivery) {
	if d.GetApplied() < r.applied {
		r.sim.fail("client %d has seen entry %d, and is delivered what entry %d means", r.n, r.applied, d.GetApplied())
	}
	r.checkDelivered(d)
	p := r.program
	r.applied = d.GetApplied()
	for _, n := range d.GetNotices() {
		switch body := n.GetBody().(type) {
		case *wire.Notice_Outcome:
			o, registered := body.Outcome, r.tickets.Registered()
			if call, ok := r.tickets.Outcome(o.GetSeq(), o.GetMore()); ok {
				call.Deliver(wire.Ticket{Incarnation: p.incarnation, Seq: o.GetSeq()}, o.GetReply(), o.GetMore())
				if !registered && o.GetReply().GetCode() != wire.Code_OK {
					r.refused(o.GetReply())
				}
			}
			if !registered {
				r.sendRenewal()
			}
		case *wire.Notice_Ended:
			p.sessionEnded(fact.Ended{Incarnation: p.incarnation, Session: wire.ID(body.Ended.GetSession()), Unbound: body.Ended.GetUnbound()})
		case *wire.Notice_Recall:
			p.recalled([]fact.Recall{{
				Session: wire.ID(body.Recall.GetSession()), Incarnation: p.incarnation, Lock: body.Recall.GetLock(), Handle: body.Recall.GetHandle(),
			}})
		}
	}
}

// refused answers what has waited for a registration that the group has refused.
func (r *remote) refused(reply *wire.Reply) {
	waiting, renewals := r.tickets.Refuse(), r.renewals
	r.renewals = nil
	for _, call := range waiting {
		tickets.Answer(call, r.program.incarnation, reply)
	}
	for _, renewal := range renewals {
		renewal.on(nil)
	}
}

// renewedBy delivers the answer to a renewal, which is that of all before it as well.
func (r *remote) renewedBy(a *wire.Renewed) {
	r.agreed, r.now = a.GetLevel(), a.GetNow()
	reply := &wire.Reply{Code: wire.Code_OK, Now: a.GetNow()}
	if a.GetUnknown() {
		reply.Code = wire.Code_UNKNOWN_INCARNATION
		r.program.registrationExpired(r.program.incarnation)
	}
	for len(r.renewals) > 0 && r.renewals[0].number <= a.GetNumber() {
		on := r.renewals[0].on
		r.renewals = r.renewals[1:]
		on(reply)
	}
}
