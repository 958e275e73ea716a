package client

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// A session is opened by a command of before the last renewal, after a renewal has found no lease and before it looks for calls: the renewals go on.
func TestLapse_LeaseOpenedMeanwhile(t *testing.T) {
	c, g := newFake(t)
	c.StopRenewing()
	g.hold()
	opened := make(chan error, 1)
	go func() {
		_, err := c.Open(t.Context(), LeaseConfig{TTL: fakeTTL})
		opened <- err
	}()
	g.awaitQueued()
	c.renewal.used.Store(false) // a renewal passes
	c.renewal.idle = func() bool {
		g.release()
		if err := <-opened; err != nil {
			t.Error(err)
		}
		return true
	}
	if c.renewal.lapse() || c.renewal.lapsed.Load() {
		t.Error("the renewals end, with a live lease")
	}
}

// A process whose renewals have lapsed is registered again by Register, as a client that returns to a group: there is one renewal at a time from then on.
func TestRegister_AfterLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFakeThat(t, func() bool { return true })
		renewals := func() (n int) {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			g.set(func() {
				for _, cmd := range g.applied {
					if cmd.GetRenew() != nil {
						n++
					}
				}
				g.applied = nil
			})
			return n
		}
		renewals()
		if !c.Lapsed(5 * time.Minute) {
			t.Fatal("the renewals go on")
		}
		if err := c.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, c, time.Minute)
		if n := renewals(); n < 29 || n > 32 {
			t.Errorf("%d renewals in ten minutes, of a lease that lasts for one", n)
		}
	})
}

// attaching is a fake group to which the client is attached again, with the state of then, for each registration. What waits fails, as at a member's client.
type attaching struct{ *fakeGroup }

func (g attaching) Reregister(expired wire.ID, register func() ([]byte, Call)) {
	synctest.Wait() // the caller waits by now
	g.replaceState()
	g.fakeGroup.Reregister(expired, register)
	var waiting []queuedCommand
	g.set(func() { waiting, g.queue = slices.Clone(g.queue[1:]), g.queue[:1] })
	for _, w := range waiting {
		w.call.Fail(tickets.ErrUnregistered)
	}
}

// A registration that comes too late is repeated until the group accepts it, also if the client has been attached again each time.
func TestRegister_TooLateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		c.Connect(attaching{g}, c.process)
		g.set(func() { g.late = 5 })
		if err := c.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, c, time.Minute)
		c.StopRenewing()
	})
}
