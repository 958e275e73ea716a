package virtualtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// earlyLoss is a session whose process is partitioned from the group.
type earlyLoss struct {
	ttl, delay time.Duration
	checks     []string
	leads      bool          // the holder leads
	phase      time.Duration // how long the holder holds before the partition
}

// pulseTTL is the TTL of the check "pulse", which its process refreshes by thirds.
const pulseTTL = 8 * time.Second

// earlyLosses are all combinations of what can end a session by time.
func earlyLosses() (all []earlyLoss) {
	for _, ttl := range []time.Duration{10 * time.Second, time.Minute, 3 * time.Minute, conclave.NoTTL} {
		for _, delay := range []time.Duration{conclave.NoLockDelay, time.Second, 15 * time.Second, time.Minute} {
			for _, checks := range [][]string{{}, {"gossip"}, {"pulse"}, {"pulse", "gossip"}} {
				n := len(all)
				all = append(all, earlyLoss{ttl, delay, checks, n%3 == 0, time.Duration(n%7) * 1300 * time.Millisecond})
			}
		}
	}
	return all
}

func (e earlyLoss) name() string {
	return fmt.Sprintf("TTL %v, lock-delay %v, checks %v", e.ttl, e.delay, e.checks)
}

// renewal and refresh are for how long a renewal, and a refresh of the check, keep what
// the session holds; 0: for ever.
func (e earlyLoss) bounds() (renewal, refresh time.Duration) {
	delay := max(e.delay, 0)
	renewal = max(e.ttl, 0)
	for _, check := range e.checks {
		switch {
		case check == "pulse":
			refresh = pulseTTL + delay
		case renewal == 0 || minSilence+delay < renewal:
			renewal = minSilence + delay
		}
	}
	return renewal, refresh
}

// Whatever ends a session in the group while its process is partitioned, its TTL, the
// failure detector or a check, the process has noticed by its own clock before another
// owner is granted what it holds, and not much earlier than needed.
func TestEarlyLoss(t *testing.T) {
	every := 3 // so that each setting is among them
	switch {
	case *long:
		every = 1
	case testing.Short():
		every = 5
	}
	for n, e := range earlyLosses() {
		if n%every != 0 {
			continue
		}
		t.Run(e.name(), func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, 3, e.run)
		})
	}
}

func (e earlyLoss) run(g *grouptest.Group) {
	holder := g.Leader()
	if !e.leads {
		holder = g.Others(holder)[0]
	}
	other := g.Others(holder)[0]
	e.keepPulse(g, holder)
	s := grouptest.MustSession(g.T, g.Nodes[holder], &conclave.SessionConfig{
		TTL: e.ttl, LockDelay: e.delay, Checks: e.checks, NoChecks: len(e.checks) == 0,
	})
	lock := s.FencedLock("x")
	grouptest.MustLock(g.T, lock)
	waiter := grouptest.MustSession(g.T, g.Nodes[other], &conclave.SessionConfig{TTL: longTTL, NoChecks: true}).FencedLock("x")
	granted := make(chan time.Time, 1)
	go func() {
		if _, err := waiter.Lock(g.T.Context()); err == nil {
			granted <- time.Now()
		}
	}()
	grouptest.AwaitWaiters(g.T, waiter, 1)
	lost := make(chan time.Time, 1)
	go func() {
		select {
		case <-lock.Lost():
			lost <- time.Now()
		case <-g.T.Context().Done():
		}
	}()
	pass(3*time.Second + e.phase)
	isolated := time.Now()
	g.Net.Isolate(holder)
	e.wantLostFirst(g, isolated, lost, granted)
	if renewal, refresh := e.bounds(); renewal > 0 || refresh > 0 {
		_, err := lock.Fence()
		grouptest.WantError(g.T, err, conclave.ErrLockOwnershipLost)
	}
}

// keepPulse registers the check and refreshes it for as long as that succeeds in time.
func (e earlyLoss) keepPulse(g *grouptest.Group, member int) {
	check := grouptest.MustCheck(g.T, g.Nodes[member], "pulse", pulseTTL)
	go func() {
		for check.Pass(g.T.Context()) == nil {
			select {
			case <-time.After(pulseTTL / 3): // virtual
			case <-g.T.Context().Done():
			}
		}
	}()
}

func (e earlyLoss) wantLostFirst(g *grouptest.Group, isolated time.Time, lost, granted <-chan time.Time) {
	g.T.Helper()
	renewal, refresh := e.bounds()
	if renewal == 0 && refresh == 0 {
		select {
		case <-lost:
			g.T.Error("lost, though nothing ends the session by time")
		case <-granted:
			g.T.Error("granted to another owner, though nothing ends the session by time")
		case <-time.After(5 * time.Minute): // virtual
		}
		return
	}
	var at time.Time
	select {
	case at = <-lost:
	case <-granted:
		g.T.Fatal("granted to another owner before the holder noticed")
	case <-time.After(10 * time.Minute): // virtual
		g.T.Fatal("the holder has not noticed within ten minutes")
	}
	earliest, latest := longTTL, longTTL
	for _, bound := range []time.Duration{renewal, refresh} {
		if bound == 0 {
			continue
		}
		step := bound / 3 // the last renewal, or refresh, before the partition
		if bound == refresh {
			step = pulseTTL / 3
		}
		earliest = min(earliest, bound-bound/100-step-heartbeat)
		latest = min(latest, bound-bound/100)
	}
	wantBetween(g.T, "the loss", at, isolated.Add(earliest), isolated.Add(latest+heartbeat))
	select {
	case <-granted:
	case <-time.After(10 * time.Minute): // virtual
		g.T.Error("no other owner is granted the lock")
	}
}
