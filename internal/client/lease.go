package client

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/maxhold"
	"github.com/conclave-go/conclave/internal/pause"
	"github.com/conclave-go/conclave/internal/wire"
)

// NoTTL is the TTL of a lease that does not end by time.
const NoTTL time.Duration = -1

// Lease is this process's view of a session that is bound to it. There is one state
// machine for the client's own lease, for those that Open opened and for those that
// Attach attached:
//
//	opening ──(the group agreed)──> live ──(deadline, group, close)──> ended
//
// An opening is in opening.go. A live lease has a deadline on the local clock,
// which acknowledged renewals (renewal.go) and refreshes of its checks (checks.go)
// move, and holds that end with it: it precedes the earliest time at which the group
// can grant another owner what the lease holds, because of silence. An ended lease
// stays ended, whatever the group says later. Its err is why.
type Lease struct {
	client      *Client
	id          wire.ID
	incarnation wire.ID // that the session is bound to
	ttl         time.Duration
	span        time.Duration // for which a renewal keeps what the lease holds; never more than ttl; NoTTL: for ever
	lockDelay   time.Duration
	checks      []*check // with a TTL, or without
	done        chan struct{}
	closing     closing
	worked      atomic.Bool // there was a worker of shards, which may have none and wait for some
	keeper      keeper
	wrap        sync.Once
	wrapper     any // set by wrap

	until atomic.Int64 // the instant before which the lease is live; see trustUntil

	mu      sync.Mutex
	renewed instant            // guarded by mu; when the last acknowledged renewal was sent
	timer   *time.Timer        // guarded by mu; nil: there was no deadline so far
	holds   map[*Hold]struct{} // guarded by mu
	parts   map[*Hold]struct{} // guarded by mu; each stands for those of a handle in a shared tenure, however many there are
	bounded map[*Hold]struct{} // guarded by mu; of holds: those that end in time
	heard   maxhold.Reference  // guarded by mu; of the last acknowledged renewal
	calls   int                // guarded by mu; that acquire under the lease
	err     error              // guarded by mu; why it ended; nil while live
}

// instant is a time of the local clock.
type instant = leaseclock.Instant

// ending says what the end of a lease means for its holds.
type ending bool

const (
	lost     ending = true  // another owner may get what they hold
	released ending = false // on purpose
)

// newLease makes a live lease. opened is the group's reply, and sent is when the command
// that opened or attached the session was sent.
func newLease(c *Client, id, incarnation wire.ID, ttl time.Duration, opened *wire.Reply, sent instant) *Lease {
	l := &Lease{
		client: c, id: id, incarnation: incarnation, ttl: ttl, span: ttl,
		lockDelay: time.Duration(opened.GetLockDelay()),
		checks:    c.checks.learn(opened, sent),
		done:      make(chan struct{}),
		closing:   closing{answered: make(chan struct{})},
		renewed:   sent,
		holds:     make(map[*Hold]struct{}),
		parts:     make(map[*Hold]struct{}),
	}
	l.keeper.lease = l
	if declared := time.Duration(machine.MinSilence) + l.lockDelay; dependsOnGossip(opened) {
		switch {
		case ttl == NoTTL: // another process may attach it once the registration has expired
			l.span = min(declared, c.cfg.IncarnationTTL)
		case declared < ttl:
			l.span = declared
		}
	}
	l.mu.Lock() // the timer may run at once
	defer l.mu.Unlock()
	l.setTimer()
	return l
}

func trusted(granted time.Duration) time.Duration { return leaseclock.Trusted(granted) }

// deadline returns when the lease ends unless it is renewed and its checks are
// refreshed, and the check that ends it; nil if it is the lack of a renewal. l.mu is
// held.
func (l *Lease) deadline() (at instant, by *check) {
	at = never
	if len(l.checks) > 0 {
		at, by = l.client.checks.deadline(l.checks, l.lockDelay)
	}
	if l.span != NoTTL && l.renewed+instant(trusted(l.span)) < at {
		return l.renewed + instant(trusted(l.span)), nil
	}
	return at, by
}

// setTimer sets the timer to the deadline, if there is one, and makes the client's next
// look at its leases no later. l.mu is held.
func (l *Lease) setTimer() {
	at, _ := l.deadline()
	if at == never || l.err != nil {
		return
	}
	l.client.lookBy(at)
	l.trustUntil(at)
	if left := l.client.clock.Until(at); l.timer == nil {
		l.timer = time.AfterFunc(left, l.checkDeadline)
	} else {
		l.timer.Reset(left)
	}
}

// hasten brings the timer forward if the lease depends on a check whose TTL may have
// become smaller.
func (l *Lease) hasten(c *check) {
	if slices.Contains(l.checks, c) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.setTimer()
	}
}

// ID is the session's ID.
func (l *Lease) ID() wire.ID { return l.id }

// Wrapper returns what make makes when it is first called: the one object that stands
// for the lease outside of this package.
func (l *Lease) Wrapper(make func() any) any {
	l.wrap.Do(func() { l.wrapper = make() })
	return l.wrapper
}

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err returns why the lease has ended; nil while it is live. It reads the clock.
func (l *Lease) Err() error {
	if int64(l.client.clock.Now()) < l.until.Load() {
		return nil
	}
	l.mu.Lock()
	at, by := l.deadline()
	expired := l.err == nil && l.client.clock.Now() >= at
	err := l.err
	l.mu.Unlock()
	if expired {
		return l.expire(by)
	}
	return err
}

// checkDeadline runs when the deadline may have come.
func (l *Lease) checkDeadline() {
	if l.Err() == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.setTimer()
	}
}

// pauseUnit is how exact times are that errors and log lines state about pauses.
const pauseUnit = 100 * time.Millisecond

// expire ends the lease at its deadline, from which on the group may end the session.
// The group is notified, since this process has no more use for it. A session without TTL
// lives on if the registration of this process has expired as well; it is closed then.
func (l *Lease) expire(by *check) error {
	l.mu.Lock()
	renewed := l.renewed
	l.mu.Unlock()
	detail := fmt.Sprintf("no renewal was acknowledged for %v", time.Duration(l.client.clock.Now()-renewed).Round(pauseUnit))
	if by != nil {
		detail = fmt.Sprintf("no refresh of its check %q was acknowledged in time", by.name)
	}
	if paused := l.client.pauses.Since(renewed); paused > 0 {
		detail += fmt.Sprintf(": this process did not run for %v of that time (%s)", paused.Round(pauseUnit), pause.Causes)
	}
	if l.end(&Fault{Kind: Expired, Detail: detail}, lost) {
		l.client.pursue(closeCommand(l.id, false), func(a answer) {
			if l.ttl == NoTTL && a.expired() && l.client.Usable() == nil {
				l.client.discard(l.id, l.ttl)
			}
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// end ends the lease here, first for its holds. It reports whether this call did.
func (l *Lease) end(why error, what ending) bool {
	return l.endIf(why, what, func() bool { return true })
}

// enter notes a call that is about to acquire under the lease, and may wait long, until leave. It returns false if the lease has ended.
func (l *Lease) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.calls++
	}
	return l.err == nil
}

func (l *Lease) leave() {
	l.mu.Lock()
	l.calls--
	l.mu.Unlock()
}

// isUnused reports whether the lease has no holds, nothing lingers under it, and no call acquires by it.
func (l *Lease) isUnused() bool {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if l.worked.Load() || len(l.keeper.names) > 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasNothing()
}

// hasNothing is called with l.mu held.
func (l *Lease) hasNothing() bool { return len(l.holds)+len(l.parts)+l.calls == 0 }

// retire ends the lease here if it is unused. A call that has found the lease, and has not entered it yet, goes on under the next one, as always when
// a lease ends. A release under way has taken its hold off the lease, so the lease must have been unused for a while.
func (l *Lease) retire() bool {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return !l.worked.Load() && len(l.keeper.names) == 0 && l.endIf(&Fault{Kind: Expired, Detail: retiredHere}, released, l.hasNothing)
}

// endIf is end, if may returns true with l.mu held.
func (l *Lease) endIf(why error, what ending, may func() bool) bool {
	l.mu.Lock()
	if l.err != nil || !may() {
		l.mu.Unlock()
		return false
	}
	l.err = why
	l.client.losses.underWay.Add(1)
	defer l.client.losses.underWay.Done()
	l.until.Store(int64(longAgo))
	if l.timer != nil {
		l.timer.Stop()
	}
	holds := l.holds
	for h := range l.parts { // order: it is a set
		if h.part.gate.Holds() > 0 {
			holds[h] = struct{}{}
		}
	}
	for h := range l.bounded { // order: each by itself
		h.bound.timer.Stop()
	}
	l.holds, l.parts, l.bounded = nil, nil, nil
	for h := range holds {
		h.ended = true
		h.lost.close(false)
	}
	l.mu.Unlock()
	close(l.done)
	if l.keeper.used.Load() {
		l.client.requests.start(l.keeper.stop) // its mu may be held
	}
	l.client.leases.drop(l)
	if what == lost {
		l.client.losses.note(l, holds, why)
	}
	l.client.cfg.LeaseEnded(l.id, why)
	return true
}

// acknowledged moves the deadline: the group has acknowledged a renewal that was sent at
// that time, and applied at that group time; 0: that is not known. A lease that is past its deadline stays ended.
func (l *Lease) acknowledged(sent instant, now int64) {
	if l.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.span != NoTTL {
		l.client.metrics.Margin.ObserveDuration(l.client.clock.Until(l.renewed + instant(trusted(l.span))))
	}
	l.renewed = max(l.renewed, sent)
	l.heard.Note(sent, now)
	if at, _ := l.deadline(); l.err == nil {
		l.trustUntil(at)
	}
}

// trustUntil notes the deadline for those that ask whether the lease is live, which are many. One that
// depends on checks may come earlier than what was known of it, so that is not noted. l.mu is held.
func (l *Lease) trustUntil(deadline instant) {
	if len(l.checks) == 0 {
		l.until.Store(int64(deadline))
	}
}

// add makes a hold end with the lease, and in time. An error says that it has ended already.
func (l *Lease) add(h *Hold) error {
	if l.Err() != nil {
		return errLeaseEnded
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return errLeaseEnded
	}
	if h.bound != nil {
		if int64(l.client.clock.Now()) >= h.bound.until.Load() {
			return &Fault{Kind: Lost, Overdue: true}
		}
		if l.bounded == nil {
			l.bounded = make(map[*Hold]struct{})
		}
		l.bounded[h] = struct{}{}
		l.setBoundTimer(h)
	}
	l.setOf(h)[h] = struct{}{}
	return nil
}

// setOf returns the set that a hold is in. l.mu is held.
func (l *Lease) setOf(h *Hold) map[*Hold]struct{} {
	if h.part != nil {
		return l.parts
	}
	return l.holds
}

// remove takes out a hold that was released.
func (l *Lease) remove(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlist(h)
}

func endedByGroup() error { return &Fault{Kind: Expired, Detail: "the group has ended it"} }

// Details of faults that Close distinguishes.
const (
	closedHere  = "it was closed"
	retiredHere = "this process has not used its group for minutes; the next call opens another one"
	unboundHere = "it is no longer bound to this process; the session lives on in the group, to be attached or closed"
)

func unbound() error { return &Fault{Kind: Expired, Detail: unboundHere} }
