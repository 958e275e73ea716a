package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

func (l *Lease) currentDeadline() instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := l.deadline()
	return at
}

// A holder trusts its lease for 99 % of the TTL from the sending of the command that
// opened or renewed it, however late the answer comes: the group's TTL may have begun
// then.
func TestLease_DeadlineCountsFromSending(t *testing.T) {
	const ttl, trusted = 100 * time.Minute, 99 * time.Minute
	c, g := newFake(t)
	o := c.newOpening(LeaseConfig{TTL: ttl})
	o.sent -= instant(time.Minute) // a slow answer
	reply, err := c.exec(t.Context(), o.command)
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.answered(answer{reply: reply, incarnation: g.incarnation})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.currentDeadline(), o.sent+instant(trusted); got != want {
		t.Errorf("opened: trusted for %v after it was sent, want %v", time.Duration(got-o.sent), trusted)
	}
	sent := c.clock.Now() - instant(30*time.Second)
	c.renewal.acknowledged(sent, answer{reply: &wire.Reply{Code: wire.Code_OK}, incarnation: g.incarnation})
	if got, want := l.currentDeadline(), sent+instant(trusted); got != want {
		t.Errorf("renewed: trusted for %v after it was sent, want %v", time.Duration(got-sent), trusted)
	}
}

func TestLease_EndClosesLost(t *testing.T) {
	c, _ := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	l := newLock(c, lease, "x")
	mustAcquire(t, l)
	ch := l.Lost()
	lease.end(endedByGroup(), lost)
	select {
	case <-ch:
	default:
		t.Error("Lost is open after the lease has ended")
	}
	_, err := l.Fence()
	wantKind(t, err, Lost)
}

// age makes the last renewal older. The timer stays where it is.
func (l *Lease) age(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed -= instant(d)
	at, _ := l.deadline()
	l.trustUntil(at)
}

// A process that was stopped finds its deadline passed before any timer has run.
func TestLease_FenceReadsClock(t *testing.T) {
	c, _ := newFake(t)
	lease := mustOpen(t, c, time.Hour)
	l := newLock(c, lease, "x")
	mustAcquire(t, l)
	lease.age(time.Hour)
	_, err := l.Fence()
	wantKind(t, err, Lost)
	wantKind(t, lease.Err(), Expired)
}

// The machine was suspended, and no loop has woken since. Fence may lack the time of the
// suspension for a millisecond of running time.
func TestLease_FenceAfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		l := newLock(c, mustOpen(t, c, time.Minute), "x")
		mustAcquire(t, l)
		c.Woke()
		g.clock.suspend(time.Hour)
		if _, err := l.Fence(); err != nil && !IsKind(err, Lost) {
			t.Error(err)
		}
		time.Sleep(time.Millisecond + 1)
		_, err := l.Fence()
		wantKind(t, err, Lost)
		c.StopRenewing()
	})
}

func TestLease_AcknowledgedAfterTTL(t *testing.T) {
	c, _ := newFake(t)
	l := newLease(c, wire.ID{1}, wire.ID{2}, time.Second, new(wire.Reply), c.clock.Now()-instant(time.Minute))
	<-l.Done()
	wantKind(t, l.Err(), Expired)
}

func TestLease_RenewedByThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		l := mustOpen(t, c, fakeTTL)
		time.Sleep(time.Hour)
		if err := l.Err(); err != nil {
			t.Errorf("the lease ended although each renewal was acknowledged: %v", err)
		}
		g.hold() // a partition
		time.Sleep(fakeTTL)
		wantKind(t, l.Err(), Expired)
		c.StopRenewing()
	})
}

// Renew moves the deadlines of all leases of the process.
func TestRenew_AllLeases(t *testing.T) {
	c, _ := newFake(t)
	a, b := mustOpen(t, c, fakeTTL), mustOpen(t, c, time.Minute)
	called := c.clock.Now()
	if err := c.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Lease{a, b} {
		if got := l.currentDeadline(); got < called+instant(trusted(l.ttl)) {
			t.Errorf("deadline %v of a lease with TTL %v, renewed at %v", got, l.ttl, called)
		}
	}
}

// However late the acknowledgement comes, the group's TTL may have begun when Renew sent
// its request.
func TestRenew_DeadlineCountsFromSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		c.StopRenewing()
		l := mustOpen(t, c, time.Hour)
		sent := c.clock.Now()
		g.hold()
		renewed := make(chan error, 1)
		go func() { renewed <- c.Renew(t.Context()) }()
		time.Sleep(time.Minute)
		g.release()
		if err := <-renewed; err != nil {
			t.Fatal(err)
		}
		if got, want := l.currentDeadline(), sent+instant(trusted(time.Hour)); got != want {
			t.Errorf("trusted for %v after the request was sent, want %v", time.Duration(got-sent), trusted(time.Hour))
		}
	})
}

// A process that was stopped for longer than the TTL opens a new session of its own
// before any timer has run.
func TestLease_OwnReplacedAfterDeadline(t *testing.T) {
	c, _ := newFake(t)
	first, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.age(time.Hour)
	next, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if next == first {
		t.Error("the lease that has ended was not replaced")
	}
}

func TestAttach_StateReplaced(t *testing.T) {
	c, g := newFake(t)
	l := mustOpen(t, c, NoTTL)
	g.replaceState()
	if err := l.Err(); err != nil {
		t.Errorf("a live session ended: %v", err)
	}
	if err := c.CloseSession(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	wantKind(t, l.Err(), Expired)
}

// A session that was opened and that no caller has seen is closed even if the
// registration of the process has expired meanwhile: without a TTL it would live for
// ever.
func TestOpening_DiscardAfterRegistrationExpired(t *testing.T) {
	c, g := newFake(t)
	o := c.newOpening(LeaseConfig{TTL: NoTTL})
	if _, err := c.exec(t.Context(), o.command); err != nil {
		t.Fatal(err)
	}
	if err := c.Deregister(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.discard()
	v, _ := g.Query(t.Context(), machine.SessionQuery{ID: o.id}, QueryOptions{})
	if v.(*machine.SessionView) != nil {
		t.Error("the session lives on")
	}
}

func TestOpening_SnapshotBetween(t *testing.T) {
	c, g := newFake(t)
	o := c.newOpening(LeaseConfig{TTL: fakeTTL})
	reply, err := c.exec(t.Context(), o.command)
	if err != nil {
		t.Fatal(err)
	}
	g.replaceState()
	_, err = o.answered(answer{reply: reply, incarnation: g.incarnation})
	if err != errRetryOpening {
		t.Errorf("got %v, want another attempt", err)
	}
	if cmd := g.last().GetCloseSession(); cmd == nil {
		t.Errorf("got %v, want the session of the first attempt closed", g.last())
	}
}

func TestRegister_ExpiredBeforeOutcome(t *testing.T) {
	c, _ := newFake(t)
	if err := c.Deregister(t.Context()); err != nil { // the group drops the registration at once
		t.Fatal(err)
	}
	if err := c.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, newLock(c, nil, "x"))
}

func TestLeader_PositionOfFeed(t *testing.T) {
	c, _ := newFake(t)
	e := new(Lock)
	e.Init(c, LockConfig{Space: wire.Space_ELECTION, Name: "x"})
	_, position, err := c.leader(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Acquire(t.Context(), true, []byte("value"), nil); err != nil {
		t.Fatal(err)
	}
	err = c.feeds.leaders.each(t.Context(), &c.lifetime, position, func(change fact.LeaderChange) bool {
		if string(change.Leader.Value) != "value" {
			t.Errorf("got %+v", change.Leader)
		}
		return false
	})
	if err != nil {
		t.Error(err)
	}
}

// The error of a session states for how long nothing was acknowledged, and that this process did not run, if that is why.
func TestLease_ErrorStatesPause(t *testing.T) {
	for name, test := range map[string]struct {
		pass func(g *fakeGroup)
		want string
	}{
		"partition": {func(g *fakeGroup) { g.hold(); time.Sleep(10 * fakeTTL) }, "no renewal was acknowledged for "},
		"pause":     {func(g *fakeGroup) { g.hold(); g.clock.suspend(time.Hour); time.Sleep(time.Second) }, "did not run for 1h0m0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newFake(t)
				l := mustOpen(t, c, fakeTTL)
				time.Sleep(time.Second)
				test.pass(g)
				err := l.Err()
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "did not run") != (name == "pause") {
					t.Errorf("%v, want %s", err, test.want)
				}
				c.StopRenewing()
			})
		})
	}
}
