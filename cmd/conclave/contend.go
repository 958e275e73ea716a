package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/conclave-go/conclave"
)

// contender acquires for lock or elect, each time under another session.
type contender struct {
	*program
	client groupClient
	tenancy
	election string // "": for something else
	opened   bool   // one session, so the settings are valid and the group exists
}

// killTime is the part of the lock-delay that follows the grace, in which the command is killed. It is a variable because
// a test that stalls for longer would see the next grant before the kill.
var killTime = time.Second

// acquire opens a session and acquires under it, again if the session has ended while the request waited: an outage of
// the group may be longer than its TTL.
func (c *contender) acquire(ctx context.Context, take func(context.Context, *conclave.Session) (lease, error)) (lease, error) {
	waiting, cancel := context.WithCancel(ctx)
	if c.wait > 0 {
		waiting, cancel = context.WithTimeout(ctx, c.wait)
	}
	defer cancel()
	var pause backoff
	warned := false // of a --max-hold that was over too early
	for {
		s, err := c.open(waiting)
		if err != nil {
			return lease{}, notAcquired(ctx, waiting, err)
		}
		limited, done := waiting, context.CancelFunc(func() {})
		if c.try {
			limited, done = c.within(waiting)
		}
		l, err := take(limited, s)
		done()
		switch {
		case err == nil:
			return l, nil
		case waiting.Err() != nil:
			return lease{}, notAcquired(ctx, waiting, err)
		case errors.Is(err, conclave.ErrHoldExpired) && !c.try: // before the grant was known: an outage may have ended meanwhile
			if !warned {
				c.tell(printable(inFlags(fmt.Sprintf("%v - trying again. %s", err, c.shortHold()))))
				warned = true
			}
			c.discard(waiting, s)
			pause.wait(waiting)
			continue
		case errors.Is(err, conclave.ErrHoldExpired):
			return lease{}, fmt.Errorf("%w. %s", err, c.shortHold())
		case errors.Is(err, conclave.ErrSessionExpired), errors.Is(err, conclave.ErrLockOwnershipLost):
			continue
		case c.try || !passes(err):
			return lease{}, notAcquired(ctx, waiting, err)
		}
		c.tell(printable(inFlags(fmt.Sprint(err, " - trying again"))))
		c.discard(waiting, s)
		pause.wait(waiting)
	}
}

// shortHold explains a hold that has ended before its grant was known.
func (o *tenancy) shortHold() string {
	return fmt.Sprintf("--max-hold %v was over before this process knew of the grant: it counts from the grant, so set a longer one", o.maxHold)
}

// open opens a session. Of those for one lock or election only the first is bounded by --timeout: it finds out whether
// the settings and the addresses are right. Later ones end an outage, however long it is.
func (c *contender) open(waiting context.Context) (*conclave.Session, error) {
	cfg := &conclave.SessionConfig{Name: sessionName(c.election), TTL: c.ttl, LockDelay: c.grace + killTime}
	limited, done := c.within(waiting)
	s, err := c.client.NewSession(limited, cfg)
	done()
	if err == nil {
		c.opened = true
		return s, nil
	}
	if !c.opened || c.try || !passes(err) || waiting.Err() != nil {
		return nil, err
	}
	c.tell(printable(inFlags(fmt.Sprint(err, " - trying again until the group answers"))))
	var pause backoff
	for {
		s, err = c.client.NewSession(waiting, cfg)
		if err == nil || !passes(err) || waiting.Err() != nil {
			return s, err
		}
		pause.wait(waiting)
	}
}

// discard closes a session under which a request may be granted yet. Without a quorum it ends by its TTL.
func (c *contender) discard(waiting context.Context, s *conclave.Session) {
	limited, done := c.within(waiting)
	defer done()
	_ = s.Close(limited)
}

// passes reports whether an error is one of an outage or an overload, which end.
func passes(err error) bool {
	return errors.Is(err, conclave.ErrUnavailable) || errors.Is(err, conclave.ErrUnknown) || errors.Is(err, conclave.ErrBusy)
}

// backoff is the time before the next attempt. It doubles.
type backoff time.Duration

const minBackoff, maxBackoff = backoff(100 * time.Millisecond), backoff(5 * time.Second)

// wait waits, for a random part of the time, or until ctx is done: many processes wait for one group.
func (b *backoff) wait(ctx context.Context) {
	*b = min(max(2**b, minBackoff), maxBackoff)
	timer := time.NewTimer(time.Duration(*b/2 + rand.N(*b)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// notAcquired gives an error its exit code.
func notAcquired(ctx, waiting context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return withCode(codeOf(cause(ctx, err)), cause(ctx, err))
	case waiting.Err() != nil: // before ctx, so by the limit of the wait
		return withCode(exitNotAcquired, fmt.Errorf("--wait is over: %w", err))
	case errors.Is(err, conclave.ErrLocked), errors.Is(err, conclave.ErrLockDelay), errors.Is(err, conclave.ErrDeadlock):
		return withCode(exitNotAcquired, err)
	case errors.Is(err, conclave.ErrJobDone):
		return withCode(exitJobDone, err)
	}
	return err
}
