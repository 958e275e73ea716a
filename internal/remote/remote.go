package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// Group is the group, as a process sees it that is no member. It implements client.Group.
type Group struct {
	cfg     Config
	log     *slog.Logger
	dialer  *transport.Dialer
	mailbox *wait.Mailbox[func()]
	level   atomic.Uint32
	process atomic.Uint64
	asking  asking
	place   place

	// Owned by the loop.
	identity identity
	tickets  *tickets.Table[client.Call]
	renewals []renewal
	renewed  uint64 // the number of the last renewal
	applied  uint64 // everything up to here has been delivered
	now      int64  // group time, as a member has stated it last
	link     *link  // attached; nil: none
	ticks    uint64

	addresses addresses
	leaving   leaving

	lifetime context.Context
	end      context.CancelCauseFunc
	routines sync.WaitGroup
	done     chan struct{}
}

// renewal is a renewal without an answer.
type renewal struct {
	number uint64
	call   client.Call
}

// identity is that of one registration of this process.
type identity struct {
	key         ed25519.PrivateKey
	id          uint64
	incarnation wire.ID
}

var (
	// ErrClosed: the group was closed.
	ErrClosed = errors.New("the client is closed")
	// ErrDeleted: the further group was deleted.
	ErrDeleted = tickets.ErrDeleted
)

// tick is the unit of retries.
const tick = 100 * time.Millisecond

// queueBytes bounds what is queued for the member: half of it has room for the ordinary commands
// that are under way.
const queueBytes = 12 << 20

// New returns a group to which nothing is connected yet; see Start. An error lists every fault
// of the settings for connections.
func New(cfg Config) (*Group, error) {
	dialer, err := newDialer(&cfg)
	if err != nil {
		return nil, err
	}
	own, err := newIdentity()
	if err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, log: cfg.Logger, dialer: dialer, identity: own, tickets: tickets.New[client.Call](), done: make(chan struct{})}
	g.process.Store(own.id)
	g.mailbox = wait.NewMailbox[func()]()
	g.asking = newAsking()
	g.place.changed = make(chan struct{})
	g.lifetime, g.end = context.WithCancelCause(context.Background())
	g.tickets.Share(cfg.Budget)
	g.tickets.Gate()
	return g, nil
}

func newDialer(cfg *Config) (*transport.Dialer, error) {
	return transport.NewDialer(transport.DialerConfig{
		Group: cfg.Group, FurtherGroup: cfg.Further, Beside: cfg.Further != 0, Name: cfg.Name, Dial: cfg.Dial, Calls: cfg.Calls, TLS: cfg.TLS, Insecure: cfg.Insecure, Admit: cfg.Admit, Logger: cfg.Logger,
		Limits: transport.Limits{ClientQueueBytes: queueBytes},
	})
}

func newIdentity() (identity, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return identity{}, err
	}
	return identity{key, wire.FingerprintOf(public), wire.ClientIncarnation(public)}, nil
}

// Start begins to connect.
func (g *Group) Start() {
	g.routines.Go(g.loop)
	g.routines.Go(g.connect)
	go func() {
		g.routines.Wait()
		close(g.done)
	}()
}

// Close ends the connection, and waits until the goroutines have ended. Calls under way fail with the given error: ErrClosed, or ErrDeleted of a
// further group that was deleted. The Close of the default group's Group, which is the last of a process, waits for functions of the application as well:
// if each did, a process with many groups would wait as many times for one that never returns.
func (g *Group) Close(why error) {
	g.end(why)
	<-g.done
	_ = g.dialer.Close() // its connections have ended
}

// Unused reports whether nothing that this process has submitted waits for the group. With end the connection ends then, and Close waits for that; the caller makes
// sure that nothing is submitted or asked meanwhile.
func (g *Group) Unused(end bool) bool {
	result := make(chan bool, 1)
	if !g.mailbox.Post(func() {
		unused := g.tickets.Backlog().Calls == 0 && !g.tickets.Awaits() && len(g.renewals) == 0
		if unused && end {
			g.end(ErrClosed)
		}
		result <- unused
	}) {
		return true // all has failed
	}
	return <-result // it runs when the group is closed, too
}

// Members returns the addresses of the members, as the group has stated them last.
func (g *Group) Members() []string {
	members := make(chan []string, 1)
	if g.await(func() error {
		members <- slices.Clone(g.addresses.members)
		return nil
	}) != nil {
		return nil
	}
	return <-members
}

// Registration makes the command that registers this process. It is called once for each
// identity: before any other command, once a member is connected, and by Reregister. If the
// group time that it is based on is too old, the group refuses the registration as expired,
// and another one follows.
func (g *Group) Registration(_ uint32, ttl time.Duration) *wire.Command {
	public := g.identity.key.Public().(ed25519.PublicKey) // always of that type
	return &wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: &wire.RegisterClient{
		Key: public, Ttl: int64(ttl), Until: g.now + min(int64(ttl), machine.MaxRegistering),
	}}}
}

// AwaitMember blocks until a member is connected, or ctx is done.
func (g *Group) AwaitMember(ctx context.Context) error {
	for {
		l, changed, _ := g.place.get()
		if l != nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-g.lifetime.Done():
			return g.closed()
		}
	}
}

// loop owns the calls of this process.
func (g *Group) loop() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	defer g.failAll()
	for {
		due := g.tick
		select {
		case <-ticker.C:
		case <-g.mailbox.Ready():
			due = g.run
		case <-g.lifetime.Done():
			return
		}
		g.cfg.Woke() // before an outcome is delivered: the machine may have been suspended
		due()
		g.send(g.tickets.Issue)
	}
}

// tick does what is due at each tick.
func (g *Group) tick() {
	g.ticks++
	g.send(g.tickets.Overdue)
	g.checkLink()
}

// run runs the events of the mailbox.
func (g *Group) run() {
	for _, event := range g.mailbox.Fetch() {
		event()
	}
}

// failAll fails what is under way when the group is closed.
func (g *Group) failAll() {
	for _, run := range g.mailbox.Close() {
		run() // what it submits fails below
	}
	if g.link != nil {
		g.link.conn.Close(ErrClosed)
	}
	sent, queued := g.tickets.Drain()
	tickets.FailAll(sent, queued, g.closed())
	for _, r := range g.renewals {
		r.call.Fail(g.closed())
	}
}

func (g *Group) closed() error { return context.Cause(g.lifetime) }

// Submit implements client.Group.
func (g *Group) Submit(_ int, encode func() []byte, c client.Call, urgent bool) {
	if g.cfg.ReadOnly {
		c.Fail(&client.Fault{Kind: client.ReadOnly})
		return
	}
	command := encode()
	if !g.mailbox.Post(func() {
		switch {
		case g.tickets.Refused():
			tickets.Answer(c, g.identity.incarnation, nil)
		case !g.tickets.Admits(len(command), urgent, g.cfg.MaxCalls, g.cfg.MaxCallBytes):
			c.Fail(tickets.ErrTooManyCalls)
		default:
			g.tickets.Add(command, c, urgent)
		}
	}) {
		c.Fail(&tickets.UnsentError{Cause: g.closed()})
	}
}

// Renew implements client.Group: the member renews many clients by one command.
func (g *Group) Renew(_ int, _ func() []byte, c client.Call) {
	if !g.mailbox.Post(func() {
		if g.tickets.Refused() {
			tickets.Answer(c, g.identity.incarnation, nil)
			return
		}
		g.renewed++
		g.renewals = append(g.renewals, renewal{g.renewed, c})
		g.sendRenewal()
	}) {
		c.Fail(g.closed())
	}
}

// Cancel implements client.Group.
func (g *Group) Cancel(c client.Call) {
	g.mailbox.Post(func() { c.Cancelled(!g.tickets.Cancel(c)) })
}

// Reregister implements client.Group: this process goes on as another client, since a client
// whose registration has expired never comes back.
func (g *Group) Reregister(expired wire.ID, register func() ([]byte, client.Call)) {
	g.mailbox.Post(func() {
		if g.identity.incarnation != expired {
			return // another caller has reregistered
		}
		own, err := newIdentity()
		if err != nil {
			g.end(err)
			return
		}
		sent, queued := g.tickets.Drain()
		renewals := g.renewals
		g.identity, g.renewals, g.applied = own, nil, 0
		g.process.Store(own.id)
		g.tickets.Gate()
		command, call := register()
		g.tickets.Add(command, call, true)
		g.disconnect(tickets.ErrUnregistered)
		for _, call := range sent {
			call.Fail(tickets.ErrUnregistered)
		}
		for _, call := range queued {
			tickets.Answer(call, expired, nil)
		}
		for _, r := range renewals {
			r.call.Fail(tickets.ErrUnregistered)
		}
	})
}

// Registered implements client.Group.
func (g *Group) Registered(*wire.Reply) {}

// Process implements client.Group.
func (g *Group) Process() uint64 { return g.process.Load() }

// Level implements client.Group.
func (g *Group) Level() uint32 { return min(g.level.Load(), wire.FeatureLevel) }

// send sends the commands that next returns.
func (g *Group) send(next func(tick uint64) tickets.Outgoing) {
	if g.link == nil {
		return
	}
	out := next(g.ticks)
	g.sendLane(out.Urgent, true)
	g.sendLane(out.Ordinary, false)
}

func (g *Group) sendLane(calls []*wire.Call, urgent bool) {
	for calls := range tickets.Split(calls) {
		g.link.asked(g.ticks)
		size := 0
		for _, c := range calls {
			size += len(c.GetCommand())
		}
		// Without room, as on a slow network, the next retry follows.
		g.link.conn.Offer(&wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: &wire.Submission{
			Floor: g.tickets.Floor(), Calls: calls, Urgent: urgent, Applied: g.applied,
		}}}, size, !urgent)
	}
}

// sendRenewal sends the latest renewal: it answers for those before. It waits for the
// registration: what overtook that would find nothing to renew.
func (g *Group) sendRenewal() {
	if g.link != nil && len(g.renewals) > 0 && g.tickets.Registered() {
		g.link.asked(g.ticks)
		if g.link.renewalAt == 0 {
			g.link.renewalAt = max(g.ticks, 1)
		}
		g.link.conn.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Renew{Renew: g.renewals[len(g.renewals)-1].number}}, 0)
	}
}
