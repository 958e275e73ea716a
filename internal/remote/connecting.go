package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// link is a connection to a member. The loop owns what follows incarnation.
type link struct {
	conn        *transport.ClientConn
	addr        string
	incarnation wire.ID // that the connection has proven

	// Ticks; 0: none. See leaving.go.
	askedAt      uint64 // since then the member has owed an answer
	renewalAt    uint64 // when the oldest renewal without an answer was sent
	heardAt      uint64 // when the group has last answered
	leaderlessAt uint64 // since then the member has had no leader
	probing      bool   // a probe is without an answer
	probes       int    // that were answered since anything else was, up to maxProbeShift
}

const (
	attachTimeout      = 3 * time.Second
	minPause, maxPause = 50 * time.Millisecond, 2 * time.Second // between attempts at all addresses
)

var (
	errUnexpected  = errors.New("unexpected frame")
	errAttachTime  = errors.New("the member did not attach this process in time: it lags, or has no leader")
	errReconnected = errors.New("another connection has replaced this one")
	errNoFurther   = errors.New("the member runs a build that serves clients the default group only: upgrade it, or connect to another member")
)

// place is where this process is connected, for all goroutines.
type place struct {
	mu      sync.Mutex
	link    *link         // guarded by mu; attached; nil: none
	why     error         // guarded by mu; of the last failure
	trying  string        // guarded by mu; the address that is dialed, or was last
	changed chan struct{} // guarded by mu; closed by the next change
	cluster wire.ID       // guarded by mu; that of the last member that was connected
}

func (p *place) set(l *link, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil || why != nil {
		p.why = why
	}
	if p.link = l; l != nil {
		p.cluster = l.conn.Peer().Cluster
	}
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

// Cluster returns the cluster whose members this process is connected to; zero: none was connected yet.
func (g *Group) Cluster() wire.ID {
	g.place.mu.Lock()
	defer g.place.mu.Unlock()
	return g.place.cluster
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
	cluster, pause := g.cfg.Cluster, minPause
	for g.lifetime.Err() == nil {
		p, err := g.plan()
		if err != nil {
			return
		}
		won, err := g.find(p, cluster)
		if err != nil {
			rest(g.lifetime, max(min(pause, p.time/8), minPause))
			pause = min(2*pause, maxPause)
			continue
		}
		cluster = won.link.conn.Peer().Cluster
		began := time.Now()
		err = g.follow(won)
		if g.lifetime.Err() != nil {
			return
		}
		g.place.set(nil, err)
		g.log.Info("connection to member lost", "addr", won.link.addr, "error", err)
		if time.Since(began) > maxPause || errors.Is(err, errNoAnswer) || errors.Is(err, errLeaderless) {
			pause = minPause
			continue
		}
		rest(g.lifetime, max(min(pause, p.time/8), minPause))
		pause = min(2*pause, maxPause)
	}
}

// plan returns what the search for a member begins with.
func (g *Group) plan() (p plan, err error) {
	var members []string
	if g.cfg.Members != nil {
		members = g.cfg.Members()
	}
	err = g.await(func() error {
		g.addresses.learn(members)
		p = plan{identity: g.identity, addresses: g.addresses.inOrder(g.cfg.Addresses), left: maps.Clone(g.leaving.left), time: g.cfg.Left()}
		return nil
	})
	return p, err
}

// follow uses the connection of an attempt that has won, and blocks until it has ended.
func (g *Group) follow(won *attempt) error {
	l := won.link
	stop := context.AfterFunc(g.lifetime, func() { l.conn.Close(g.closed()) })
	defer stop()
	err := g.await(func() error { return g.attached(l, won.attached, won.rank) })
	if err == nil {
		err = g.read(l)
	}
	l.conn.Close(err)
	g.loses(l)
	won.cancel(nil)
	return l.conn.Err()
}

// rest waits for about that long, unless ctx is done before: thousands of clients lose a member at the same moment.
func rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await has the loop run something, and returns its result.
func (g *Group) await(run func() error) error {
	result := make(chan error, 1)
	g.mailbox.Post(func() { result <- run() })
	select {
	case err := <-result:
		return err
	case <-g.lifetime.Done():
		return g.closed()
	}
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
	g.mailbox.Post(func() {
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
		l.renewalAt = 0
		g.hears()
		g.renewedBy(body.Renewed)
	case *wire.MemberFrame_Resend:
		g.send(g.tickets.RetryAll)
		g.sendRenewal()
	case *wire.MemberFrame_View:
		g.addresses.learn(body.View.GetMembers())
		g.noteLevel(body.View.GetLevel())
		g.noteLeader(l, body.View.GetLeaderless())
	case nil: // of a later version, which does not need it
	default:
		return errUnexpected
	}
	return nil
}

// deliver delivers what a member sends, in the order of the log.
func (g *Group) deliver(d *wire.Delivery) {
	g.applied = d.GetApplied()
	for _, n := range d.GetNotices() {
		switch body := n.GetBody().(type) {
		case *wire.Notice_Outcome:
			g.outcome(body.Outcome)
		case *wire.Notice_Ended:
			session, _ := wire.IDFrom(body.Ended.GetSession())
			g.cfg.Ended(fact.Ended{Incarnation: g.identity.incarnation, Session: session, Unbound: body.Ended.GetUnbound()})
		case *wire.Notice_Recall:
			session, _ := wire.IDFrom(body.Recall.GetSession())
			g.cfg.Recalled([]fact.Recall{{
				Session: session, Incarnation: g.identity.incarnation, Lock: body.Recall.GetLock(), Handle: body.Recall.GetHandle(),
				Shared: body.Recall.GetShared(), Share: body.Recall.GetShare(),
			}})
		}
	}
}

func (g *Group) outcome(o *wire.DeliveredOutcome) {
	registering := !g.tickets.Registered()
	call, ok := g.tickets.Outcome(o.GetSeq(), o.GetMore())
	if ok {
		g.hears()
		call.Deliver(wire.Ticket{Incarnation: g.identity.incarnation, Seq: o.GetSeq()}, o.GetReply(), o.GetMore())
	}
	if registering && ok && o.GetReply().GetCode() != wire.Code_OK {
		waiting := g.tickets.Refuse()
		for _, renewal := range g.renewals {
			waiting = append(waiting, renewal.call)
		}
		g.renewals = nil
		for _, call := range waiting {
			tickets.Answer(call, g.identity.incarnation, o.GetReply())
		}
	}
	if registering && g.tickets.Registered() {
		g.sendRenewal()
	}
}

// renewedBy delivers the answer to a renewal, which is that of all before it as well.
func (g *Group) renewedBy(r *wire.Renewed) {
	g.noteLevel(r.GetLevel())
	g.now = max(g.now, r.GetNow())
	reply := &wire.Reply{Code: wire.Code_OK, Now: r.GetNow()}
	if r.GetUnknown() {
		reply = &wire.Reply{Code: wire.Code_UNKNOWN_INCARNATION}
	}
	for len(g.renewals) > 0 && g.renewals[0].number <= r.GetNumber() {
		call := g.renewals[0].call
		g.renewals = g.renewals[1:]
		call.Deliver(wire.Ticket{Incarnation: g.identity.incarnation}, reply, false)
	}
}

// noteLevel notes the feature level that a member states. It never falls, but a member may lag
// behind another one.
func (g *Group) noteLevel(level uint32) { g.level.Store(max(g.level.Load(), level)) }

var _ client.Group = (*Group)(nil)
