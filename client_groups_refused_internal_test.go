package conclave

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// A process that VerifyPeer refuses listens at an address that the client has, and refuses it as if the group were deleted. The client does not take its
// word for that: what it holds in the group is not lost, and its handle works.
func TestClientGroups_RefusedByImpostor(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	if _, err := n.CreateGroup(t.Context(), "x", GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	wait, asked := make(chan struct{}), make(chan struct{}, 100)
	var impostor string // set before wait is closed
	c, err := Dial(t.Context(), &ClientConfig{
		Addresses: []string{n.Addr()},
		VerifyPeer: func(p Peer) error {
			if p.Name == "impostor" {
				return errors.New("unknown name")
			}
			return nil
		},
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			select {
			case <-wait: // once the client is connected, the member's address leads to the impostor, until it was asked
				if len(asked) == 0 {
					addr = impostor
				}
			default:
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	impostor = impostorAt(t, c.remote.Cluster(), asked)
	close(wait)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.WithGroup("x").KV().Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
	if len(asked) == 0 {
		t.Error("the impostor was not asked")
	}
}

// impostorAt starts a process that refuses each client as if its group were deleted, and returns its address.
func impostorAt(t *testing.T, cluster wire.ID, asked chan<- struct{}) string {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := transport.New(transport.Config{
		Key: key, Listener: ln, Handler: struct{ transport.Handler }{},
		Identity: transport.Identity{
			Group: "conclave", Name: "impostor", Cluster: cluster, Member: wire.FingerprintOf(public), Incarnation: wire.ID{1},
		},
		Client: func(*transport.ClientConn) {},
		ClientsRefused: func(uint32) (transport.Reason, string) {
			asked <- struct{}{}
			return transport.ReasonNoGroup, "group 1"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tr.Start()
	t.Cleanup(func() { tr.Close() })
	return ln.Addr().String()
}
