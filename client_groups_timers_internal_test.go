package conclave

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/memnet"
)

// inClientBubble runs a test with a client of a node in virtual time, and the client's side of the group "x", which it has used.
func inClientBubble(t *testing.T, test func(t *testing.T, net *memnet.Network, c *Client, f *remoteGroup)) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "127.0.0.1:7001"
		net := memnet.New(2)
		n, err := Open(t.Context(), &Config{Listener: net.Listen(0, addr), Advertise: addr, Dial: net.Dialer(0)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close(context.Background())
		c, err := Dial(t.Context(), &ClientConfig{Addresses: []string{addr}, Dial: net.Dialer(1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		g, err := c.CreateGroup(t.Context(), "x", GroupConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.KV().Put(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
		test(t, net, c, c.groups.door("x"))
	})
}

// put writes to the group, for which it has a second.
func (f *remoteGroup) put(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := f.group.KV().Put(ctx, "k", nil)
	return err
}

// The renewals of a group that a client has left do not begin again by a call that does not reach the group, nor by one after Close: nothing would end them.
func TestClientGroups_CloseAfterFailedReturn(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, net *memnet.Network, f *remoteGroup){
		"before Close": func(t *testing.T, net *memnet.Network, f *remoteGroup) {
			net.Isolate(1)
			if err := f.put(t); !errors.Is(err, ErrUnavailable) {
				t.Errorf("a call without a network: %v", err)
			}
		},
		"after Close": func(t *testing.T, _ *memnet.Network, f *remoteGroup) {
			_ = f.owner.Close(t.Context())
			if err := f.put(t); !errors.Is(err, ErrClosed) {
				t.Errorf("a call after Close: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inClientBubble(t, func(t *testing.T, net *memnet.Network, c *Client, f *remoteGroup) {
				time.Sleep(2 * leaveAfter)
				if !f.last.left {
					t.Fatal("the client has not left the group")
				}
				fail(t, net, f)
				_ = c.Close(t.Context()) // without a network it is not graceful
				net.Rejoin(1)
				time.Sleep(4 * leaveAfter) // renewals that had begun would have lapsed since
				if !f.client.Lapsed(4 * leaveAfter) {
					t.Error("the renewals have begun again, and went on after Close")
				}
			})
		})
	}
}

// A client that returns to a group that it had left renews its registration there again.
func TestClientGroups_ReturnRenews(t *testing.T) {
	inClientBubble(t, func(t *testing.T, _ *memnet.Network, _ *Client, f *remoteGroup) {
		for range 3 {
			time.Sleep(2 * leaveAfter)
			if !f.last.left {
				t.Fatal("the client has not left the group")
			}
			if err := f.put(t); err != nil {
				t.Fatal(err)
			}
			process := f.door.Process()
			time.Sleep(leaveAfter - time.Second) // two lives of a registration
			if err := f.put(t); err != nil || f.door.Process() != process {
				t.Errorf("the registration has expired: %v", err)
			}
		}
	})
}

// The timer that looks whether a group is used ends with the group.
func TestClientGroups_DeletedTimer(t *testing.T) {
	inClientBubble(t, func(t *testing.T, _ *memnet.Network, c *Client, f *remoteGroup) {
		if err := c.DeleteGroup(t.Context(), "x", Force()); err != nil {
			t.Fatal(err)
		}
		_ = c.Close(t.Context())
		if f.use.timer.Stop() {
			t.Error("the timer was running after Close")
		}
	})
}
