package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
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

// Between many expensive reads, which began at once, the loop serves the other members: a leader
// would lose its leadership to those who ask.
func TestLoop_ServesMembersBetweenReads(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	const n = 300
	var all, posted sync.WaitGroup
	held, hold, served := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	m.post(event{run: func(*core.Core) { close(held); <-hold }})
	<-held
	ran := 0 // the loop's
	posted.Add(n)
	for range n {
		all.Go(func() {
			r := &pendingRead{done: make(chan error, 1), run: func(Machine) {
				if ran++; ran == 1 {
					m.inbound <- func(*core.Core) { served <- ran }
				}
				for began := time.Now(); time.Since(began) < time.Millisecond; { // a query that computes
				}
			}}
			m.post(event{run: func(c *core.Core) { _ = c.ReadStale(r) }})
			posted.Done()
			if err := m.await(t.Context(), r.done); err != nil {
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

// Clients with as much to be looked up as there may be, which all wait for the same entry, are
// attached a few at a time.
func TestLoop_ServesMembersBetweenAttachments(t *testing.T) {
	const n = 300
	var slow sync.Once
	var m *Member
	attached, served := 0, make(chan int, 1)
	m = serving(t, func(Machine, wire.ID) (wire.ID, bool) {
		attached++
		slow.Do(func() { m.inbound <- func(*core.Core) { served <- attached } })
		for began := time.Now(); time.Since(began) < time.Millisecond; { // many sessions
		}
		return wire.ID{}, false
	})
	entry := m.Status().Applied + 100 // more than follow by themselves
	for range n {
		c := dialMember(t, m)
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Applied: entry, Sessions: [][]byte{make([]byte, 16)}}}}, 0)
	}
	awaitOnLoop(t, m, func() bool { _, attaching := m.clients.Count(); return attaching == n })
	command, err := wire.EncodeCommand(&wire.Command{Op: &wire.Command_Renew{Renew: new(wire.Renew)}})
	if err != nil {
		t.Fatal(err)
	}
	for m.Status().Applied < entry {
		if _, err := m.execute(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
	if after := <-served; after > n/4 {
		t.Errorf("a member was served after %d of %d clients were attached", after, n)
	}
	awaitOnLoop(t, m, func() bool { _, attaching := m.clients.Count(); return attaching == 0 })
	if attached != n {
		t.Errorf("%d of %d clients were attached", attached, n)
	}
}
