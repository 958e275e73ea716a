package grouptest

import (
	"slices"
	"sync"

	"github.com/conclave-go/conclave/cluster"
)

// FaultyForwards drops every period-th submission that a member forwards, so that its
// commands are forwarded again when their outcomes do not come; sends every period-th
// one twice; and repeats every period-th one with the next effects, when its commands
// may have their outcomes.
func FaultyForwards(h *cluster.Seams, period int) {
	var mu sync.Mutex // a restarted member has another loop
	var sent int
	var late []cluster.Forward
	h.Effects = func(e *cluster.Effects) {
		mu.Lock()
		defer mu.Unlock()
		forwards := slices.Clone(late)
		late = nil
		for _, f := range e.Forwards {
			sent++
			switch sent % period {
			case 0:
				continue
			case 1 % period:
				forwards = append(forwards, f)
			case 2 % period:
				late = append(late, f)
			}
			forwards = append(forwards, f)
		}
		e.Forwards = forwards
	}
}
