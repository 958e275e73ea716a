package remote

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// failing is a call that keeps why it failed.
type failing struct{ err error }

func (*failing) Deliver(wire.Ticket, *wire.Reply, bool)          {}
func (*failing) Cancelled(bool)                                  {}
func (*failing) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
func (f *failing) Fail(err error)                                { f.err = err }

// The calls of a process in its groups share a bound, beyond which they are refused at once. A group that is closed takes no part.
func TestSubmit_SharedBudget(t *testing.T) {
	const most, size = 4 << 20, 256 << 10
	shared := tickets.NewBudget(most)
	// fill submits until a call is refused, and returns how many were not.
	fill := func() (g *Group, admitted int) {
		g, err := New(Config{Addresses: []string{"localhost:1"}, Insecure: true, Logger: slog.New(slog.DiscardHandler), MaxCalls: 1000, MaxCallBytes: most, Budget: shared})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.dialer.Close() })
		for ; ; admitted++ {
			c := new(failing)
			g.Submit(size, func() []byte { return make([]byte, size) }, c, false)
			if g.run(); errors.Is(c.err, tickets.ErrBusy) {
				break
			}
			if c.err != nil || admitted > most/size {
				t.Fatalf("%d calls: %v", admitted, c.err)
			}
		}
		urgent := new(failing)
		g.Submit(size, func() []byte { return make([]byte, size) }, urgent, true)
		if g.run(); urgent.err != nil {
			t.Errorf("an urgent call: %v", urgent.err)
		}
		return g, admitted
	}
	one, first := fill()
	if _, second := fill(); first < most/size-1 || second > first/2+1 || second == 0 {
		t.Errorf("%d and %d calls are admitted", first, second)
	}
	one.end(ErrClosed)
	one.failAll()
	if _, third := fill(); third < first/2 {
		t.Errorf("%d calls are admitted beside one group, and %d by one alone", third, first)
	}
}
