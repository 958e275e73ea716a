package clients

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

func waiting(index uint64) *conn { return &conn{attach: &wire.Attach{Applied: index}} }

// Clients leave the queue when the log is applied as far as they wait for, or when they
// disconnect.
func TestAttachQueue_Order(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var q attachQueue
		all := map[*conn]bool{}
		for index := range uint64(100) {
			for range rng.IntN(8) {
				c := waiting(index + rng.Uint64N(40))
				q.add(c)
				all[c] = true
			}
			for c := range all {
				if rng.IntN(8) == 0 {
					q.remove(c)
					q.remove(c)
					delete(all, c)
				}
			}
			for c := q.due(index); c != nil; c = q.due(index) {
				if !all[c] || c.attach.GetApplied() > index {
					t.Fatalf("seed %d: at %d one is due that waits for %d", seed, index, c.attach.GetApplied())
				}
				q.remove(c)
				delete(all, c)
			}
			for c := range all {
				if c.attach.GetApplied() <= index {
					t.Fatalf("seed %d: at %d one is not due that waits for %d", seed, index, c.attach.GetApplied())
				}
			}
			if len(q) != len(all) {
				t.Fatalf("seed %d: %d wait, want %d", seed, len(q), len(all))
			}
		}
	}
}

// Clients that wait for one index are attached in the order in which they came. So of several
// connections of one client the latest one remains: the others may have broken without notice.
func TestClients_AttachInOrderOfArrival(t *testing.T) {
	m := serving(t, nil)
	m.on(func() {
		var all []*conn
		for range 9 {
			c := waiting(core.MaxPosition)
			all = append(all, c)
			m.Server.attach(c)
		}
		for i, want := range all {
			if got := m.attaching.due(core.MaxPosition); got != want {
				t.Errorf("attached at position %d: connection %d", i, slices.Index(all, got))
			}
		}
	})
}

// While no client is due, a step looks at none but the first.
func TestAttachQueue_LooksAtFirstOnly(t *testing.T) {
	var q attachQueue
	for n := range uint64(10_000) {
		q.add(waiting(core.MaxPosition - n))
	}
	clear(q[1:]) // a look at one of these panics
	if c := q.due(7); c != nil {
		t.Errorf("one is due that waits for %d", c.attach.GetApplied())
	}
}

// A client that waits for an index that no log reaches is refused. One that waits for a distant
// one is kept and waits, others are attached meanwhile, and nothing is left of it after it disconnects.
func TestClients_AttachAtDistantIndex(t *testing.T) {
	m := serving(t, nil)
	attach := func(applied uint64) *transport.ClientConn {
		c := m.dial(t)
		t.Cleanup(func() { c.Close(nil) })
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Applied: applied}}}, 0)
		return c
	}
	if err := attach(math.MaxUint64).Read(new(wire.MemberFrame)); err == nil {
		t.Error("a client is served that has seen the last index")
	}
	distant := attach(core.MaxPosition)
	f := new(wire.MemberFrame)
	if err := attach(0).Read(f); err != nil || f.GetAttached() == nil {
		t.Errorf("another client gets %v, %v", f, err)
	}
	m.await(t, func() bool { return len(m.attaching) == 1 })
	distant.Close(nil)
	m.await(t, func() bool { return len(m.attaching) == 0 })
}

// A client that disconnects is not renewed any more.
func TestClients_RenewalOfEndedConnection(t *testing.T) {
	m := serving(t, nil)
	m.on(func() {
		c := &conn{server: m.Server}
		c.renews(1)
		m.detach(c)
		if m.renewClients(); len(m.fake.called) > 0 || len(m.renewing) > 0 {
			t.Errorf("%d clients are renewed", len(m.fake.called))
		}
	})
}

// While this member's process is not registered, it renews its clients once in each tick, to no avail.
func TestClients_RenewalRefusedAtOnce(t *testing.T) {
	m := serving(t, nil)
	c := m.dial(t)
	defer c.Close(nil)
	c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: new(wire.Attach)}}, 0)
	if err := c.Read(new(wire.MemberFrame)); err != nil {
		t.Fatal(err)
	}
	m.on(func() {
		m.fake.refuses = 9
		for _, c := range m.attached {
			c.renews(1)
		}
		if m.renewClients(); m.fake.refuses != 8 || len(m.renewing) != 1 {
			t.Errorf("%d calls in one tick, %d clients wait", 9-m.fake.refuses, len(m.renewing))
		}
	})
}
