package replica

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/tickets"
)

// A call beyond the limits is refused before its command is encoded, also while the loop
// has not taken the calls before it. An outcome makes room again.
func TestSubmit_RefusedCallNotEncoded(t *testing.T) {
	const size = 300 << 10
	for _, test := range []struct {
		name     string
		limit    func(*Config)
		size     int
		admitted int
	}{
		{"bytes", func(c *Config) { c.MaxCallBytes = 1 << 20 }, size, 3},
		{"calls", func(c *Config) { c.MaxCalls = 5 }, 10, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := alone()
			test.limit(&cfg)
			r := start(t, cfg)
			for round := range 2 {
				await, release := make(chan struct{}), make(chan struct{})
				r.post(event{run: func(*core.Core) { close(await); <-release }})
				<-await
				var calls []*trackedCall
				encoded := 0
				for range 10 {
					c := newTrackedCall()
					calls = append(calls, c)
					r.Submit(test.size, func() []byte { encoded++; return make([]byte, test.size) }, c, false)
				}
				urgent := newTrackedCall()
				r.Submit(len(renewal), func() []byte { return renewal }, urgent, true)
				close(release)
				if encoded != test.admitted {
					t.Errorf("round %d: %d commands were encoded, want %d", round, encoded, test.admitted)
				}
				for i, c := range calls {
					if err := c.wait(); (i >= test.admitted) != errors.Is(err, tickets.ErrBusy) {
						t.Errorf("round %d, call %d: %v", round, i, err)
					}
				}
				if err := urgent.wait(); err != nil {
					t.Errorf("round %d: an urgent call: %v", round, err)
				}
			}
			r.post(event{run: func(c *core.Core) {
				if b := c.Backlog(); b != (core.Backlog{}) || r.backlog.posted != b {
					t.Errorf("%+v and %+v are left", b, r.backlog.posted)
				}
			}})
			if err := r.ReadStale(t.Context(), func(Machine) {}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The calls of this process in several groups share a bound, also those that the loops have not taken. Beyond it they are refused at once, but not the
// urgent ones. A group that has ended takes no part.
func TestSubmit_SharedBudget(t *testing.T) {
	const most, size = 4 << 20, 256 << 10
	budgets := NewBudgets(most)
	// fill submits calls while the loop stands still, and returns them, and how many were not refused.
	fill := func() (r *rig, calls []*trackedCall, admitted int, release func()) {
		cfg := alone()
		cfg.MaxCallBytes, cfg.Budgets = most, budgets
		r = start(t, cfg)
		await, goOn := make(chan struct{}), make(chan struct{})
		r.post(event{run: func(*core.Core) { close(await); <-goOn }})
		<-await
		for range 2 * most / size {
			c := newTrackedCall()
			calls = append(calls, c)
			r.Submit(size, func() []byte { admitted++; return make([]byte, size) }, c, false)
		}
		urgent := newTrackedCall()
		r.Submit(len(renewal), func() []byte { return renewal }, urgent, true)
		return r, append(calls, urgent), admitted, func() { close(goOn) }
	}
	one, calls, first, release := fill()
	other, more, second, releaseOther := fill()
	if first < most/size-1 || second > first/2+1 || second == 0 {
		t.Errorf("%d and %d calls are admitted", first, second)
	}
	if n := budgets.Calls.Taken(); n < (first+second)*size {
		t.Errorf("%d bytes are counted of %d calls", n, first+second)
	}
	release()
	releaseOther()
	refused := 0
	for _, c := range append(calls, more...) {
		if err := c.wait(); errors.Is(err, tickets.ErrBusy) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if want := len(calls) + len(more) - first - second - 2; refused != want {
		t.Errorf("%d calls are refused, want %d", refused, want)
	}
	if err := one.ReadStale(t.Context(), func(Machine) {}); err != nil {
		t.Fatal(err)
	}
	if !one.backlog.reserve(size) { // as of a call that the loop does not take any more
		t.Error("a call is refused where none is in progress")
	}
	one.stop()
	other.stop()
	one.backlog.reserve(size)
	if n := budgets.Calls.Taken() + budgets.Core.Logs.Bytes(); n != 0 {
		t.Errorf("%d bytes are counted of groups that have ended", n)
	}
}
