package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

const (
	maxHold     = 100 * time.Second
	trustedHold = 99 * time.Second
)

func wantOverdue(t *testing.T, err error) {
	t.Helper()
	wantKind(t, err, Lost)
	if f, ok := err.(*Fault); ok && !f.Overdue { //nolint:errorlint // it is not wrapped here
		t.Errorf("%v: the hold was lost otherwise", err)
	}
}

// wantLostAt wants the loss then, to the nanosecond.
func wantLostAt(t *testing.T, loss *Loss, at time.Time) {
	t.Helper()
	<-loss.Done()
	if got := time.Now(); !got.Equal(at) || !loss.Overdue() {
		t.Errorf("lost %v from then, overdue %t", got.Sub(at), loss.Overdue())
	}
}

func TestMaxHold_LostWhileRenewed(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		var reported []string
		c.losses.report = func(name string, _ uint64) { reported = append(reported, name) }
		l, other := newRWLock(t, c, LockConfig{MaxHold: maxHold}), newLock(c, nil, "other")
		mustAcquire(t, other)
		began := time.Now()
		mustWrite(t, l)
		wantLostAt(t, l.Loss(), began.Add(trustedHold))
		if v := g.lock("x"); !v.Held {
			t.Error("the group has ended the hold before its holder")
		}
		_, err := l.Fence()
		wantOverdue(t, err)
		_, err = l.Acquire(t.Context(), true, nil)
		wantOverdue(t, err)
		wantOverdue(t, l.Extend(t.Context(), maxHold))
		wantOverdue(t, l.Release(t.Context(), nil))
		wantKind(t, l.Release(t.Context(), nil), NotHeld)
		synctest.Wait() // until the loss was reported
		if _, err := other.Fence(); err != nil || !slices.Equal(reported, []string{"x"}) || c.metrics.Lost.Load() != 1 {
			t.Errorf("the lease has ended: %v; lost are %q, %d", err, reported, c.metrics.Lost.Load())
		}
		time.Sleep(2 * time.Second)
		mustWrite(t, l) // the group has ended it by now
	})
}

// What waited far longer than the hold lasts is held for as long: its end counts from the last renewal.
func TestMaxHold_WaitedLong(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, _ *fakeGroup) {
		first, l := newRWLock(t, c, LockConfig{}), newRWLock(t, c, LockConfig{MaxHold: maxHold})
		mustWrite(t, first)
		got := calling(t.Context(), l.Acquire)
		time.Sleep(1000 * maxHold)
		granted := time.Now()
		if err := first.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		<-l.Lost()
		if held := time.Since(granted); held < trustedHold-fakeTTL/100 || held > maxHold {
			t.Errorf("held for %v of %v", held, maxHold)
		}
	})
}

// A grant that becomes known when its time has passed is none, and is released.
func TestMaxHold_GrantTooLate(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		mustAcquire(t, newLock(c, nil, "other"))
		g.suspendAtDelivery(t, func() {
			_, err := l.Acquire(t.Context(), true, nil)
			wantOverdue(t, err)
		}, trustedHold)
		if l.Holds() != 0 || l.Lost() != nil {
			t.Errorf("%d holds", l.Holds())
		}
		wantKind(t, l.Release(t.Context(), nil), NotHeld)
	})
}

// suspendAtDelivery has the machine sleep between the entry of the next command and its outcome.
func (g *fakeGroup) suspendAtDelivery(t *testing.T, call func(), d time.Duration) {
	t.Helper()
	c := g.client
	lease, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lease.mu.Lock() // the session lives on
	lease.span = NoTTL
	lease.until.Store(int64(never))
	lease.mu.Unlock()
	g.hold()
	done := make(chan struct{})
	go func() {
		call()
		close(done)
	}()
	synctest.Wait()
	g.clock.suspend(d)
	time.Sleep(2 * time.Millisecond) // until the clock looks again
	g.release()
	<-done
}

// A holder that was suspended finds its hold lost at the next heartbeat, though no timer has run.
func TestMaxHold_Suspended(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, time.Hour)
		l := newRWLock(t, c, LockConfig{Lease: lease, MaxHold: maxHold})
		mustWrite(t, l)
		loss := l.Loss()
		g.clock.suspend(trustedHold)
		g.heartbeat()
		select {
		case <-loss.Done():
		default:
			t.Error("Lost is open")
		}
		wantOverdue(t, l.Release(t.Context(), nil))
		if err := lease.Err(); err != nil {
			t.Errorf("the lease has ended: %v", err)
		}
	})
}

func TestExtend_LaterAndEarlier(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, _ *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		wantKind(t, l.Extend(t.Context(), maxHold), NotHeld)
		mustWrite(t, l)
		loss := l.Loss()
		for range 3 {
			time.Sleep(maxHold / 2)
			if err := l.Extend(t.Context(), maxHold); err != nil {
				t.Fatal(err)
			}
		}
		extended := time.Now()
		if err := l.Extend(t.Context(), maxHold/4); err != nil {
			t.Fatal(err)
		}
		wantLostAt(t, loss, extended.Add(trustedHold/4))
		wantOverdue(t, l.Release(t.Context(), nil))

		plain := newRWLock(t, c, LockConfig{})
		plain.name = "y"
		mustWrite(t, plain)
		wantKind(t, plain.Extend(t.Context(), maxHold), Endless)
	})
}

// Until the outcome of an Extend is known the hold ends at the earlier time, and afterwards at what the outcome says.
func TestExtend_Unknown(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		mustWrite(t, l)
		loss := l.Loss()
		until := func() time.Duration {
			l.hold.lease.mu.Lock()
			defer l.hold.lease.mu.Unlock()
			return c.clock.Until(instant(l.hold.bound.until.Load()))
		}
		extend := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wantKind(t, l.Extend(ctx, d), Unknown)
		}
		g.set(func() { g.held, g.sent = true, true })
		extend(10 * maxHold)
		if got := until(); got != trustedHold-time.Second {
			t.Errorf("%v left with a later end under way", got)
		}
		extend(maxHold / 2)
		if got := until(); got != trustedHold/2-time.Second {
			t.Errorf("%v left with an earlier end under way", got)
		}
		g.set(func() { g.sent = false })
		g.release()
		synctest.Wait()
		if got := until(); got != trustedHold/2-time.Second {
			t.Errorf("%v left with the earlier end, which came last", got)
		}
		select {
		case <-loss.Done():
			t.Error("it is lost")
		default:
		}
	})
}

// An Extend that was not sent has no effect.
func TestExtend_NotSent(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		began := time.Now()
		mustWrite(t, l)
		loss := l.Loss()
		g.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, l.Extend(ctx, maxHold/10), Unavailable)
		g.release()
		wantLostAt(t, loss, began.Add(trustedHold))
	})
}

// An Extend that is refused, here or by the group, leaves the end where it was.
func TestExtend_Refused(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		began := time.Now()
		mustWrite(t, l)
		loss := l.Loss()
		for _, a := range []answer{{err: tickets.ErrBusy}, {reply: &wire.Reply{Code: wire.Code_BUSY}}, {err: &Fault{Kind: ReadOnly}}} {
			x := l.hold.beginExtension(time.Second)
			l.hold.extended(x, a, &wire.Extend{MaxHold: int64(time.Second)})
		}
		g.set(func() { g.refuses = func(c *wire.Command) bool { return c.GetExtend() != nil } })
		if err := l.Extend(t.Context(), time.Second); !isCode(err, wire.Code_BUSY) {
			t.Errorf("Extend: %v", err)
		}
		wantLostAt(t, loss, began.Add(trustedHold))
	})
}

// The end of a share that was released in time is the loss of none.
func TestMaxHold_ReleasedShareEnds(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, _ *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		mustShare(t, l)
		first := l.shares.holds[0]
		time.Sleep(maxHold / 2)
		mustShare(t, l)
		loss := l.Loss()
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxHold / 2)
		first.lease.checkBound(first) // as a timer that runs late does
		select {
		case <-loss.Done():
			t.Error("the other one is lost")
		default:
		}
	})
}

// An Extend of what is lost meanwhile keeps nothing from others for the time that it asked for.
func TestExtend_LostMeanwhile(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, time.Hour)
		l := newRWLock(t, c, LockConfig{Lease: lease, MaxHold: maxHold})
		mustWrite(t, l)
		g.set(func() { g.held, g.sent = true, true })
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(t.Context(), 20*time.Hour) }()
		synctest.Wait()
		g.clock.suspend(trustedHold) // group time does not pass
		time.Sleep(2 * time.Millisecond)
		g.set(func() { g.sent = false })
		g.release()
		wantOverdue(t, <-extended)
		time.Sleep(time.Second)
		synctest.Wait()
		if op := g.last().GetExtend(); op.GetMaxHold() != machine.MinMaxHold {
			t.Errorf("the last command is %v", g.last())
		}
		wantOverdue(t, l.Release(t.Context(), nil))
	})
}

func TestMaxHold_Permits(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, _ *fakeGroup) {
		acquire := func() *Permit {
			t.Helper()
			p, err := c.Acquire(t.Context(), PermitRequest{Name: "p", Limit: 1, Permits: 1, Wait: true, MaxHold: maxHold})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		began := time.Now()
		p := acquire()
		time.Sleep(maxHold / 2)
		if err := p.Extend(t.Context(), maxHold); err != nil {
			t.Fatal(err)
		}
		wantLostAt(t, p.Loss(), began.Add(maxHold/2+trustedHold))
		_, err := p.Fence()
		wantOverdue(t, err)
		wantOverdue(t, p.Extend(t.Context(), maxHold))
		wantOverdue(t, p.Release(t.Context(), nil))
		next := acquire()
		if at := time.Since(began); at < maxHold/2+maxHold {
			t.Errorf("granted after %v to another one", at)
		}
		if err := next.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		wantKind(t, next.Extend(t.Context(), maxHold), NotHeld)
	})
}

// Below the level a bound would not hold, so it is refused.
func TestMaxHold_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	raise(t, c, wire.LevelMaxHold-1)
	l := new(Lock)
	l.Init(c, LockConfig{Space: wire.Space_LOCK, Name: "x", MaxHold: maxHold})
	applied := len(g.since(0))
	_, err := l.Acquire(t.Context(), true, nil, nil)
	if !isCode(err, wire.Code_LEVEL) {
		t.Errorf("Lock: %v", err)
	}
	if _, err = c.Acquire(t.Context(), PermitRequest{Name: "p", Limit: 1, Permits: 1, MaxHold: maxHold}); !isCode(err, wire.Code_LEVEL) {
		t.Errorf("Acquire: %v", err)
	}
	if n := len(g.since(0)); n != applied {
		t.Errorf("%d commands were submitted", n-applied)
	}
}

// Permits whose end is first noticed by their release are lost like others.
func TestMaxHold_PermitReleasedTooLate(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, time.Hour)
		p, err := c.Acquire(t.Context(), PermitRequest{Lease: lease, Name: "p", Limit: 1, Permits: 1, MaxHold: maxHold})
		if err != nil {
			t.Fatal(err)
		}
		loss := p.Loss()
		g.clock.suspend(trustedHold)
		time.Sleep(2 * time.Millisecond)
		wantOverdue(t, p.Release(t.Context(), nil))
		select {
		case <-loss.Done():
		default:
			t.Error("Lost is open")
		}
		if n := c.metrics.Lost.Load(); n != 1 {
			t.Errorf("%d losses are counted", n)
		}
	})
}
