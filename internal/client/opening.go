package client

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// LeaseConfig describes the session of a lease.
type LeaseConfig struct {
	Name           string
	TTL, LockDelay time.Duration // TTL may be NoTTL
	Behavior       wire.Behavior
	Checks         []string
}

// opening is a lease before the group has agreed to it, by opening a session or by
// binding one to this process.
type opening struct {
	client       *Client
	id           wire.ID
	ttl          time.Duration
	command      *wire.Command
	attach       bool // the session exists, and outlives an attempt that comes to nothing
	sent         instant
	replacements uint64 // of the client, when sent
}

// errRetryOpening: the result of an opening cannot be relied upon, because of what
// happened to this process meanwhile.
var errRetryOpening = errors.New("the lease has to be opened again")

// Open opens a session. It blocks until the group has agreed. If ctx is done first,
// a session that may have been opened is closed in the background.
func (c *Client) Open(ctx context.Context, cfg LeaseConfig) (*Lease, error) {
	leave, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for {
		if err := c.Usable(); err != nil {
			return nil, err
		}
		l, err := c.newOpening(cfg).run(ctx)
		switch {
		case errors.Is(err, errRetryOpening):
		case err == nil && IsKind(l.Err(), Expired):
			// The group took longer than the TTL.
		default:
			return l, err
		}
	}
}

// Attach binds a session without TTL to this process. It blocks until the group has
// decided. If ctx is done first the session may be bound all the same, and a later
// Attach returns it.
func (c *Client) Attach(ctx context.Context, id wire.ID) (*Lease, error) {
	leave, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for {
		if err := c.Usable(); err != nil {
			return nil, err
		}
		if l := c.leases.lease(id); l != nil && l.Err() == nil {
			return l, nil
		}
		l, err := c.newAttachment(id).run(ctx)
		if err != nil && !errors.Is(err, errRetryOpening) {
			return nil, err
		}
		if err == nil && l.Err() == nil {
			return l, nil
		}
	}
}

func (c *Client) newOpening(cfg LeaseConfig) *opening {
	o := &opening{client: c, id: newID(), ttl: cfg.TTL, sent: c.clock.Now(), replacements: c.replacements.Load()}
	o.command = &wire.Command{Op: &wire.Command_OpenSession{OpenSession: cfg.open(o.id)}}
	return o
}

// open is the session's description for the group.
func (cfg LeaseConfig) open(id wire.ID) *wire.OpenSession {
	open := &wire.OpenSession{
		Id: id[:], Name: cfg.Name, Ttl: int64(cfg.TTL), LockDelay: int64(cfg.LockDelay),
		Behavior: cfg.Behavior, Checks: cfg.Checks,
	}
	if cfg.TTL == NoTTL {
		open.Ttl = 0
	}
	return open
}

func (c *Client) newAttachment(id wire.ID) *opening {
	return &opening{
		client: c, id: id, ttl: NoTTL, attach: true, sent: c.clock.Now(), replacements: c.replacements.Load(),
		command: &wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: id[:]}}},
	}
}

func newID() (id wire.ID) {
	rand.Read(id[:]) // never fails
	return id
}

// run opens the lease for a caller, which may abandon it before there is a result.
func (o *opening) run(ctx context.Context) (*Lease, error) {
	var (
		mu        sync.Mutex
		abandoned bool
		lease     *Lease
		refused   error
	)
	_, err := o.client.send(ctx, o.command, func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		if !abandoned || o.attach {
			lease, refused = o.answered(a)
			if a.err != nil && !a.expired() {
				refused = o.client.ended(a.err)
			}
		} else if a.err != nil || refusal(a.reply) == nil {
			o.discard()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if lease != nil || refused != nil {
		return lease, refused
	}
	abandoned = true
	return nil, err
}

// answered makes the lease to which the group has agreed. It runs on the goroutine
// that delivers outcomes, so that no later event of the session is missed.
func (o *opening) answered(a answer) (*Lease, error) {
	switch {
	case a.unsent && a.expired():
		return nil, errRetryOpening
	case a.expired():
		o.discard() // a first application may have opened it
		return nil, errRetryOpening
	case a.fault() != nil:
		return nil, a.fault()
	case o.client.replacements.Load() != o.replacements:
		// A snapshot came between: the session may have been opened and ended in
		// the entries that it skipped.
		o.discard()
		return nil, errRetryOpening
	}
	if l := o.client.leases.lease(o.id); l != nil {
		return l, nil // another Attach was faster
	}
	l := newLease(o.client, o.id, a.incarnation, o.ttl, a.reply, o.sent)
	if !o.client.leases.track(l) {
		o.discard() // or the graceful shutdown does
		l.end(o.client.closed(), released)
		return nil, o.client.closed()
	}
	o.client.renewal.hasten(l)
	return l, nil
}

// discard closes a session that this process opened and has no lease for. An attached
// session stays: it is its owner's to close.
func (o *opening) discard() {
	if !o.attach {
		o.client.discard(o.id, o.ttl)
	}
}

// discard closes a session that this process has no lease for. One without TTL would
// live for ever, so the close is repeated if the registration expired meanwhile. It
// spares a session that another process has attached.
func (c *Client) discard(id wire.ID, ttl time.Duration) {
	c.pursue(closeCommand(id, true), func(a answer) {
		if ttl == NoTTL && a.expired() && c.Usable() == nil {
			c.discard(id, ttl)
		}
	})
}

// leaseFor returns the given lease, or the client's own if it is nil.
func (c *Client) leaseFor(ctx context.Context, fixed *Lease) (*Lease, error) {
	if fixed == nil {
		return c.ownLease(ctx)
	}
	return fixed, fixed.Err()
}

// sharedOpening is the client's own lease being opened, for all that wait for it.
type sharedOpening struct {
	done chan struct{}
	err  error // valid once done is closed
}

// shareOpening returns the client's own lease, or else its opening: first has the caller begin it.
func (s *leases) shareOpening() (own *Lease, shared *sharedOpening, first bool) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	if s.own == nil && s.opening == nil {
		s.opening, first = &sharedOpening{done: make(chan struct{})}, true
	}
	return s.own, s.opening, first
}

// opened ends the opening of the client's own lease; nil: it has failed.
func (s *leases) opened(own *Lease) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.opening = nil
	if own != nil {
		s.own = own
	}
}

// ownLease returns the client's own lease, and opens it if there is none. It blocks
// until the group has agreed, or ctx is done.
func (c *Client) ownLease(ctx context.Context) (*Lease, error) {
	leave, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for {
		if err := c.Usable(); err != nil {
			return nil, err
		}
		own, shared, first := c.leases.shareOpening()
		if first {
			c.openOwn(shared)
		}
		if own != nil {
			if own.Err() == nil {
				return own, nil
			}
			c.leases.drop(own)
			continue
		}
		select {
		case <-shared.done:
			if shared.err != nil {
				return nil, shared.err
			}
		case <-ctx.Done():
			// No caller holds anything by a session that none has seen.
			return nil, c.unavailable(ctx)
		}
	}
}

// ownChecks returns the checks of the client's own lease. While a member of the group runs a build without the check
// process, there are locks without it rather than none.
func (c *Client) ownChecks() []string {
	if c.group.Level() >= wire.LevelProcess {
		return c.cfg.Checks
	}
	return slices.DeleteFunc(slices.Clone(c.cfg.Checks), func(name string) bool { return name == ProcessCheck })
}

// openOwn opens the client's own lease for whatever callers still wait when the
// group has agreed, so it does not depend on the context of one of them.
func (c *Client) openOwn(shared *sharedOpening) {
	o := c.newOpening(LeaseConfig{Name: c.cfg.Name, TTL: c.cfg.TTL, Checks: c.ownChecks()})
	c.pursue(o.command, func(a answer) {
		l, err := o.answered(a)
		c.leases.opened(l)
		if !errors.Is(err, errRetryOpening) { // then the waiting callers try again
			shared.err = err
		}
		close(shared.done)
	})
}
