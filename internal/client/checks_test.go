package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

func mustOpenOn(t *testing.T, c *Client, ttl, delay time.Duration, names ...string) *Lease {
	t.Helper()
	l, err := c.Open(t.Context(), LeaseConfig{TTL: ttl, LockDelay: delay, Checks: names})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustRegister(t *testing.T, c *Client, name string, ttl time.Duration) {
	t.Helper()
	if err := c.SetCheck(t.Context(), &wire.SetCheck{Name: name, Register: true, Ttl: int64(ttl)}); err != nil {
		t.Fatal(err)
	}
}

func mustRefresh(t *testing.T, c *Client, name string) {
	t.Helper()
	if err := c.SetCheck(t.Context(), &wire.SetCheck{Name: name}); err != nil {
		t.Fatal(err)
	}
}

// wantDeadline checks for how long from now the lease can be trusted.
func wantDeadline(t *testing.T, l *Lease, want time.Duration) {
	t.Helper()
	at := l.currentDeadline()
	if at == never && want != NoTTL || at != never && l.client.clock.Until(at) != want {
		t.Errorf("trusted for %v, want %v", l.client.clock.Until(at), want)
	}
}

// What can end a session by time: its TTL; the failure detector, five seconds after the
// last renewal, and then its lock-delay; a check, and then its lock-delay.
func TestLease_SmallestBoundCounts(t *testing.T) {
	const noTTL = NoTTL
	for _, test := range []struct {
		name       string
		ttl, delay time.Duration
		checks     []string
		want       time.Duration
	}{
		{"TTL alone", 10 * time.Second, time.Minute, nil, 9900 * time.Millisecond},
		{"TTL before the failure detector", 10 * time.Second, 15 * time.Second, []string{"gossip"}, 9900 * time.Millisecond},
		{"failure detector", time.Minute, 15 * time.Second, []string{"gossip"}, 19800 * time.Millisecond},
		{"failure detector, no lock-delay", time.Minute, 0, []string{"gossip"}, 4950 * time.Millisecond},
		{"failure detector, no TTL", noTTL, 15 * time.Second, []string{"gossip"}, 19800 * time.Millisecond},
		{"failure detector after the registration", time.Hour, time.Minute, []string{"gossip"}, 64350 * time.Millisecond},
		{"registration, no TTL", noTTL, time.Minute, []string{"gossip"}, 59400 * time.Millisecond},
		{"no TTL, no checks", noTTL, 15 * time.Second, nil, noTTL},
		{"check", time.Hour, 10 * time.Second, []string{"pulse"}, 39600 * time.Millisecond},
		{"check, no TTL", noTTL, 0, []string{"pulse"}, 29700 * time.Millisecond},
		{"check without a TTL", time.Hour, 0, []string{"steady"}, time.Hour * 99 / 100},
		{"smallest of two checks", time.Hour, 0, []string{"slow", "pulse"}, 29700 * time.Millisecond},
		{"failure detector before the check", time.Hour, 0, []string{"pulse", "gossip"}, 4950 * time.Millisecond},
		{"TTL before the check", 20 * time.Second, 0, []string{"pulse"}, 19800 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newFake(t)
				mustRegister(t, c, "pulse", 30*time.Second)
				mustRegister(t, c, "slow", 40*time.Second)
				mustRegister(t, c, "steady", 0)
				wantDeadline(t, mustOpenOn(t, c, test.ttl, test.delay, test.checks...), test.want)
			})
		})
	}
}

// A check's time counts from the sending of its last acknowledged refresh, however often
// the session is renewed, and also if an earlier process registered it.
func TestLease_CheckCountsFromItsRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		mustRegister(t, c, "pulse", 30*time.Second)
		time.Sleep(10 * time.Second)
		c.checks.byName = make(map[string]*check) // as a later process of the member
		l := mustOpenOn(t, c, time.Hour, 0, "pulse")
		wantDeadline(t, l, 19700*time.Millisecond)
		if err := c.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantDeadline(t, l, 19700*time.Millisecond)
		g.hold()
		sent := time.Now()
		done := make(chan error, 1)
		go func() { done <- c.SetCheck(t.Context(), &wire.SetCheck{Name: "pulse"}) }()
		time.Sleep(5 * time.Second)
		wantDeadline(t, l, 14700*time.Millisecond)
		g.release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantDeadline(t, l, 29700*time.Millisecond-time.Since(sent))
		c.StopRenewing()
		began := time.Now()
		<-l.Done()
		if took := time.Since(began); took != 24700*time.Millisecond {
			t.Errorf("lost after %v", took)
		}
	})
}

// From the moment at which a smaller TTL is sent, it may be in force.
func TestLease_CheckRegisteredWithSmallerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		mustRegister(t, c, "pulse", time.Minute)
		l := mustOpenOn(t, c, time.Hour, 0, "pulse")
		g.hold() // a partition: the outcome is not known
		go func() {
			_ = c.SetCheck(t.Context(), &wire.SetCheck{Name: "pulse", Register: true, Ttl: int64(10 * time.Second)})
		}()
		synctest.Wait()
		wantDeadline(t, l, 9900*time.Millisecond)
		began := time.Now()
		<-l.Done()
		if took := time.Since(began); took != 9900*time.Millisecond {
			t.Errorf("lost after %v", took)
		}
		g.release()
		c.StopRenewing()
	})
}

// A larger one is in force when it is acknowledged, not before; and so is none.
func TestLease_CheckRegisteredWithLargerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		mustRegister(t, c, "pulse", 10*time.Second)
		l := mustOpenOn(t, c, time.Hour, 0, "pulse")
		for _, ttl := range []time.Duration{time.Minute, 0} {
			g.hold()
			done := make(chan error, 1)
			before := c.clock.Until(l.currentDeadline())
			go func() {
				done <- c.SetCheck(t.Context(), &wire.SetCheck{Name: "pulse", Register: true, Ttl: int64(ttl)})
			}()
			synctest.Wait()
			wantDeadline(t, l, before)
			g.release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			want := time.Hour * 99 / 100
			if ttl > 0 {
				want = trusted(ttl)
			}
			wantDeadline(t, l, want)
		}
		mustRefresh(t, c, "pulse")
		if err := c.DropCheck(t.Context(), "pulse"); err != nil {
			t.Fatal(err)
		}
		<-l.Done()
		wantKind(t, l.Err(), Expired)
		if n := len(c.checks.byName); n != 0 {
			t.Errorf("%d checks are remembered", n)
		}
	})
}

// After a snapshot, outcomes may come in another order than that of the log.
func TestChecks_LatestIndexCounts(t *testing.T) {
	c, _ := newFake(t)
	learn := func(index uint64, ttl time.Duration) {
		c.checks.learn(&wire.Reply{Index: index, Checks: []*wire.CheckTerms{{Name: "pulse", Ttl: int64(ttl), Remaining: int64(ttl)}}}, 0)
	}
	learn(7, 10*time.Second)
	learn(5, time.Minute)
	if got := c.checks.byName["pulse"].ttl; got != 10*time.Second {
		t.Errorf("TTL %v, want that of the later entry", got)
	}
	learn(8, time.Minute)
	learn(8, 20*time.Second)
	learn(8, time.Minute)
	if got := c.checks.byName["pulse"].ttl; got != 20*time.Second {
		t.Errorf("TTL %v, want the smallest of one entry", got)
	}
}

// A failed or unsent registration leaves nothing behind.
func TestChecks_RefusedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		if err := c.SetCheck(t.Context(), &wire.SetCheck{Name: "pulse"}); !isCode(err, wire.Code_CHECK_UNKNOWN) {
			t.Fatal(err)
		}
		g.hold()
		defer g.release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wantKind(t, c.SetCheck(ctx, &wire.SetCheck{Name: "pulse", Register: true, Ttl: int64(time.Second)}), Unavailable)
		if n := len(c.checks.byName); n != 0 {
			t.Errorf("%d checks are remembered", n)
		}
	})
}

// The machine was suspended: the clock has moved on, and the timers have not. The next heartbeat
// wakes the loop, which finds every lease that is over, and sends a renewal that is due.
func TestWoke_AfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		short, long := mustOpen(t, c, time.Minute), mustOpen(t, c, time.Hour)
		l := newLock(c, short, "x")
		mustAcquire(t, l)
		released := l.Lost()
		c.Woke()
		g.settle()
		if short.Err() != nil {
			t.Fatal(short.Err())
		}
		applied := len(g.applied)
		g.clock.suspend(2 * time.Minute)
		g.heartbeat()
		select {
		case <-released:
		default:
			t.Error("Lost is open after the heartbeat")
		}
		select {
		case <-short.Done():
		default:
			t.Error("the session is not done after the heartbeat")
		}
		if err := long.Err(); err != nil {
			t.Errorf("a session that is not over: %v", err)
		}
		synctest.Wait()
		renewed := false
		for _, cmd := range g.applied[applied:] {
			renewed = renewed || cmd.GetRenew() != nil
		}
		if !renewed {
			t.Error("the renewal that was due was not sent")
		}
		c.StopRenewing()
	})
}

// A busy loop wakes many times in a millisecond. It looks for suspended time once, since that takes a system call.
func TestWoke_LooksOnceAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		mustOpen(t, c, time.Minute)
		g.heartbeat()
		before := g.clock.looks.Load()
		for range 5 {
			for range 200 {
				c.Woke()
			}
			g.heartbeat()
		}
		if n := g.clock.looks.Load() - before; n != 5 {
			t.Errorf("%d looks in 1005 wake-ups of 5 heartbeats", n)
		}
		c.StopRenewing()
	})
}
