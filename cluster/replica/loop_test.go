package replica

import (
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// The loop reports each tick, also while nothing else happens: timers stand still while
// the machine is suspended, and the ticks that follow are the first to notice.
func TestLoop_ReportsEachTick(t *testing.T) {
	cfg := alone()
	woke := make(chan struct{}, 1)
	cfg.Woke = func() {
		select {
		case woke <- struct{}{}:
		default:
		}
	}
	start(t, cfg)
	for range 20 {
		select {
		case <-woke:
		case <-time.After(5 * time.Minute):
			t.Fatal("no wake-up is reported")
		}
	}
}

// Between many expensive reads, which began at once, the loop serves the other members: a leader
// would lose its leadership to those who ask.
func TestLoop_ServesMembersBetweenReads(t *testing.T) {
	r := start(t, alone())
	const n = 300
	var all, posted sync.WaitGroup
	held, hold, served := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	r.post(event{run: func(*core.Core) { close(held); <-hold }})
	<-held
	ran := 0 // the loop's
	posted.Add(n)
	for range n {
		all.Go(func() {
			p := &pendingRead{done: make(chan error, 1), run: func(Machine) {
				if ran++; ran == 1 {
					r.Enqueue(7, func(*core.Core) { served <- ran }, 1)
				}
				for began := time.Now(); time.Since(began) < time.Millisecond; { // a query that computes
				}
			}}
			r.post(event{run: func(c *core.Core) { _ = c.ReadStale(p) }})
			posted.Done()
			if err := r.await(t.Context(), p.done); err != nil {
				t.Error(err)
			}
		})
	}
	posted.Wait()
	close(hold)
	if after := <-served; after > n/4 {
		t.Errorf("a member was served after %d of %d reads", after, n)
	}
	all.Wait()
}
