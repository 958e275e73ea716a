package virtualtime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// scenario is one way in which a hold or a wait ends.
type scenario struct {
	name    string
	members int
	leader  leaderRole
	delay   time.Duration
	run     func(*contention)
}

const lockDelay = 4 * time.Second

func scenarios() []scenario {
	const noDelay = conclave.NoLockDelay
	list := []scenario{
		{"holder isolated", 3, leaderIsThird, noDelay, (*contention).holderIsolated},
		{"holder isolated, lock-delay", 3, leaderIsThird, lockDelay, (*contention).holderIsolated},
		{"holder leads and is isolated", 3, leaderHolds, noDelay, (*contention).leaderIsolated},
		{"holder killed", 3, leaderIsThird, noDelay, (*contention).holderKilled},
		{"holder's power lost, lock-delay", 3, leaderWaits, lockDelay, (*contention).holderCrashed},
		{"holder restarted", 3, leaderIsThird, noDelay, (*contention).holderRestarted},
		{"holder's node closed", 3, leaderIsThird, lockDelay, (*contention).holderClosed},
		{"holder leads and its node is closed", 3, leaderHolds, lockDelay, (*contention).holderClosed},
		{"waiter's node closed", 3, leaderIsThird, noDelay, (*contention).waiterClosed},
		{"waiter leads and its node is closed", 3, leaderWaits, noDelay, (*contention).waiterClosed},
		{"leadership transferred", 3, leaderIsThird, noDelay, (*contention).leadershipTransferred},
		{"leader killed", 3, leaderIsThird, noDelay, (*contention).leaderKilled},
		{"context ends while the request is forwarded", 3, leaderIsThird, noDelay, (*contention).timeoutForwarded},
		{"context ends without a leader", 3, leaderIsThird, noDelay, (*contention).cancelledUnsent},
	}
	for _, n := range []int{1, 3} {
		list = append(list,
			scenario{"waiter's context times out", n, leaderIsThird, noDelay, (*contention).timeoutQueued},
			scenario{"waiter's context is cancelled", n, leaderIsThird, noDelay, (*contention).cancelledQueued},
			scenario{"holder's session closed", n, leaderIsThird, lockDelay, (*contention).sessionClosed},
			scenario{"holder's session closed by force", n, leaderIsThird, noDelay, (*contention).sessionForceClosed},
			scenario{"holder's session closed by force, lock-delay", n, leaderIsThird, lockDelay, (*contention).sessionForceClosed},
			scenario{"waiter's session closed by force", n, leaderIsThird, noDelay, (*contention).waiterForceClosed},
		)
	}
	return list
}

// Each kind of ownership against each way in which a hold or a wait ends: which
// session is granted it, and when, to the heartbeat of virtual time.
func TestSessionEnd(t *testing.T) {
	for ki, k := range kinds() {
		for si, s := range scenarios() {
			switch {
			case !*long && si%len(kinds()) != ki:
				continue // each scenario with one kind
			case testing.Short() && si/len(kinds())%2 == 1:
				continue // each kind in half of its scenarios
			}
			name := k.name + "/" + s.name
			if s.members == 1 {
				name += ", group of one"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				grouptest.InBubble(t, s.members, func(g *grouptest.Group) {
					s.run(newContention(g, k, s.leader, s.delay))
				})
			})
		}
	}
}

// wantExpiry checks the end of the holder's session by its TTL: the holder loses it
// at deadline, by its own clock, and the waiter is granted it when the TTL and the
// lock-delay have passed since from, and at most late later.
func (c *contention) wantExpiry(waiter <-chan attempt, deadline, from time.Time, late time.Duration) {
	if err := c.held.held(); err != nil {
		c.T.Errorf("lost at once: %v", err)
	}
	wantAt(c.T, "the loss", c.awaitLost(), deadline)
	c.wantLost()
	select {
	case got := <-waiter:
		c.T.Fatalf("granted to the waiter before the holder lost it: %+v", got)
	default:
	}
	c.wantGranted(waiter, from.Add(ttl+c.delay), late)
}

// deadlineOf is when the holder's session ends by its process's clock, which may be
// one percent slower than the group's.
func deadlineOf(renewed time.Time) time.Time { return renewed.Add(ttl - ttl/100) }

// wantGranted checks when the waiter is granted it.
func (c *contention) wantGranted(waiter <-chan attempt, from time.Time, late time.Duration) {
	c.T.Helper()
	got := <-waiter
	if got.err != nil {
		c.T.Fatal(got.err)
	}
	wantBetween(c.T, "the grant", got.at, from, from.Add(late))
	if err := got.held(); err != nil {
		c.T.Errorf("the new holder has lost it: %v", err)
	}
}

func (c *contention) holderIsolated() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	renewed := c.renew()
	c.Net.Isolate(c.holder)
	c.wantExpiry(waiter, deadlineOf(renewed), renewed, 2*c.slack())
	c.Net.Rejoin(c.holder)
}

// A new leader gives every session a full TTL.
func (c *contention) leaderIsolated() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	renewed := c.renew()
	c.Net.Isolate(c.holder)
	c.LeaderWithout(c.holder)
	elected := time.Now()
	wantBetween(c.T, "the election", elected, renewed, renewed.Add(2*election+heartbeat))
	c.wantExpiry(waiter, deadlineOf(renewed), elected.Add(-2*heartbeat), 4*c.slack())
	c.Net.Rejoin(c.holder)
}

// probeWait is how long stopping a node may take: memberlist waits for a probe.
const probeWait = 500 * time.Millisecond

func (c *contention) holderKilled() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	renewed := c.renew()
	c.Kill(c.holder)
	wantBetween(c.T, "the loss", c.awaitLost(), renewed, renewed.Add(probeWait))
	c.wantLost()
	c.wantGranted(waiter, renewed.Add(ttl), 2*c.slack())
}

func (c *contention) holderCrashed() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	renewed := c.renew()
	c.Crash(c.holder)
	c.wantGranted(waiter, renewed.Add(ttl+lockDelay), 2*c.slack())
}

// The registration of a restarted process ends the former one's sessions at once.
func (c *contention) holderRestarted() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	c.Kill(c.holder)
	began := time.Now()
	c.Start(c.holder)
	c.wantGranted(waiter, began, time.Since(began)+c.slack())
}

// A graceful shutdown is no invalidation: no lock-delay follows.
func (c *contention) holderClosed() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	began := time.Now()
	done := make(chan struct{})
	go func() { c.Close(c.holder); close(done) }()
	wantAt(c.T, "the loss", c.awaitLost(), began)
	c.wantLost()
	c.wantGranted(waiter, began, c.slack())
	<-done
}

func (c *contention) waiterClosed() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	began := time.Now()
	c.Close(c.waiter)
	got := <-waiter
	if !errors.Is(got.err, conclave.ErrClosed) && !errors.Is(got.err, conclave.ErrSessionExpired) {
		c.T.Errorf("the waiter gets %v", got.err)
	}
	wantBetween(c.T, "the end of the wait", got.at, began, began.Add(pollInterval))
	c.wantReleasable()
	c.wantFree(c.holder)
}

// A change of leader costs neither the hold nor the place in the queue.
func (c *contention) leadershipTransferred() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	for range 3 {
		if err := c.Nodes[c.Leader()].TransferLeadership(grouptest.Within(c.T, election), 0); err != nil {
			c.T.Error(err)
		}
		pass(2 * ttl)
	}
	c.wantGrantedOnRelease(waiter)
}

// wantGrantedOnRelease checks that the waiter is still queued, and is granted the lock
// when the holder releases it.
func (c *contention) wantGrantedOnRelease(waiter <-chan attempt) {
	select {
	case got := <-waiter:
		c.T.Fatalf("the wait has ended: %+v", got)
	default:
	}
	released := time.Now()
	c.wantReleasable()
	c.wantGranted(waiter, released, c.slack())
}

func (c *contention) leaderKilled() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	leader := c.third()
	c.Kill(leader)
	pass(2 * ttl)
	c.wantGrantedOnRelease(waiter)
	c.Start(leader)
	c.Leader()
}

// The wait of one that polls ends between two polls: a write that is under way then may take effect later.
const betweenPolls = 3*time.Second + pollInterval/2

func (c *contention) timeoutQueued() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.T.Context(), betweenPolls)
	defer cancel()
	got := <-c.contend(ctx)
	c.wantEnded(got, context.DeadlineExceeded, began.Add(betweenPolls))
	c.wantReleasable()
	c.wantFree(c.holder)
}

func (c *contention) cancelledQueued() {
	ctx, cancel := context.WithCancel(c.T.Context())
	waiter := c.contend(ctx)
	pass(betweenPolls)
	began := time.Now()
	cancel()
	c.wantEnded(<-waiter, context.Canceled, began)
	c.wantReleasable()
	c.wantFree(c.holder)
}

// wantEnded checks how and when an attempt ends whose context has ended.
func (c *contention) wantEnded(got attempt, want error, at time.Time) {
	c.T.Helper()
	if !errors.Is(got.err, want) {
		c.T.Errorf("the waiter gets %v; want %v", got.err, want)
	}
	late := time.Duration(0)
	if !c.kind.queues {
		late = pollInterval
	}
	wantBetween(c.T, "the end of the wait", got.at, at, at.Add(late))
}

// A forwarded request without an outcome ends with its context. When it arrives
// later, it has no lasting effect.
func (c *contention) timeoutForwarded() {
	c.Net.Isolate(c.waiter)
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.T.Context(), election/2)
	defer cancel()
	got := <-c.contend(ctx)
	c.wantEnded(got, context.DeadlineExceeded, began.Add(election/2))
	if c.kind.name == "key" && !errors.Is(got.err, conclave.ErrUnknown) {
		c.T.Errorf("a write without outcome returns %v; want ErrUnknown", got.err)
	}
	c.Net.Rejoin(c.waiter)
	pass(ttl)
	c.wantReleasable()
	c.wantFree(c.waiter)
}

// A request that was not sent has no effect, and the error says so.
func (c *contention) cancelledUnsent() {
	c.Net.Isolate(c.waiter)
	pass(2 * election)
	if s := c.Nodes[c.waiter].Status(); s.Leader != 0 {
		c.T.Fatalf("an isolated member follows %v", s.Leader)
	}
	ctx, cancel := context.WithCancel(c.T.Context())
	waiter := c.contend(ctx)
	synctest.Wait()
	began := time.Now()
	cancel()
	got := <-waiter
	c.wantEnded(got, context.Canceled, began)
	if !errors.Is(got.err, conclave.ErrUnavailable) {
		c.T.Errorf("a request that was not sent returns %v; want ErrUnavailable", got.err)
	}
	c.Net.Rejoin(c.waiter)
	c.wantReleasable()
	c.wantFree(c.holder)
}

func (c *contention) sessionClosed() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	began := time.Now()
	grouptest.Must(c.T, c.holderSession.Close(c.T.Context()))
	wantAt(c.T, "the loss", c.awaitLost(), began)
	c.wantLost()
	c.wantGranted(waiter, began, c.slack())
}

// The group releases at once, or when the lock-delay has passed.
func (c *contention) sessionForceClosed() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	began := time.Now()
	grouptest.Must(c.T, c.Nodes[c.waiter].CloseSession(c.T.Context(), c.holderSession.ID()))
	wantAt(c.T, "the loss", c.awaitLost(), began)
	c.wantLost()
	c.wantGranted(waiter, began.Add(c.delay), c.slack())
}

func (c *contention) waiterForceClosed() {
	waiter := c.contend(c.T.Context())
	synctest.Wait()
	began := time.Now()
	grouptest.Must(c.T, c.Nodes[c.holder].CloseSession(c.T.Context(), c.waiterSession.ID()))
	got := <-waiter
	if !errors.Is(got.err, conclave.ErrSessionExpired) {
		c.T.Errorf("the waiter gets %v; want ErrSessionExpired", got.err)
	}
	wantBetween(c.T, "the end of the wait", got.at, began, began.Add(pollInterval))
	c.wantReleasable()
	c.wantFree(c.holder)
}
