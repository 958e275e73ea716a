package virtualtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

const maxHold = 20 * time.Second

// trusted is what a holder may rely on of a time that the group counts.
func trusted(d time.Duration) time.Duration { return d - d/100 }

// bounded has a holder, whose session has a lock-delay, and a waiter, on two nodes that do not lead.
type bounded struct {
	*grouptest.Group
	leader, holder int
	session        *conclave.Session
	lock           *conclave.FencedLock
	requested      time.Time
	granted        time.Time
	lost           chan time.Time // when, also while the test itself blocks, as in Kill
	next           *conclave.RWLock
}

func newBounded(g *grouptest.Group) *bounded {
	b := &bounded{Group: g, leader: g.Leader()}
	b.holder = g.Others(b.leader)[0]
	b.session = grouptest.MustSession(g.T, g.Nodes[b.holder], &conclave.SessionConfig{TTL: time.Minute, LockDelay: lockDelay, NoChecks: true})
	b.lock = b.session.FencedLock("x", conclave.MaxHold(maxHold))
	b.requested = time.Now()
	_, err := b.lock.Lock(g.T.Context())
	grouptest.Must(g.T, err)
	b.granted = time.Now()
	b.lost = make(chan time.Time, 1)
	go func(lost <-chan struct{}) {
		<-lost
		b.lost <- time.Now()
	}(b.lock.Lost())
	b.next = g.Nodes[g.Others(b.leader)[1]].RWLock("x")
	return b
}

// wantLoss wants the holder's loss, and after it the waiter's grant, not before the end of the hold and the lock-delay
// by the group's time.
func (b *bounded) wantLoss(wrote <-chan attempt, loss, end time.Time, late time.Duration) {
	b.T.Helper()
	wantBetween(b.T, "the loss", <-b.lost, loss, loss.Add(heartbeat))
	_, err := b.lock.Fence()
	grouptest.WantError(b.T, err, conclave.ErrHoldExpired)
	select {
	case got := <-wrote:
		b.T.Errorf("granted before the loss: %+v", got)
	default:
	}
	got := <-wrote
	grouptest.Must(b.T, got.err)
	wantBetween(b.T, "the next grant", got.at, end.Add(lockDelay-heartbeat), end.Add(lockDelay+late))
	grouptest.WantError(b.T, b.lock.Unlock(b.T.Context()), conclave.ErrHoldExpired)
}

// A holder whose session is renewed all the time loses its hold at the end of that, before another one is granted it. The
// session and its other holds live on.
func TestMaxHold_SessionRenewed(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		b := newBounded(g)
		other := b.session.FencedLock("y")
		_, err := other.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		info, err := b.next.Info(g.T.Context())
		if err != nil || info.EndsIn <= 0 || info.EndsIn > maxHold {
			g.T.Errorf("%+v, %v", info, err)
		}
		why, err := g.Nodes[b.leader].Explain(g.T.Context(), "x")
		if err != nil || why.Holder.EndsIn <= 0 || why.Holder.EndsIn > maxHold {
			g.T.Errorf("%+v, %v", why, err)
		}
		b.wantLoss(writing(g, b.next), b.requested.Add(trusted(maxHold)), b.granted.Add(maxHold), 3*heartbeat)
		if _, err := other.Fence(); err != nil || b.session.Err() != nil {
			g.T.Errorf("the session has ended: %v, %v", err, b.session.Err())
		}
		grouptest.Must(g.T, b.next.Unlock(g.T.Context()))
		_, err = b.lock.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		if !errors.Is(conclave.ErrHoldExpired, conclave.ErrLockOwnershipLost) {
			g.T.Error("ErrHoldExpired is no ErrLockOwnershipLost")
		}
	})
}

// A holder that is cut by a partition knows the end by itself, while its session lives on for long.
func TestMaxHold_HolderIsolated(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		b := newBounded(g)
		wrote := writing(g, b.next)
		g.Net.Isolate(b.holder)
		b.wantLoss(wrote, b.requested.Add(trusted(maxHold)), b.granted.Add(maxHold), 3*heartbeat)
		if err := b.session.Err(); err != nil {
			g.T.Errorf("the session has ended: %v", err)
		}
		g.Net.Rejoin(b.holder)
	})
}

// A new leader right before the end gives no hold more time than the group had none.
func TestMaxHold_LeaderChange(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		b := newBounded(g)
		wrote := writing(g, b.next)
		pass(maxHold - 2*heartbeat)
		g.Kill(b.leader)
		b.wantLoss(wrote, b.requested.Add(trusted(maxHold)), b.granted.Add(maxHold), 4*election)
		g.Start(b.leader)
	})
}

// Extend in time moves the end, and too late it does not. The waiter waits for far longer than its own hold lasts then.
func TestMaxHold_Extend(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		b := newBounded(g)
		short := g.Nodes[b.leader].FencedLock("x", conclave.MaxHold(time.Second))
		waited := make(chan time.Time, 1)
		go func() {
			_, err := short.Lock(g.T.Context())
			grouptest.Must(g.T, err)
			waited <- time.Now()
			<-short.Lost()
			waited <- time.Now()
		}()
		for range 12 {
			pass(maxHold / 2)
			grouptest.Must(g.T, b.lock.Extend(grouptest.Within(g.T, election), maxHold))
		}
		extended := time.Now()
		grouptest.WantError(g.T, b.lock.Extend(g.T.Context(), 0), conclave.ErrInvalid)
		grouptest.WantError(g.T, b.lock.Extend(g.T.Context(), 25*time.Hour), conclave.ErrInvalid)
		grouptest.WantError(g.T, short.Extend(g.T.Context(), time.Second), conclave.ErrNotHeld)
		<-b.lock.Lost()
		wantBetween(g.T, "the loss", time.Now(), extended.Add(trusted(maxHold)-heartbeat), extended.Add(trusted(maxHold)))
		grouptest.WantError(g.T, b.lock.Extend(g.T.Context(), maxHold), conclave.ErrHoldExpired)
		grouptest.WantError(g.T, b.lock.Unlock(g.T.Context()), conclave.ErrHoldExpired)
		granted, lost := <-waited, <-waited
		wantBetween(g.T, "the loss of what waited", lost, granted.Add(trusted(time.Second)-ttl/100), granted.Add(time.Second))
		plain := b.session.FencedLock("z")
		_, err := plain.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		grouptest.WantError(g.T, plain.Extend(g.T.Context(), time.Second), conclave.ErrInvalid)
	})
}

// An Extend that cannot reach the group leaves the end where it was, and its outcome is found later.
func TestMaxHold_ExtendIsolated(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		b := newBounded(g)
		g.Net.Isolate(b.holder)
		wrote := writing(g, b.next)
		err := b.lock.Extend(grouptest.Within(g.T, maxHold/4), time.Hour)
		if !errors.Is(err, conclave.ErrUnknown) && !errors.Is(err, conclave.ErrUnavailable) {
			g.T.Errorf("Extend without the group: %v", err)
		}
		b.wantLoss(wrote, b.requested.Add(trusted(maxHold)), b.granted.Add(maxHold), 3*heartbeat)
		g.Net.Rejoin(b.holder)
	})
}

// The context of Do, of RDo and of a semaphore's Do ends with the cause, on a node and on a client.
func TestMaxHold_Do(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		client := grouptest.Dial(g.T, &conclave.ClientConfig{Dial: g.Net.Dialer(3)}, g.Nodes[1])
		for i, access := range []grouptest.Access{g.Nodes[0], client} {
			name := []string{"node", "client"}[i]
			bound := conclave.MaxHold(maxHold)
			late := func(ctx context.Context, _ conclave.Fence) error {
				began := time.Now()
				<-ctx.Done()
				wantBetween(g.T, "the end of the context", time.Now(), began.Add(trusted(maxHold)-heartbeat), began.Add(maxHold))
				if !errors.Is(context.Cause(ctx), conclave.ErrHoldExpired) {
					g.T.Errorf("the cause is %v", context.Cause(ctx))
				}
				return nil
			}
			grouptest.WantError(g.T, access.FencedLock(name, bound).Do(g.T.Context(), late), conclave.ErrHoldExpired)
			grouptest.WantError(g.T, access.RWLock(name, bound).RDo(g.T.Context(), late), conclave.ErrHoldExpired)
			grouptest.WantError(g.T, access.Semaphore(name, 2).WithMaxHold(maxHold).Do(g.T.Context(), 1, late), conclave.ErrHoldExpired)
			permit, err := access.Semaphore(name, 2).WithMaxHold(maxHold).Acquire(g.T.Context(), 2)
			grouptest.Must(g.T, err)
			pass(maxHold / 2)
			grouptest.Must(g.T, permit.Extend(g.T.Context(), maxHold))
			pass(maxHold * 3 / 4)
			info, err := access.Semaphore(name, 2).Info(g.T.Context())
			if err != nil || len(info.Holders) != 1 || info.Holders[0].EndsIn <= 0 || info.Holders[0].EndsIn > maxHold/2 {
				g.T.Errorf("%+v, %v", info, err)
			}
			grouptest.Must(g.T, permit.Release(g.T.Context()))
		}
		l := g.Nodes[0].FencedLock("x", conclave.MaxHold(time.Minute), conclave.Linger(time.Minute))
		_, err := l.Lock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrInvalid)
	})
}

// While a member runs a build that does not know of the end, no hold pretends to have one.
func TestMaxHold_Upgrade(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		l := g.Nodes[0].FencedLock("x", conclave.MaxHold(maxHold))
		_, err := l.Lock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		_, err = g.Nodes[0].Semaphore("p", 1).WithMaxHold(maxHold).Acquire(g.T.Context(), 1)
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		for i := range g.Nodes {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelMaxHold
			g.Start(i)
		}
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelMaxHold)
		l = g.Nodes[0].FencedLock("x", conclave.MaxHold(maxHold))
		_, err = l.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		<-l.Lost()
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelBounds }))
}
