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
