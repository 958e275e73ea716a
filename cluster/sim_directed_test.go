package cluster

import (
	"testing"
	"testing/cryptotest"
	"time"
)

// What seeds do not find by chance, or found once.

// The first founder of a new group asks for votes again and again, and the
// votes take longer than a heartbeat to come.
func TestFirstElectionOverSlowNetwork(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	w := newWorld(t, 1)
	w.begin(3, faults{w: w, keep: 1000})
	defer w.end()
	w.network.quickest, w.network.slowest = 120*time.Millisecond, 150*time.Millisecond
	w.await(5*time.Second, "leader", func() bool { return len(w.history.leaders) > 0 })
	w.calm = true
	w.await(peace, "rest", w.settled)
	if term := w.members[0].life.core.term; term > 6 {
		t.Errorf("it took until term %d", term)
	}
}
