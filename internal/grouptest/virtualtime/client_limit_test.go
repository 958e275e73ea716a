package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// lone is the number in the network of the client of a group of one.
const lone = 1

// fillerTTL is for how long the clients are registered that fill the group.
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
	skipIfShort(t)
	for _, further := range []bool{false, true} {
		t.Run(fmt.Sprintf("further %v", further), func(t *testing.T) {
			grouptest.InBubble(t, lone+1, func(g *grouptest.Group) {
				t, number, node := g.T, uint32(0), g.Nodes[0].Group
				c := grouptest.Dial(t, &conclave.ClientConfig{Dial: g.Net.Dialer(lone), SessionTTL: 10 * time.Second}, g.Nodes[0])
				use := c.Group
				if further {
					pass(10 * time.Second) // to its feature level
					var err error
					node, err = g.Nodes[0].CreateGroup(grouptest.Within(t, time.Minute), "a", conclave.GroupConfig{})
					grouptest.Must(t, err)
					use, number = c.WithGroup("a"), 1
				}
				useRefused(g, use, node, number)
				grouptest.Must(t, c.Close(context.Background()))
			}, grouptest.Newcomers(1))
		})
	}
}

func useRefused(g *grouptest.Group, use, node *conclave.Group, number uint32) {
	t := g.T
	lock := use.FencedLock("held")
	grouptest.MustLock(t, lock)
	refuseLone(g, number)
	for i := range 3 {
		wantFull(t, "put", func(ctx context.Context) error {
			_, err := use.KV().Put(ctx, fmt.Sprint("k", i), nil)
			return err
		})
		wantFull(t, "lock", func(ctx context.Context) error {
			_, err := use.FencedLock("x").Lock(ctx)
			return err
		})
		wantFull(t, "session", func(ctx context.Context) error {
			_, err := use.NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL})
			return err
		})
	}
	grouptest.WantError(t, lock.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
	pass(2 * fillerTTL)
	if keys, err := node.KV().List(t.Context(), ""); len(keys) > 0 || err != nil {
		t.Errorf("written: %v, %v", keys, err)
	}
	grouptest.MustPut(t, use.KV(), "k", "v")
	grouptest.MustLock(t, lock)
}

// Close of a client that the group refuses to register waits for nothing: there is nothing to end. A call that is under way then has no effect.
func TestClient_CloseWhileRefused(t *testing.T) {
	grouptest.InBubble(t, lone+1, func(g *grouptest.Group) {
		t := g.T
		c := grouptest.Dial(t, &conclave.ClientConfig{Dial: g.Net.Dialer(lone), SessionTTL: 10 * time.Second}, g.Nodes[0])
		grouptest.MustLock(t, c.FencedLock("held"))
		refuseLone(g, 0)
		put := make(chan error, 1)
		go func() {
			_, err := c.KV().Put(t.Context(), "k", nil)
			put <- err
		}()
		pass(time.Millisecond)
		began := time.Now()
		grouptest.Must(t, c.Close(context.Background()))
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-put; errors.Is(err, conclave.ErrUnknown) || !errors.Is(err, conclave.ErrClosed) && !errors.Is(err, conclave.ErrBusy) {
			t.Errorf("put: %v", err)
		}
	}, grouptest.Newcomers(1))
}
