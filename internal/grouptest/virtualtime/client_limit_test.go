package virtualtime

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// lone is the place in the network of the client of a group of one.
const lone = 1

// fillerTTL is for how long the clients are registered that take all places.
const fillerTTL = 5 * time.Minute

// refuseLone has the registration of a client expire, and the group too full to register it again.
func refuseLone(g *grouptest.Group, number uint32) {
	g.T.Helper()
	g.Net.Isolate(lone)
	pass(3 * time.Minute)
	g.FillClients(0, number, fillerTTL)
	g.Net.Rejoin(lone)
	pass(30 * time.Second) // it is attached, and has been refused
}

// wantFull checks that a call is refused for the limit on clients, soon.
func wantFull(t testing.TB, what string, call func(context.Context) error) {
	t.Helper()
	began := time.Now()
	err := call(grouptest.Within(t, 10*time.Minute))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%s took %v", what, took)
	}
	grouptest.WantError(t, err, conclave.ErrBusy)
	if err != nil && !strings.Contains(err.Error(), "too many clients") {
		t.Errorf("%s: %v", what, err)
	}
}

// While the group has as many clients as it may have, calls of a client whose registration has expired are ErrBusy, and are not sent. Later
// ones register it again.
func TestClient_RegistrationRefused(t *testing.T) {
	grouptest.InBubble(t, lone+1, func(g *grouptest.Group) {
		t := g.T
		cfg := &conclave.ClientConfig{Dial: g.Net.Dialer(lone), SessionTTL: 10 * time.Second}
		c := grouptest.Dial(t, cfg, g.Nodes[0])
		lock := c.FencedLock("held")
		grouptest.MustLock(t, lock)
		refuseLone(g, 0)
		for i := range 3 {
			wantFull(t, "put", func(ctx context.Context) error {
				_, err := c.KV().Put(ctx, fmt.Sprint("k", i), nil)
				return err
			})
			wantFull(t, "lock", func(ctx context.Context) error {
				_, err := c.FencedLock("x").Lock(ctx)
				return err
			})
			wantFull(t, "session", func(ctx context.Context) error {
				_, err := c.NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL})
				return err
			})
		}
		grouptest.WantError(t, lock.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
		pass(2 * fillerTTL)
		if keys, err := g.Nodes[0].KV().List(t.Context(), ""); len(keys) > 0 || err != nil {
			t.Errorf("written: %v, %v", keys, err)
		}
		grouptest.MustPut(t, c.KV(), "k", "v")
		grouptest.MustLock(t, lock)
		grouptest.Must(t, c.Close(context.Background()))
	}, grouptest.Newcomers(1))
}
