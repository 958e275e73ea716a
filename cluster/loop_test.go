package cluster

import (
	"testing"
	"time"
)

// The loop reports each tick, also while nothing else happens: timers stand still while
// the machine is suspended, and the ticks that follow are the first to notice.
func TestLoop_ReportsEachTick(t *testing.T) {
	cfg := alone(t)
	woke := make(chan struct{}, 1)
	cfg.Woke = func() {
		select {
		case woke <- struct{}{}:
		default:
		}
	}
	m := start(t, cfg)
	defer m.Stop()
	for range 20 {
		select {
		case <-woke:
		case <-time.After(30 * time.Second):
			t.Fatal("no wake-up is reported")
		}
	}
}
