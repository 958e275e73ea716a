package cluster

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// serving returns a member, alone in its group, that accepts clients.
func serving(t *testing.T, sessionOf func(Machine, wire.ID) (wire.ID, bool)) *Member {
	t.Helper()
	cfg := alone(t)
	cfg.Clients = clients.Handlers{
		Registered: func(Machine, wire.ID) bool { return true },
		SessionOf:  sessionOf,
		Occupied:   func(Machine, wire.ID) bool { return true },
		Free:       func(Machine) int { return 1 },
		Serve:      func(ctx context.Context, _ *wire.Request, _ clients.Answer) error { <-ctx.Done(); return ctx.Err() },
		Failure:    func(error) (wire.Failure, string) { return wire.Failure_FAILURE_OTHER, "" },
	}
	m := start(t, cfg)
	t.Cleanup(m.Stop)
	r := m.Registration()
	r.Ttl = int64(time.Hour)
	command, err := wire.EncodeCommand(&wire.Command{Op: &wire.Command_Register{Register: r}})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := m.replica.Execute(t.Context(), command); err != nil || reply.GetCode() != wire.Code_OK {
		t.Fatal(reply, err)
	}
	if err := m.replica.RaiseLevel(t.Context(), wire.LevelClient, true); err != nil {
		t.Fatal(err)
	}
	return m
}

// dialMember connects a client with a key of its own.
func dialMember(t *testing.T, m *Member) *transport.ClientConn {
	t.Helper()
	d, err := transport.NewDialer(transport.DialerConfig{Group: m.cfg.Group, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	_, key, _ := ed25519.GenerateKey(nil) // never fails
	c, err := d.Connect(t.Context(), transport.Target{Addr: m.cfg.Advertise}, key, wire.ID{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitOnLoop waits until the loop finds the condition true.
func awaitOnLoop(t *testing.T, m *Member, condition func() bool) {
	t.Helper()
	for range 6_000 {
		met := make(chan bool, 1)
		m.replica.Post(func(*core.Core) { met <- condition() })
		if <-met {
			return
		}
		<-time.After(10 * time.Millisecond) // nothing signals it
	}
	t.Fatal("not so after a minute")
}
