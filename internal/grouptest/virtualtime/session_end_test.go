package virtualtime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// scene is what happens to a contest, and who gets what and when.
type scene struct {
	name    string
	members int
	leading role
	delay   time.Duration
	play    func(*contest)
}

const bubbleDelay = 4 * time.Second

func scenes() []scene {
	list := []scene{
		{"the holder is cut off", 3, third, NoLockDelay, (*contest).holderCutOff},
		{"the holder is cut off and has a lock-delay", 3, third, bubbleDelay, (*contest).holderCutOff},
		{"the leader holds and is cut off", 3, holds, NoLockDelay, (*contest).leaderCutOff},
		{"the holder's process is killed", 3, third, NoLockDelay, (*contest).holderKilled},
		{"the holder's machine loses power", 3, waits, bubbleDelay, (*contest).holderCrashed},
		{"the holder's process is started anew", 3, third, NoLockDelay, (*contest).holderRestarted},
		{"the holder's node is closed", 3, third, bubbleDelay, (*contest).holderClosed},
		{"the leader holds and is closed", 3, holds, bubbleDelay, (*contest).holderClosed},
		{"the waiter's node is closed", 3, third, NoLockDelay, (*contest).waiterClosed},
		{"the leader waits and is closed", 3, waits, NoLockDelay, (*contest).waiterClosed},
		{"leadership is handed over", 3, third, NoLockDelay, (*contest).leaderMoves},
		{"the leader's process is killed", 3, third, NoLockDelay, (*contest).leaderKilled},
		{"the waiter's request is under way", 3, third, NoLockDelay, (*contest).timeoutUnderWay},
		{"the waiter knows no leader", 3, third, NoLockDelay, (*contest).cancelledUnsent},
	}
	for _, n := range []int{1, 3} {
		list = append(list,
			scene{"the waiter's time is over", n, third, NoLockDelay, (*contest).timeoutWaiting},
			scene{"the waiter's context is cancelled", n, third, NoLockDelay, (*contest).cancelledWaiting},
			scene{"the holder's session is closed", n, third, bubbleDelay, (*contest).sessionClosed},
			scene{"the holder's session is closed by force", n, third, NoLockDelay, (*contest).forced},
			scene{"the holder's session is closed by force and has a lock-delay", n, third, bubbleDelay, (*contest).forced},
			scene{"the waiter's session is closed by force", n, third, NoLockDelay, (*contest).waiterForced},
		)
	}
	return list
}

// Who gets what, and when, in virtual time and to the tick: each way to claim
// something against each way in which a claim or a wait can end.
func TestBubbleContest(t *testing.T) {
	for ki, k := range kinds() {
		for si, s := range scenes() {
			if testing.Short() && si%len(kinds()) != ki {
				continue // each scene with one kind
			}
			name := k.name + "/" + s.name
			if s.members == 1 {
				name += ", alone"
			}
			t.Run(name, func(t *testing.T) {
				inBubble(t, s.members, nil, func(g *grouptest.Group) {
					s.play(newContest(g, k, s.leading, s.delay))
				})
			})
		}
	}
}

// expiry plays the end of the holder's session by time. The holder is told by
// its own clock, a percent of its TTL before the group can let go, and the
// waiter gets it when the TTL has passed since from, and then the lock-delay; at
// most late later.
func (c *contest) expiry(waiter <-chan bid, from time.Time, late time.Duration) {
	want := deadline(c.hs)
	if c.first.held() != nil {
		c.t.Errorf("lost at once: %v", c.first.held())
	}
	grouptest.WantAt(c.t, "the loss", c.awaitLost(), want)
	c.wantLost()
	select {
	case got := <-waiter:
		c.t.Fatalf("the waiter has it already: %+v", got)
	default:
	}
	c.grantedAfter(waiter, from.Add(grouptest.BubbleTTL+c.delay), late)
}

// grantedAfter checks that the waiter gets it, and when.
func (c *contest) grantedAfter(waiter <-chan bid, from time.Time, late time.Duration) {
	c.t.Helper()
	got := <-waiter
	if got.err != nil {
		c.t.Fatal(got.err)
	}
	grouptest.WantBetween(c.t, "the grant", got.at, from, from.Add(late))
	if err := got.held(); err != nil {
		c.t.Errorf("the new holder is told %v", err)
	}
}

func (c *contest) holderCutOff() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	c.isolate(c.holder, true)
	c.expiry(waiter, acknowledged(c.hs), 2*c.slack())
	c.isolate(c.holder, false)
}

// A new leader gives every session a full TTL, so the waiter's time begins with
// the leader's.
func (c *contest) leaderCutOff() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	cut := time.Now()
	c.isolate(c.holder, true)
	c.Leader(c.holder)
	elected := time.Now()
	grouptest.WantBetween(c.t, "the election", elected, cut, cut.Add(2*grouptest.BubbleElection+grouptest.BubbleHeartbeat))
	c.expiry(waiter, elected.Add(-2*grouptest.BubbleHeartbeat), 4*c.slack())
	c.isolate(c.holder, false)
}

func (c *contest) holderKilled() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	from := acknowledged(c.hs)
	killed := time.Now()
	c.Kill(c.holder)
	grouptest.WantBetween(c.t, "the loss", c.awaitLost(), killed, killed.Add(probeWait))
	c.wantLost()
	c.grantedAfter(waiter, from.Add(grouptest.BubbleTTL), 2*c.slack())
}

// probeWait is what stopping a node can take: gossip waits for a probe.
const probeWait = 500 * time.Millisecond

func (c *contest) holderCrashed() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	from := acknowledged(c.hs)
	c.Crash(c.holder)
	c.grantedAfter(waiter, from.Add(grouptest.BubbleTTL+bubbleDelay), 2*c.slack())
}

// A process that starts anew ends what the one before held, at once.
func (c *contest) holderRestarted() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	c.Kill(c.holder)
	began := time.Now()
	c.Start(c.holder)
	c.grantedAfter(waiter, began, time.Since(began)+c.slack())
}

// Closing is not an invalidation: there is no lock-delay.
func (c *contest) holderClosed() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	began := time.Now()
	done := make(chan struct{})
	go func() { c.Close(c.holder); close(done) }()
	grouptest.WantAt(c.t, "the loss", c.awaitLost(), began)
	c.wantLost()
	c.grantedAfter(waiter, began, c.slack())
	<-done
}

func (c *contest) waiterClosed() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	began := time.Now()
	c.Close(c.waiter)
	got := <-waiter
	if !errors.Is(got.err, ErrClosed) && !errors.Is(got.err, ErrSessionExpired) {
		c.t.Errorf("the waiter is told %v", got.err)
	}
	grouptest.WantBetween(c.t, "the end of the wait", got.at, began, began.Add(pollEvery))
	c.wantHeld()
	c.wantFree(c.holder)
}

// A change of the leader costs nobody anything: the holder holds, the waiter
// waits, and gets it when it is given back.
func (c *contest) leaderMoves() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	for range 3 {
		if err := c.Nodes[c.Leader(-1)].TransferLeadership(grouptest.Within(c.t, grouptest.BubbleElection), 0); err != nil {
			c.t.Error(err)
		}
		grouptest.Pass(2 * grouptest.BubbleTTL)
	}
	c.handedOver(waiter)
}

func (c *contest) handedOver(waiter <-chan bid) {
	select {
	case got := <-waiter:
		c.t.Fatalf("the wait has ended: %+v", got)
	default:
	}
	released := time.Now()
	c.wantHeld()
	c.grantedAfter(waiter, released, c.slack())
}

func (c *contest) leaderKilled() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	gone := c.other()
	c.Kill(gone)
	grouptest.Pass(2 * grouptest.BubbleTTL)
	c.handedOver(waiter)
	c.Start(gone)
	c.Leader(-1)
}

func (c *contest) timeoutWaiting() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer cancel()
	got := <-c.contend(ctx)
	c.endedBy(got, context.DeadlineExceeded, began.Add(3*time.Second))
	c.wantHeld()
	c.wantFree(c.holder)
}

func (c *contest) cancelledWaiting() {
	ctx, cancel := context.WithCancel(c.t.Context())
	waiter := c.contend(ctx)
	grouptest.Pass(time.Second)
	began := time.Now()
	cancel()
	c.endedBy(<-waiter, context.Canceled, began)
	c.wantHeld()
	c.wantFree(c.holder)
}

// endedBy checks what a claim is told whose context has ended, and when.
func (c *contest) endedBy(got bid, want error, at time.Time) {
	c.t.Helper()
	if !errors.Is(got.err, want) {
		c.t.Errorf("the waiter is told %v", got.err)
	}
	late := time.Duration(0)
	if !c.kind.waits {
		late = pollEvery
	}
	grouptest.WantBetween(c.t, "the end of the wait", got.at, at, at.Add(late))
}

// What was handed on and not answered ends as its context does. It may still
// arrive, and then nothing may come of it.
func (c *contest) timeoutUnderWay() {
	c.isolate(c.waiter, true)
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.t.Context(), grouptest.BubbleElection/2)
	defer cancel()
	got := <-c.contend(ctx)
	c.endedBy(got, context.DeadlineExceeded, began.Add(grouptest.BubbleElection/2))
	if c.kind.name == "key" && !errors.Is(got.err, ErrUnknown) {
		c.t.Errorf("the outcome of a write cannot be known: %v", got.err)
	}
	c.isolate(c.waiter, false)
	grouptest.Pass(grouptest.BubbleTTL)
	c.wantHeld()
	c.wantFree(c.waiter)
}

// What nobody could be handed has no effect, and the error says so.
func (c *contest) cancelledUnsent() {
	c.isolate(c.waiter, true)
	grouptest.Pass(2 * grouptest.BubbleElection)
	if s := c.Nodes[c.waiter].Status(); s.Leader != 0 {
		c.t.Fatalf("a member that is cut off follows %v", s.Leader)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	waiter := c.contend(ctx)
	synctest.Wait()
	began := time.Now()
	cancel()
	got := <-waiter
	c.endedBy(got, context.Canceled, began)
	if !errors.Is(got.err, ErrUnavailable) {
		c.t.Errorf("nothing was sent, and the waiter is told %v", got.err)
	}
	c.isolate(c.waiter, false)
	c.wantHeld()
	c.wantFree(c.holder)
}

func (c *contest) sessionClosed() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	began := time.Now()
	if err := c.hs.Close(c.t.Context()); err != nil {
		c.t.Error(err)
	}
	grouptest.WantAt(c.t, "the loss", c.awaitLost(), began)
	c.wantLost()
	c.grantedAfter(waiter, began, c.slack())
}

// The group lets go at once, or after the lock-delay, to the tick.
func (c *contest) forced() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	began := time.Now()
	if err := c.Nodes[c.waiter].CloseSession(c.t.Context(), c.hs.ID()); err != nil {
		c.t.Error(err)
	}
	grouptest.WantAt(c.t, "the loss", c.awaitLost(), began)
	c.wantLost()
	c.grantedAfter(waiter, began.Add(c.delay), c.slack())
}

func (c *contest) waiterForced() {
	waiter := c.contend(c.t.Context())
	synctest.Wait()
	began := time.Now()
	if err := c.Nodes[c.holder].CloseSession(c.t.Context(), c.ws.ID()); err != nil {
		c.t.Error(err)
	}
	got := <-waiter
	if !errors.Is(got.err, ErrSessionExpired) {
		c.t.Errorf("the waiter is told %v", got.err)
	}
	grouptest.WantBetween(c.t, "the end of the wait", got.at, began, began.Add(pollEvery))
	c.wantHeld()
	c.wantFree(c.holder)
}
