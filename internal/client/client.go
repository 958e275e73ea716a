package client

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/pause"
	"github.com/conclave-go/conclave/internal/wire"
)

// Config configures a Client.
type Config struct {
	Name           string        // of the client's own lease, for people
	TTL            time.Duration // of the client's own lease
	Checks         []string      // that the client's own lease depends on
	IncarnationTTL time.Duration // how long the group keeps the registration of a silent process
	Logger         *slog.Logger
	// Patience is for how long this process may not run before that is logged, see [pause.New]. Default: 1 s.
	Patience time.Duration

	// Idle, if not nil, lets the registration of this process expire while it uses nothing of the group: renewals end while there is no
	// lease, no command was submitted since the last renewal, and Idle reports that no call is pending. The next command registers it again.
	// The client's own lease ends when nothing was acquired by it for minutes.
	Idle func() bool
	// Beside, if not nil, is a client of this process that began before and ends after this one, and of which it uses the clock, and the watch
	// for pauses.
	Beside *Client
	// FeedRoom, if not nil, bounds what watchers may still read, together with other clients.
	FeedRoom *FeedRoom

	// LeaseEnded and HoldLost report the end of a lease and, after it, each hold
	// that was lost with it. They must not block.
	LeaseEnded func(id wire.ID, why error)
	HoldLost   func(name string, fence uint64)

	// Enter, if not nil, is called before each operation that waits for the group, and blocks until the client is
	// connected to it and registered, or ctx is done. A stale query needs no registration. Its error is that of the operation. Otherwise leave is called
	// when that has ended.
	Enter func(ctx context.Context, stale bool) (leave func(), err error)

	// Closed is the cause of a Fault of kind Closed that has no other one. It may be nil.
	Closed error
}

// Client is one process's side of the protocol. It is safe for concurrent use.
type Client struct {
	// Each has fields, and a mutex, of its own, and takes the others that it needs as pointers or functions: see newClient.
	lifetime
	commands
	leases
	checks
	feeds
	lists

	cfg     Config
	log     *slog.Logger
	clock   *leaseclock.Clock
	process Registration
	renewal renewal
	losses  losses
	pauses  *pause.Watch
	metrics Metrics
	handles atomic.Uint64 // the last number given to a handle
	attempt uint32        // of registering; used by one goroutine at a time: Register's, then the group's

	requests requests // of tenures
}

// New returns a client that is not connected to a group yet; see Start.
func New(cfg Config) *Client {
	if cfg.Beside != nil {
		return newClient(cfg, cfg.Beside.clock)
	}
	return newClient(cfg, leaseclock.New(leaseclock.System()))
}

func newClient(cfg Config, clock *leaseclock.Clock) *Client {
	c := &Client{cfg: cfg, log: cfg.Logger, clock: clock}
	c.lifetime.cause, c.lifetime.done = cfg.Closed, make(chan struct{})
	c.commands.life, c.commands.expired, c.commands.enter = &c.lifetime, c.registrationExpired, cfg.Enter
	c.leases.life, c.leases.clock, c.leases.incarnationTTL = &c.lifetime, clock, cfg.IncarnationTTL
	c.leases.byID = make(map[wire.ID]*Lease)
	c.checks.commands, c.checks.clock, c.checks.live = &c.commands, clock, c.leases.live
	c.checks.byName = make(map[string]*check)
	c.feeds.begin(&c.lifetime, cfg.FeedRoom, c.commands.query)
	c.lists.life = &c.lifetime
	c.renewal.commands, c.renewal.leases, c.renewal.clock, c.renewal.idle = &c.commands, &c.leases, clock, cfg.Idle
	c.commands.used = c.renewal.use
	c.losses.log, c.losses.lost, c.losses.report = cfg.Logger, &c.metrics.Lost, cfg.HoldLost
	if cfg.Beside != nil {
		c.pauses = cfg.Beside.pauses
	} else {
		c.pauses = c.newPauses()
	}
	c.metrics.Margin = metrics.NewLongDurations()
	return c
}

func (c *Client) newPauses() *pause.Watch {
	return pause.New(cmp.Or(c.cfg.Patience, time.Second), func(p pause.Pauses) {
		c.log.Warn("this process did not run", "paused", p.Longest.Round(pauseUnit), "pauses", p.Count, "total", p.Total.Round(pauseUnit),
			"remedy", "its leases may have ended, and other members take it for dead: look for "+pause.Causes)
	})
}

// Registration makes the command that registers this process. attempt counts the
// registrations of the process, from 0.
type Registration func(attempt uint32, ttl time.Duration) *wire.Command

// Connect gives the client its group and the registration of its process. Feed events may
// come before.
func (c *Client) Connect(g Group, r Registration) { c.group, c.process = g, r }

// Register registers this process with the group, and then keeps it registered. It
// blocks until the group has agreed, so a leader is known and the log up to that
// point is applied here. A refusal is a Fault with the machine's reply. Register may be called again, one call at a time.
func (c *Client) Register(ctx context.Context) error {
	reply, err := c.send(ctx, c.registration(), c.registered)
	for (answer{reply: reply, err: err}).expired() && c.Usable() == nil {
		// The registration came too late, or had expired before its outcome came. By
		// now the process is being registered again, ahead of what it sends next. Also that may come too late, as for a
		// group that was quiet; a renewal may be repeated.
		reply, err = c.send(ctx, renewCommand(), ignore)
	}
	if err == nil {
		err = refusal(reply)
	}
	if err == nil {
		c.renewal.begin()
		if c.cfg.Beside == nil {
			c.pauses.Start(c.clock)
		}
	}
	return err
}

// EndLeases ends every lease in this process, as a graceful shutdown does first:
// what they hold is about to be released, not lost.
func (c *Client) EndLeases() {
	for _, l := range c.leases.live() {
		l.end(c.closed(), released)
	}
}

// StopRenewing ends the renewals.
func (c *Client) StopRenewing() {
	c.renewal.stop()
	if c.cfg.Beside == nil {
		c.pauses.Stop()
	}
}

// Stopping notifies the client that the group is about to become unreachable, and why: from then on it refuses every use.
// It ends every lease, since the group may take this process for crashed at any moment; graceful says that their holds are
// not lost but released.
func (c *Client) Stopping(why error, graceful bool) {
	if why != nil {
		c.failure.Store(&why)
	}
	c.BeginShutdown()
	c.endAll(why, graceful)
}

// endAll ends every lease.
func (c *Client) endAll(why error, graceful bool) {
	end := lost
	if graceful {
		end = released
	}
	for _, l := range c.leases.live() {
		l.end(&Fault{Kind: Closed, Cause: cmp.Or(why, c.cfg.Closed)}, end)
	}
}

// Stopped notifies the client that the group can no longer be reached, and why. It
// ends every lease; graceful says that their holds are not lost but released.
func (c *Client) Stopped(why error, graceful bool) {
	c.StopRenewing()
	c.endAll(why, graceful)
	c.feeds.leave()
	c.why = why
	close(c.done)
}

// Deregister ends the registration of this process in the group, and with it its
// leases that have a TTL. It blocks until the group has agreed or ctx is done.
func (c *Client) Deregister(ctx context.Context) error {
	if c.renewal.expired() {
		return nil
	}
	answered := make(chan answer, 1)
	c.pursue(&wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}},
		func(a answer) { answered <- a })
	select {
	case a := <-answered:
		return a.err
	case <-ctx.Done():
		return contextFault(Unknown, ctx)
	}
}

// SessionEnded is called when the log reports that a session has ended, or that it
// is no longer bound to a process.
func (c *Client) SessionEnded(e fact.Ended) {
	l := c.leases.lease(e.Session)
	switch {
	case l == nil:
	case !e.Unbound:
		l.end(endedByGroup(), lost)
	case l.incarnation == e.Incarnation:
		l.end(unbound(), lost)
	}
}

// Changed is called with what one entry of the log has changed, before its
// outcomes are delivered.
func (c *Client) Changed(keys []fact.KeyChange, leaders []fact.LeaderChange) {
	c.feeds.changed(keys, leaders)
}

// ShardsChanged is called with the shards that one entry of the log has changed, before its
// outcomes are delivered.
func (c *Client) ShardsChanged(shards []fact.ShardChange) { c.feeds.shardsChanged(shards) }

// StateReplaced is called when the state begins, and when a snapshot has replaced
// it: the entries that it stands for may have ended leases or unbound them. ask
// evaluates a query at that state.
func (c *Client) StateReplaced(ask func(machine.Query) any) {
	c.feeds.restart(ask(machine.IndexQuery{}).(uint64))
	c.replacements.Add(1)
	for _, l := range c.leases.live() {
		switch v := ask(machine.SessionQuery{ID: l.id}).(*machine.SessionView); {
		case v == nil:
			l.end(endedByGroup(), lost)
		case v.Incarnation != l.incarnation:
			l.end(unbound(), lost)
		default:
			l.keeper.recallAll()
		}
	}
}

// Recalled is called when the log reports that other owners wait behind tenures.
func (c *Client) Recalled(recalls []fact.Recall) {
	for _, r := range recalls {
		if l := c.leases.lease(r.Session); l != nil {
			l.keeper.recall(r.Lock, r.Handle)
		}
	}
}

// Woke looks whether the machine was suspended, and then checks the deadlines of all
// leases and whether a renewal is due. The group calls it whenever the goroutine that
// delivers outcomes has something to do, each tick included: timers stand still while
// the machine is suspended, and lag behind the clock afterwards.
func (c *Client) Woke() {
	if c.leases.look() {
		c.renewal.woke()
	}
}

// Watch is [Group].Watch.
func (c *Client) Watch(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error {
	leave, err := c.entered(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.group.Watch(ctx, prefix, after, yield)
}

// Observe is [Group].Observe.
func (c *Client) Observe(ctx context.Context, election string, yield func(*fact.Leader) bool) error {
	leave, err := c.entered(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.group.Observe(ctx, election, yield)
}

// AwaitLists blocks until what lists of members, sessions and checks show has another number than after, and returns that. Numbers
// are those of [Client.ListsChanged].
func (c *Client) AwaitLists(ctx context.Context, after uint64) (uint64, error) {
	leave, err := c.entered(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	return c.lists.await(ctx, after)
}

// ObserveShards is [Group].FollowShards.
func (c *Client) ObserveShards(ctx context.Context, set string, yield func(ShardsUpdate) bool) error {
	leave, err := c.entered(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.group.FollowShards(ctx, set, yield)
}

// Wait waits for the goroutines of a client that has stopped, and until each end of a lease or of a hold is reported: one that came before Stopped may be under way
// on another goroutine, such as that of a timer.
func (c *Client) Wait() {
	c.losses.underWay.Wait()
	c.requests.wait()
}

// registrationExpired registers this process under another incarnation, after the
// group has let the given one expire: no lease is bound to that any more.
func (c *Client) registrationExpired(incarnation wire.ID) {
	if c.Usable() != nil && c.renewal.isStopped() {
		return // this process deregistered itself. One that leaves its group is still to submit what removes it.
	}
	c.leases.unbindAll(incarnation)
	c.group.Reregister(incarnation, func() ([]byte, Call) {
		c.attempt++
		return encode(c.registration()), &call{commands: &c.commands, on: func(a answer) {
			c.registered(a)
			if err := a.fault(); err != nil {
				c.log.Warn("registering again failed", "error", err)
			}
		}}
	})
}

func (c *Client) registration() *wire.Command { return c.process(c.attempt, c.cfg.IncarnationTTL) }

// registered passes on the outcome of a registration.
func (c *Client) registered(a answer) {
	if a.err == nil {
		c.group.Registered(a.reply)
	}
}
