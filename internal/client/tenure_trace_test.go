package client

import (
	"testing"
	"testing/synctest"

	"github.com/conclave-go/conclave/internal/wire"
)

// acquiring has a handle acquire its lock by the call.
func (c *traced) acquiring(t *testing.T, l *Lock) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.acquire(t.Context(), l, true) }()
	synctest.Wait()
	return done
}

func releaseBy(t *testing.T, id string, l *Lock) {
	t.Helper()
	if err := l.Release(t.Context(), &newTraced(id).Trace); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// In a tenure, a grant to one that waited here is due to the release before it, and the grant
// of the next tenure, or to another process, to the last release of this one.
func TestTrace_Tenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		raise(t, c, wire.LevelTrace)
		other := newLock(c, mustOpen(t, c, stay), "x")
		first, second, third, elsewhere := newTraced(""), newTraced(""), newTraced(""), newTraced("")
		a, b := newLingeringLock(c, "x"), newLingeringLock(c, "x")
		first.acquiring(t, a)
		first.want(t, `granted 1 because of ""`)
		second.acquiring(t, b)
		second.want(t, "queued at 1 behind 1")
		releaseBy(t, "of a", a)
		second.want(t, "queued at 1 behind 1", `granted 2 because of "of a"`)
		releaseBy(t, "of b", b)
		third.acquiring(t, a)
		third.want(t, `granted 3 because of ""`) // it was free
		elsewhere.acquiring(t, other)
		elsewhere.want(t, "queued at 1 behind 1")
		releaseBy(t, "the last", a)
		elsewhere.want(t, "queued at 1 behind 1", `granted 17 because of "the last"`)
		if got := string(g.last().GetUnlock().GetTrace()); got != "the last" {
			t.Errorf("the tenure was released with the trace %q", got)
		}
		c.StopRenewing()
	})
}

// Requests of a tenure that is queued in the group have places behind its own, whether they
// came before or after it was queued. The first has the cause of the tenure's grant.
func TestTrace_TenureQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		raise(t, c, wire.LevelTrace)
		other := newLock(c, mustOpen(t, c, stay), "x")
		mustAcquire(t, other)
		mustAcquire(t, newLock(c, nil, "opens the client's own lease"))
		before, with, after := newTraced(""), newTraced(""), newTraced("")
		a, b, d := newLingeringLock(c, "x"), newLingeringLock(c, "x"), newLingeringLock(c, "x")
		g.hold()
		before.acquiring(t, a)
		with.acquiring(t, b)
		g.release()
		synctest.Wait()
		after.acquiring(t, d)
		before.want(t, "queued at 1 behind 1")
		with.want(t, "queued at 2 behind 1")
		after.want(t, "queued at 3 behind 1")
		releaseBy(t, "elsewhere", other)
		before.want(t, "queued at 1 behind 1", `granted 3 because of "elsewhere"`)
		releaseBy(t, "here", a)
		with.want(t, "queued at 2 behind 1", `granted 4 because of "here"`)
		mustRelease(t, b)
		synctest.Wait()
		after.want(t, "queued at 3 behind 1", `granted 5 because of ""`)
		mustRelease(t, d)
		c.StopRenewing()
	})
}

// The place comes before the grant, also where both come in one entry's outcomes.
func TestTrace_TenurePlaceBeforeGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		raise(t, c, wire.LevelTrace)
		other := newLock(c, mustOpen(t, c, stay), "x")
		mustAcquire(t, other)
		mustAcquire(t, newLock(c, nil, "opens the client's own lease"))
		waiter := newTraced("")
		g.hold()
		waiter.acquiring(t, newLingeringLock(c, "x"))
		released := make(chan error, 1)
		go func() { released <- other.Release(t.Context(), &newTraced("release").Trace) }()
		synctest.Wait()
		g.release()
		synctest.Wait()
		waiter.want(t, "queued at 1 behind 1", `granted 3 because of "release"`)
		if err := <-released; err != nil {
			t.Error(err)
		}
		c.StopRenewing()
	})
}

// Requests that wait for a tenure which is granted at once have places behind the first of them.
func TestTrace_TenureGrantedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		raise(t, c, wire.LevelTrace)
		mustAcquire(t, newLock(c, nil, "opens the client's own lease"))
		first, second, third := newTraced(""), newTraced(""), newTraced("")
		a, b, d := newLingeringLock(c, "x"), newLingeringLock(c, "x"), newLingeringLock(c, "x")
		g.hold()
		first.acquiring(t, a)
		second.acquiring(t, b)
		third.acquiring(t, d)
		g.release()
		synctest.Wait()
		first.want(t, `granted 2 because of ""`)
		second.want(t, "queued at 1 behind 2")
		third.want(t, "queued at 2 behind 2")
		releaseBy(t, "of a", a)
		second.want(t, "queued at 1 behind 2", `granted 3 because of "of a"`)
		releaseBy(t, "of b", b)
		third.want(t, "queued at 2 behind 2", `granted 4 because of "of b"`)
		mustRelease(t, d)
		c.StopRenewing()
	})
}
