package conclave

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/survey"
	"github.com/conclave-go/conclave/internal/wire"
)

// ClientConfig configures a Client. [Dial] works on a copy.
type ClientConfig struct {
	// Name is the name of the process, for people. Default: the host's name.
	Name string
	// Addresses are those of any members, host:port, at least one. A host may be a name
	// that stands for several members. The client learns the addresses of the other members
	// from the one that it is connected to, also when they change.
	Addresses []string
	// Group is the group's name. Default: "conclave".
	Group string
	// TLS and Insecure are as in [Config], for connections to members. A member verifies the
	// certificate of a client as that of a member.
	TLS      *tls.Config
	Insecure bool
	// VerifyPeer decides on each connection to a member, as in [Config]. Default nil: each
	// that TLS admits.
	VerifyPeer func(Peer) error
	// Dial opens connections to host:port, as in [Config]. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// SessionTTL is the TTL of the client's own session, as in [Config]: 1 s to 24 h.
	// Default: 10 s. To keep its session a client has to find another member within that time
	// when its member fails.
	SessionTTL time.Duration
	// ReadOnly makes a client that reads and does nothing else: commands, sessions, and what members are asked to do
	// return ErrInvalid. The group does not register it, so Dial needs no quorum, only a member that answers, and the
	// client costs the group no entry of its log. Without a quorum it is the way to what a member has: Status, Backup,
	// and reads with [Stale]; other reads block until there is one. SessionTTL has no effect. Default: false.
	ReadOnly bool
	// Logger logs what operators need to know, as in [Config]. Default: no log.
	Logger *slog.Logger
	// Events are called when something happens: SessionEnded, LockLost and HoldLost; a client calls no
	// others. Default: none.
	Events *Events
	// Tracer makes spans of calls, as in [Config]. Default: none.
	Tracer Tracer
	// Limits bounds what the client takes on.
	Limits Limits
}

// Client is the access of a process to a group that is no member of it: it has no log and no
// state, and costs the group one connection to one of the members, and each further group that it uses another one. It has the same nouns as a
// [Node], with the same promises: each command takes effect exactly once, waiters are served
// in FIFO order, and a holder that cannot renew its session learns of the loss by its own
// clock before the group may grant the lock to another owner.
//
// When its member fails, stops or loses its leader, the client goes on with another one. Sessions, holds,
// places in queues and watches survive that, as long as it takes less than the session's TTL.
// Each call costs one more hop than at a node, and even a read with [Stale] asks a member.
// Reads beyond 96 at once wait for each other, and a watch or observer beyond 128 ends with
// ErrBusy.
//
// A client has no checks, so its sessions have none: they end by their TTL. All methods are
// safe for concurrent use.
type Client struct {
	*Group // the default group
	cfg    ClientConfig
	app    *application
	log    *slog.Logger
	remote *remote.Group
	groups *clientGroups
	events *events

	shutdown *shutdown
	routines sync.WaitGroup
	done     chan struct{}
	err      error // set before done is closed
}

// Dial connects to a group as a client. It blocks until the group has registered the client,
// for which a quorum has to be up, or ctx is done; with ReadOnly, until a member is connected. The Client lives until Close; ctx bounds
// Dial only.
//
// Errors: ErrInvalid with every fault of cfg at once; ErrUnavailable with ctx's error and the
// reason why no member could be reached, or has answered, in time; ErrBusy with 32,768
// clients in the group. After an error nothing is left open.
func Dial(ctx context.Context, cfg *ClientConfig) (*Client, error) {
	checked, err := cfg.withDefaults()
	if err != nil {
		return nil, fault("dial", "", err)
	}
	app := newApplication(checked.Logger)
	checked.Logger, checked.Dial = app.log, app.calls.Dial(checked.Dial)
	c := &Client{
		Group: &Group{calls: newCalls(), jobs: survey.NewJobs(nil), readOnly: checked.ReadOnly}, cfg: checked, app: app, log: checked.Logger,
		events: newEvents(checked.Events, checked.Logger), done: make(chan struct{}), shutdown: newShutdown(),
	}
	c.admin = c
	c.tracing = newTracing(checked.Tracer, checked.Logger, c.ID)
	own := c.clientConfig("")
	own.IncarnationTTL = cmp.Or(cluster.SeamsFrom(ctx).IncarnationTTL, incarnationTTL)
	c.client, c.groups = client.New(own), newClientGroups(c)
	if err := c.connect(); err != nil {
		app.failed()
		return nil, fault("dial", "", err)
	}
	if err := c.register(ctx); err != nil {
		c.stop(func() {})
		return nil, fault("dial", "", err)
	}
	return c, nil
}

// clientConfig returns the configuration of this process's side of a further group, or of the default group with "".
func (c *Client) clientConfig(group string) client.Config {
	return client.Config{
		Name: c.cfg.Name, TTL: c.cfg.SessionTTL, IncarnationTTL: incarnationTTL, Logger: c.log, Closed: remote.ErrClosed,
		LeaseEnded: func(id wire.ID, why error) { c.events.sessionEnded(SessionID(id), convert(why)) },
		HoldLost:   func(name string, fence uint64) { c.events.holdLost(group, name, Fence(fence)) },
	}
}

// remoteConfig returns the configuration of the connection to a group, of which side is this process's side.
func (c *Client) remoteConfig(side *client.Client) remote.Config {
	return remote.Config{
		Addresses: c.cfg.Addresses, Group: c.cfg.Group, Name: c.cfg.Name, TLS: c.cfg.TLS, Insecure: c.cfg.Insecure,
		Dial: c.cfg.Dial, Calls: c.app.calls, Admit: c.app.verifyPeer(c.cfg.VerifyPeer), ReadOnly: c.cfg.ReadOnly, Logger: c.log, Named: c.app.names.Set,
		MaxCalls: c.cfg.Limits.Calls, MaxCallBytes: c.cfg.Limits.CallBytes,
		Ended: side.SessionEnded, Recalled: side.Recalled, Replaced: side.StateReplaced, Woke: side.Woke,
		Sessions: side.Sessions, Patience: func() time.Duration { return patience(side) }, Left: side.Left,
	}
}

func (c *Client) connect() (err error) {
	c.remote, err = remote.New(c.remoteConfig(c.client))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.client.Connect(c.remote, c.remote.Registration)
	c.routines.Go(func() {
		c.events.run(c.done)
		c.app.lines.Close(logGrace)
	})
	c.remote.Start()
	return nil
}

// patience is how long a member may take to acknowledge the registration, a renewal or a call,
// before the client goes on with another one: long enough for an election, unless the sessions cannot
// wait for that.
func patience(c *client.Client) time.Duration {
	return min(max(c.RenewalInterval(), 300*time.Millisecond), 2*time.Second)
}

func (c *Client) register(ctx context.Context) error {
	err := c.remote.AwaitMember(ctx)
	if err == nil && !c.cfg.ReadOnly {
		err = c.client.Register(ctx)
	}
	if err != nil && ctx.Err() != nil && !client.IsKind(err, client.Refused) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, contextError(ctx))
		if last := c.remote.Err(); last != nil {
			err = fmt.Errorf("%w; last attempt to reach a member: %w", err, last)
		} else if addr := c.remote.Trying(); addr != "" {
			err = fmt.Errorf("%w; %s has not answered yet: check the host and port in Addresses", err, addr)
		}
	}
	return err
}

// Close shuts the client down gracefully: it closes its sessions, which releases what they
// hold at once, and disconnects. Sessions with NoTTL live on in the group, for AttachSession
// or CloseSession.
//
// ctx bounds the graceful part, which takes 3 seconds at most; if ctx is done already, Close
// attempts it for a second. Close may be called more than once, and concurrently. All calls
// wait for the one shutdown, and its graceful part ends as soon as one of them has no more
// time for it. When Close returns, no goroutine and no connection of the client is left, except
// goroutines inside functions of the application, as at [Node.Close]. It returns nil, or, if
// ctx was done and the group had not answered in time, an error that wraps ErrUnknown and
// ctx's error: the group then finds out by the TTL of the sessions.
func (c *Client) Close(ctx context.Context) error {
	limit, parent := 3*time.Second, ctx
	if ctx.Err() != nil {
		limit, parent = time.Second, context.WithoutCancel(ctx)
	}
	bounded, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	defer c.shutdown.bound(ctx, bounded)()
	c.stop(c.shutDown)
	return fault("close", "", c.shutdown.result(ctx))
}

func (c *Client) shutDown() {
	if c.cfg.ReadOnly {
		return // the group does not know it
	}
	c.eachSide((*client.Client).StopRenewing)
	c.eachSide((*client.Client).EndLeases)
	var all sync.WaitGroup
	var unanswered atomic.Bool
	deregister := func(side *client.Client) {
		if err := side.Deregister(c.shutdown.graceful); err != nil && c.shutdown.graceful.Err() != nil {
			unanswered.Store(true)
		}
	}
	for _, f := range c.groups.registered() {
		all.Go(func() { deregister(f.client) })
	}
	deregister(c.client)
	all.Wait()
	c.shutdown.unanswered = unanswered.Load()
}

// eachSide calls do with this process's side of each group that it uses.
func (c *Client) eachSide(do func(*client.Client)) {
	do(c.client)
	for _, f := range c.groups.all() {
		do(f.client)
	}
}

// stop ends the client, after the graceful part, unless another call does so. It returns when
// nothing of the client is left.
func (c *Client) stop(graceful func()) {
	c.shutdown.carryOut(func() {
		c.groups.close()
		c.eachSide((*client.Client).BeginShutdown)
		graceful()
	}, func() {
		c.groups.stop()
		c.remote.Close(remote.ErrClosed)
		c.client.Stopped(nil, true)
		c.client.Wait()
		c.err = fault("run", "", clientClosed{})
		close(c.done)
	})
	<-c.shutdown.ended
	c.routines.Wait()
}

// Done returns a channel that is closed when the client has been closed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns an error that wraps ErrClosed after Close, and nil before.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// ID is the client's ID, as LockInfo.Node and others show it. It changes if the group has let
// the client's registration expire.
func (c *Client) ID() MemberID { return MemberID(c.remote.Process()) }

// withDefaults returns a copy in which every field is set, or every fault at once.
func (c *ClientConfig) withDefaults() (ClientConfig, error) {
	var d ClientConfig
	if c != nil {
		d = *c
	}
	if d.Name == "" {
		d.Name, _ = os.Hostname() // the name is for people, so it may stay empty
	}
	if d.Group == "" {
		d.Group = "conclave"
	}
	setDefault(&d.SessionTTL, 10*time.Second)
	d.Addresses = slices.Clone(d.Addresses)
	d.Limits.complete()
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d, d.validate()
}

func (c *ClientConfig) validate() error {
	faults := validateShared(c.Name, c.Group, c.SessionTTL, c.Limits)
	if len(c.Addresses) == 0 {
		faults = append(faults, fmt.Errorf("%w Addresses: want at least one address of a member, got none", ErrInvalid))
	}
	for _, addr := range c.Addresses {
		faults = append(faults, validateAddress("Addresses", addr, true, c.TLS != nil || c.Insecure)...)
	}
	if c.TLS != nil && c.TLS.RootCAs == nil && !verifiesItself(c.TLS) { // a client is never dialed
		faults = append(faults, fmt.Errorf("%w TLS: want the authorities that issue the members' certificates, got none: "+
			"set RootCAs, or InsecureSkipVerify with a VerifyConnection that verifies by them", ErrInvalid))
	}
	if c.TLS != nil && len(c.TLS.Certificates) == 0 && c.TLS.GetClientCertificate == nil {
		faults = append(faults, fmt.Errorf("%w TLS: want a certificate, which a client presents to members, got none: "+
			"set Certificates or GetClientCertificate", ErrInvalid))
	}
	return errors.Join(faults...)
}

// verifiesItself reports whether a configuration verifies the members that are dialed by its own means.
func verifiesItself(t *tls.Config) bool {
	return t.InsecureSkipVerify && (t.VerifyConnection != nil || t.VerifyPeerCertificate != nil)
}
