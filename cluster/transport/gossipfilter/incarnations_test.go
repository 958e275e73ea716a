package gossipfilter

import (
	"math"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// The incarnations about process 3.1 and about this process, 1.1, that members 2 and 3 state
// in this order.
func TestIncarnations(t *testing.T) {
	three, next, us := wire.ProcessName(3, 1), wire.ProcessName(3, 2), wire.ProcessName(1, 1)
	i := NewIncarnations(us)
	for _, step := range []struct {
		from, boot uint64
		process    string
		n          uint64
		ok         bool
	}{
		{2, 1, three, maxAhead, true},
		{2, 1, three, maxAhead + 1, false}, // not heard from it yet
		{3, 1, three, 5000, true},          // its own, after it was out of reach
		{2, 1, three, 5000 + maxAhead, true},
		{2, 1, three, 5001 + maxAhead, false},
		{2, 1, three, math.MaxUint32, false},
		{3, 1, next, maxAhead + 1, false}, // its process is another one
		{3, 2, next, 1, true},
		{2, 1, next, 1 + maxAhead, true},
		{2, 1, next, 2 + maxAhead, false},
		{2, 1, three, maxAhead, true}, // the death of the former process
		{3, 2, us, 1 + maxAhead, true},
		{3, 2, us, 2 + 2*maxAhead, true}, // from what the refutation had
		{3, 2, us, 4 + 3*maxAhead, false},
		{3, 2, us, math.MaxUint32, false},
		{2, 1, "m3", maxAhead, true},
		{2, 1, "m3", maxAhead + 1, false},
	} {
		if ok := i.accept(wire.ProcessName(step.from, step.boot), step.process, step.n); ok != step.ok {
			t.Errorf("%+v: accepted: %v", step, ok)
		}
	}
	if len(i.spoken) != 1 {
		t.Errorf("%d processes are kept, want the latest one of member 3", len(i.spoken))
	}
}
