package client

import (
	"fmt"
	"math"
	"sync"
	"time"

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
// which acknowledged renewals move (renewal.go), and holds that end with it. An
// ended lease stays ended, whatever the group says later. Its err is why.
type Lease struct {
	client      *Client
	id          wire.ID
	incarnation wire.ID // that the session is bound to
	ttl         time.Duration
	done        chan struct{}
	closing     closing
	wrap        sync.Once
	wrapper     any // set by wrap

	mu       sync.Mutex
	deadline instant            // guarded by mu; no other owner is granted anything before it
	timer    *time.Timer        // guarded by mu; nil without TTL
	holds    map[*Hold]struct{} // guarded by mu
	err      error              // guarded by mu; why it ended; nil while live
}

// ending says what the end of a lease means for its holds.
type ending bool

const (
	lost     ending = true  // another owner may get what they hold
	released ending = false // on purpose
)

// newLease makes a live lease. sent is when the command that opened or attached the
// session was sent.
func newLease(c *Client, id, incarnation wire.ID, ttl time.Duration, sent instant) *Lease {
	l := &Lease{
		client: c, id: id, incarnation: incarnation, ttl: ttl,
		done:     make(chan struct{}),
		closing:  closing{answered: make(chan struct{})},
		deadline: math.MaxInt64,
		holds:    make(map[*Hold]struct{}),
	}
	if ttl == NoTTL {
		return l
	}
	l.mu.Lock() // the timer may run at once
	defer l.mu.Unlock()
	l.deadline = sent + instant(trusted(ttl))
	l.timer = time.AfterFunc(c.clock.until(l.deadline), l.checkDeadline)
	return l
}

// trusted is how long after an acknowledged renewal was sent a holder may rely on
// it: the TTL less the rate error between its clock and the leader's.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 }

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
	l.mu.Lock()
	expired := l.err == nil && l.client.clock.now() >= l.deadline
	err := l.err
	l.mu.Unlock()
	if expired {
		return l.expire()
	}
	return err
}

// checkDeadline runs when the deadline may have come.
func (l *Lease) checkDeadline() {
	l.mu.Lock()
	left := l.client.clock.until(l.deadline)
	if l.err == nil && left > 0 {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		l.expire()
	}
}

// expire ends the lease at its deadline, from which on the group may let the
// session expire. The group is told, since this process has no more use for it.
func (l *Lease) expire() error {
	why := &Fault{Kind: Expired, Detail: fmt.Sprintf("no renewal was acknowledged for %v", trusted(l.ttl))}
	if l.end(why, lost) {
		l.client.pursue(closeCommand(l.id, false), ignore)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// end ends the lease here, first for its holds. It reports whether this call did.
func (l *Lease) end(why error, what ending) bool {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return false
	}
	l.err = why
	if l.timer != nil {
		l.timer.Stop()
	}
	holds := l.holds
	l.holds = nil
	l.mu.Unlock()
	for h := range holds {
		close(h.lost)
	}
	close(l.done)
	l.client.drop(l)
	if what == lost {
		l.client.reportLost(l, holds, why)
	}
	l.client.cfg.LeaseEnded(l.id, why)
	return true
}

// renewed moves the deadline: the group has acknowledged a renewal that was sent at
// that time. A lease that is past its deadline stays ended.
func (l *Lease) renewed(sent instant) {
	if l.ttl == NoTTL || l.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = max(l.deadline, sent+instant(trusted(l.ttl)))
}

// add makes a hold end with the lease; false means that the lease has ended.
func (l *Lease) add(h *Hold) bool {
	if l.Err() != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.holds[h] = struct{}{}
	return true
}

// remove takes out a hold that was released.
func (l *Lease) remove(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, h)
}

func endedByGroup() error { return &Fault{Kind: Expired, Detail: "the group has ended it"} }

// Details of faults that Close tells apart.
const (
	closedHere  = "it was closed"
	unboundHere = "it is no longer bound to this process; the session lives on in the group, to be attached or closed"
)

func unbound() error { return &Fault{Kind: Expired, Detail: unboundHere} }
