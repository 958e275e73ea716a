package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

func sessionsOf(t *testing.T, g *fakeGroup) []machine.SessionView {
	t.Helper()
	answer, err := g.Query(t.Context(), machine.SessionsQuery{Limit: 10}, QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.([]machine.SessionView)
}

// A caller that leaves without the ID leaves no session behind, whenever it leaves.
func TestCreateSession_Abandoned(t *testing.T) {
	for name, sent := range map[string]bool{"before it was sent": false, "before the outcome": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newFake(t)
				raise(t, c, wire.LevelStandalone)
				g.hold()
				g.set(func() { g.sent = sent })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				want := Unavailable
				if sent {
					want = Unknown
				}
				_, err := c.CreateSession(ctx, LeaseConfig{TTL: NoTTL})
				wantKind(t, err, want)
				g.release()
				if got := sessionsOf(t, g); len(got) > 0 {
					t.Errorf("left behind: %+v", got)
				}
				created := 0
				for _, cmd := range g.applied {
					if cmd.GetCreateSession() != nil {
						created++
					}
				}
				if (created == 1) != sent {
					t.Errorf("%d sessions were created", created)
				}
				c.StopRenewing()
			})
		})
	}
}

// The outcome may arrive together with the end of the context: then the session is the caller's.
func TestCreateSession_AnsweredAtTheEnd(t *testing.T) {
	n := &creation{id: wire.ID{1}}
	n.answered(answer{reply: &wire.Reply{Code: wire.Code_OK}})
	if !n.abandon() {
		t.Error("a session that was created before the caller left is not the caller's")
	}
	if later := (&creation{id: wire.ID{1}}); later.abandon() {
		t.Error("no session was created, and the caller has one")
	}
}

// What a registration created before it expired is closed when its caller has left.
func TestCreateSession_DoubtfulAbandoned(t *testing.T) {
	c, g := newFake(t)
	n := &creation{commands: &c.commands, id: wire.ID{1}}
	n.answered(answer{reply: &wire.Reply{Code: wire.Code_UNKNOWN_INCARNATION}})
	if n.abandon() {
		t.Error("the caller has a session that may not exist")
	}
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.applied[len(g.applied)-1].GetCloseSession(); wire.ID(last.GetId()) != n.id {
		t.Errorf("closed: %v", last)
	}
}

// A registration that expires while the session is created leaves one session, not two.
func TestCreateSession_RegistrationExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		raise(t, c, wire.LevelStandalone)
		g.hold()
		type result struct {
			id  wire.ID
			err error
		}
		done := make(chan result, 1)
		go func() {
			id, err := c.CreateSession(t.Context(), LeaseConfig{TTL: time.Hour})
			done <- result{id, err}
		}()
		synctest.Wait()
		time.Sleep(2 * time.Minute) // longer than the registration
		g.tick()
		g.release()
		r := <-done
		if got := sessionsOf(t, g); r.err != nil || len(got) != 1 || got[0].ID != r.id || !got[0].Standalone {
			t.Errorf("%v, %v; the group has %+v", r.id, r.err, got)
		}
		c.StopRenewing()
	})
}

// Renewals go before other commands, like those of processes.
func TestRenewSession_IsUrgent(t *testing.T) {
	c := &wire.Command{Op: &wire.Command_RenewSession{RenewSession: &wire.RenewSession{}}}
	if !isUrgent(c) {
		t.Error("it is not")
	}
}
