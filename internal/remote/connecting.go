package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// link is a connection to a member.
type link struct {
	conn        *transport.ClientConn
	addr        string
	incarnation wire.ID // that the connection has proven
	askedAt     uint64  // owned by the loop: the tick at which the registration, or the oldest renewal, without an answer was sent; 0: none
}

// asked notes that the member owes an answer from now on.
func (l *link) asked(tick uint64) {
	if l.askedAt == 0 {
		l.askedAt = max(tick, 1)
	}
}

const (
	attachTimeout      = 3 * time.Second
	minPause, maxPause = 50 * time.Millisecond, 2 * time.Second // between attempts at all addresses
)

var (
	errUnexpected  = errors.New("unexpected frame")
	errAttachTime  = errors.New("the member did not attach this process in time: it lags, or has no leader")
	errNoAnswer    = errors.New("the member has not acknowledged the registration, or a renewal, in time: it lags, or no quorum is reachable from it")
	errReconnected = errors.New("another connection has replaced this one")
)

// place is where this process is connected, for all goroutines.
type place struct {
	mu      sync.Mutex
	link    *link         // guarded by mu; attached; nil: none
	why     error         // guarded by mu; of the last failure
	trying  string        // guarded by mu; the address that is dialed, or was last
	changed chan struct{} // guarded by mu; closed by the next change
}

func (p *place) set(l *link, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil || why != nil {
		p.why = why
	}
	p.link = l
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *place) tries(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trying = addr
}

func (p *place) get() (*link, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link, p.changed, p.why
}

// Unreachable implements client.Group.
func (g *Group) Unreachable() string {
	l, _, why := g.place.get()
	if l != nil || why == nil {
		return ""
	}
	return fmt.Sprintf("not connected to any member: %v", why)
}

// Err returns why this process is not connected to a member; nil: it is, or has not tried yet.
func (g *Group) Err() error {
	l, _, why := g.place.get()
	if l != nil {
		return nil
	}
	return why
}

// Trying returns the address from which this process awaits an answer before it is connected
// for the first time; "": none.
func (g *Group) Trying() string {
	g.place.mu.Lock()
	defer g.place.mu.Unlock()
	if g.place.link != nil || g.place.why != nil {
		return ""
	}
	return g.place.trying
}

// connect keeps this process connected to a member, one after the other.
func (g *Group) connect() {
	var (
		cluster wire.ID
		members []string
		next    = rand.IntN(len(g.cfg.Addresses))
		failed  int
		pause   = minPause
	)
	for g.lifetime.Err() == nil {
		addresses := g.addresses(members)
		addr := addresses[next%len(addresses)]
		next++
		began := time.Now()
		g.place.tries(addr)
		attached, err := g.connectTo(addr, &cluster)
		if g.lifetime.Err() != nil {
			return
		}
		g.place.set(nil, err)
		if attached != nil {
			members, failed = attached.GetMembers(), 0
			g.log.Info("connection to member lost", "addr", addr, "error", err)
			if time.Since(began) > maxPause {
				pause = minPause
				continue
			}
		} else {
			g.log.Debug("member not reached", "addr", addr, "error", err)
		}
		if failed++; failed >= len(addresses) || attached != nil {
			failed = 0
			g.wait(pause)
			pause = min(2*pause, maxPause)
		}
	}
}

// addresses returns those that were configured and those of the members.
func (g *Group) addresses(members []string) []string {
	all := slices.Clone(g.cfg.Addresses)
	for _, addr := range members {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// wait waits for about that long: thousands of clients lose a member at the same moment.
func (g *Group) wait(pause time.Duration) {
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.lifetime.Done():
	}
}

// connectTo connects to a member, and blocks until the connection has ended. attached is nil
// if it never was usable.
func (g *Group) connectTo(addr string, cluster *wire.ID) (attached *wire.Attached, err error) {
	own := make(chan identity, 1)
	if !g.mailbox.post(func() { own <- g.identity }) {
		return nil, ErrClosed
	}
	var id identity
	select {
	case id = <-own:
	case <-g.lifetime.Done():
		return nil, ErrClosed
	}
	conn, err := g.dialer.Connect(g.lifetime, addr, id.key, *cluster)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(g.lifetime, func() { conn.Close(g.closed()) })
	defer stop()
	l := &link{conn: conn, addr: addr, incarnation: id.incarnation}
	if attached, err = g.attach(l); err != nil {
		conn.Close(err)
		return nil, err
	}
	*cluster = conn.Peer().Cluster
	err = g.read(l)
	conn.Close(err)
	g.loses(l)
	return attached, conn.Err()
}

// attach asks the member to deliver outcomes from now on.
func (g *Group) attach(l *link) (*wire.Attached, error) {
	timer := time.AfterFunc(attachTimeout, func() { l.conn.Close(errAttachTime) })
	defer timer.Stop()
	g.mailbox.post(func() {
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
	return attached, g.await(func() error { return g.attached(l, attached) })
}

// await has the loop run something, and returns its result.
func (g *Group) await(run func() error) error {
	result := make(chan error, 1)
	g.mailbox.post(func() { result <- run() })
	select {
	case err := <-result:
		return err
	case <-g.lifetime.Done():
		return g.closed()
	}
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

// maxPart are in one frame: a name of a semaphore has up to 512 bytes, and a frame of a client
// some more than 1 MiB.
const maxPart = 1000

// parts cuts an Attach into frames.
func parts(a *wire.Attach) (all []*wire.Attach) {
	for {
		awaiting, sessions := min(len(a.GetAwaiting()), maxPart), min(len(a.GetSessions()), maxPart)
		part := &wire.Attach{Applied: a.GetApplied(), Awaiting: a.GetAwaiting()[:awaiting], Sessions: a.GetSessions()[:sessions]}
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
func (n noter) Recheck(_ wire.Ticket, session wire.ID, semaphore string) *wire.Reply {
	n.awaiting.Session, n.awaiting.Semaphore = session[:], semaphore
	return nil
}

// attached begins to use a link. What this process has missed comes first.
func (g *Group) attached(l *link, a *wire.Attached) error {
	if l.incarnation != g.identity.incarnation {
		return ErrUnregistered
	}
	g.disconnect(errReconnected)
	g.link, g.applied, g.now = l, a.GetApplied(), a.GetNow()
	g.level.Store(a.GetLevel())
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
	g.log.Info("connected to member", "addr", l.addr, "member", wire.MemberID(l.conn.Peer().Member))
	return nil
}

// disconnect ends the present link.
func (g *Group) disconnect(why error) {
	if g.link != nil {
		g.link.conn.Close(why)
		g.link = nil
	}
}

// loses reports to the loop that a link has ended.
func (g *Group) loses(l *link) {
	g.mailbox.post(func() {
		if g.link == l {
			g.link = nil
		}
	})
	g.asking.lost(l)
}

// read reads what a member sends, until the connection ends.
func (g *Group) read(l *link) error {
	for {
		f := new(wire.MemberFrame)
		if err := l.conn.Read(f); err != nil {
			return err
		}
		if a := f.GetAnswer(); a != nil {
			g.asking.answered(l, a) // not through the loop, which large answers must not delay
			continue
		}
		if err := g.await(func() error { return g.receive(l, f) }); err != nil {
			return err
		}
	}
}

// receive handles a frame on the loop.
func (g *Group) receive(l *link, f *wire.MemberFrame) error {
	if g.link != l {
		return errReconnected
	}
	switch body := f.GetBody().(type) {
	case *wire.MemberFrame_Delivery:
		g.deliver(body.Delivery)
	case *wire.MemberFrame_Renewed:
		l.askedAt = 0
		g.renewedBy(body.Renewed)
	case *wire.MemberFrame_Resend:
		g.send(g.tickets.RetryAll)
		g.sendRenewal()
	default:
		return errUnexpected
	}
	return nil
}

// checkLink gives up a member that does not acknowledge what the group has to: others may be
// able to.
func (g *Group) checkLink() {
	if l := g.link; l != nil && l.askedAt != 0 && time.Duration(g.ticks-l.askedAt)*tick > g.cfg.Patience() {
		g.disconnect(errNoAnswer)
	}
}

var _ client.Group = (*Group)(nil)
