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

const maxHold = 20 * time.Second

// trusted is what a holder may rely on of a time that the group counts.
func trusted(d time.Duration) time.Duration { return d - d/100 }

// A holder whose session is renewed all the time loses its hold at the end of that, before another one is granted it. The
// session and its other holds live on.
func TestMaxHold_SessionRenewed(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		holder, waiter := g.Nodes[g.Others(leader)[0]], g.Nodes[g.Others(leader)[1]]
		s := grouptest.MustSession(g.T, holder, &conclave.SessionConfig{TTL: ttl, LockDelay: lockDelay, NoChecks: true})
		other := s.FencedLock("y")
		_, err := other.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		l := s.FencedLock("x", conclave.MaxHold(maxHold))
		began := time.Now()
		_, err = l.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		granted := time.Now()
		next := waiter.RWLock("x")
		wrote := writing(g, next)
		<-l.Lost()
		wantBetween(g.T, "the loss", time.Now(), began.Add(trusted(maxHold)), began.Add(trusted(maxHold)+heartbeat))
		_, err = l.Fence()
		grouptest.WantError(g.T, err, conclave.ErrHoldExpired)
		_, err = l.Lock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrHoldExpired)
		grouptest.WantError(g.T, l.Extend(g.T.Context(), time.Hour), conclave.ErrHoldExpired)
		grouptest.WantError(g.T, l.Unlock(g.T.Context()), conclave.ErrHoldExpired)
		got := <-wrote
		grouptest.Must(g.T, got.err)
		wantBetween(g.T, "the next grant", got.at, granted.Add(maxHold+lockDelay-heartbeat), granted.Add(maxHold+lockDelay+3*heartbeat))
		if _, err := other.Fence(); err != nil || s.Err() != nil {
			g.T.Errorf("the session has ended: %v, %v", err, s.Err())
		}
		grouptest.Must(g.T, next.Unlock(g.T.Context()))
		_, err = l.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		if !errors.Is(conclave.ErrHoldExpired, conclave.ErrLockOwnershipLost) {
			g.T.Error("ErrHoldExpired is no ErrLockOwnershipLost")
		}
	})
}

var _ = context.Canceled
var _ = synctest.Wait
