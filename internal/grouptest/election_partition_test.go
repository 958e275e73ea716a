package grouptest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
)

// Leaders resign or lose their sessions while members are disconnected, fifty times.
// Each fence has one leader, and observers on every member see leaders in order and
// get the last one.
func TestElection_Disconnections(t *testing.T) {
	t.Parallel()
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	g := Start(t, 3, MemoryNetwork)
	e := &elections{
		t: t, g: g, ctx: Bounded(t), led: make(chan leading),
		leaders: make(map[conclave.Fence]int),
	}
	watched := e.observeAll()
	stop := e.campaignAll()

	for round := range rounds {
		led := e.next()
		cut := []int{led.member, g.Leader(), (led.member + 1) % 3}[round%3]
		if round%4 == 3 {
			close(led.resign)
			continue
		}
		g.Disconnect(cut)
		e.end(led, (cut+1)%3)
		g.Net.Rejoin(cut)
	}
	e.next()
	stop()

	last, err := g.Nodes[0].Election("e").Campaign(e.ctx, []byte("last"))
	if err != nil {
		t.Fatal(err)
	}
	watched(last)
}

// elections knows the leaders, from themselves.
type elections struct {
	t   *testing.T
	g   *Group
	ctx context.Context
	led chan leading // gets each new leader

	mu      sync.Mutex
	leaders map[conclave.Fence]int // guarded by mu
}

type leading struct {
	member int
	fence  conclave.Fence
	resign chan struct{} // closed: the leader resigns
}

// next waits for the next leader.
func (e *elections) next() leading {
	e.t.Helper()
	select {
	case led := <-e.led:
		return led
	case <-e.ctx.Done():
		e.t.Fatal("no member leads")
	}
	return leading{}
}

// campaignAll has every member campaign again and again until stop is called.
func (e *elections) campaignAll() (stop func()) {
	ctx, cancel := context.WithCancel(e.ctx)
	var candidates sync.WaitGroup
	for i, n := range e.g.Nodes {
		candidates.Go(func() {
			for ctx.Err() == nil {
				err := n.Election("e").Run(ctx, []byte(n.Status().Name), func(ctx context.Context, f conclave.Fence) error {
					e.leads(ctx, i, f)
					return nil
				})
				if err != nil && ctx.Err() == nil {
					e.t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		candidates.Wait()
	}
}

// leads is run by a leader until it resigns or has lost leadership.
func (e *elections) leads(ctx context.Context, member int, f conclave.Fence) {
	e.mu.Lock()
	if other, ok := e.leaders[f]; ok {
		e.t.Errorf("members %d and %d lead under fence %v", other, member, f)
	}
	e.leaders[f] = member
	e.mu.Unlock()
	led := leading{member, f, make(chan struct{})}
	select {
	case e.led <- led:
	case <-ctx.Done():
		return
	}
	select {
	case <-led.resign:
	case <-ctx.Done():
	}
}

// end closes a leader's session by force, on another member.
func (e *elections) end(led leading, by int) {
	e.t.Helper()
	n := e.g.Nodes[by]
	l, err := n.Election("e").Leader(e.ctx)
	if err == nil && l.Fence == led.fence {
		err = n.CloseSession(e.ctx, l.Session)
	}
	if err != nil && !errors.Is(err, conclave.ErrNoLeader) && !errors.Is(err, conclave.ErrSessionNotFound) {
		e.t.Fatal(err)
	}
}

// observeAll observes on every member. check waits until all have seen the last leader,
// and checks what they saw.
func (e *elections) observeAll() (check func(last conclave.Fence)) {
	ctx, stop := context.WithCancel(e.ctx)
	var observers sync.WaitGroup
	observations := make([][]conclave.Leader, len(e.g.Nodes))
	arrived := make(chan struct{}, 1)
	var mu sync.Mutex
	for i, n := range e.g.Nodes {
		observers.Go(func() {
			for l, err := range n.Election("e").Observe(ctx) {
				if err != nil {
					if ctx.Err() == nil {
						e.t.Error(err)
					}
					return
				}
				mu.Lock()
				observations[i] = append(observations[i], l)
				mu.Unlock()
				select {
				case arrived <- struct{}{}:
				default:
				}
			}
		})
	}
	at := func(last conclave.Fence) bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(observations, func(s []conclave.Leader) bool { return len(s) == 0 || s[len(s)-1].Fence != last })
	}
	return func(last conclave.Fence) {
		for !at(last) {
			select {
			case <-arrived:
			case <-e.ctx.Done():
				e.t.Fatal("not every observer has seen the last leader")
			}
		}
		stop()
		observers.Wait()
		e.compare(observations)
	}
}

// compare compares what the observers saw with each other and with the leaders.
func (e *elections) compare(observations [][]conclave.Leader) {
	nodes := make(map[conclave.Fence]conclave.MemberID)
	for f, member := range e.leaders {
		nodes[f] = e.g.Nodes[member].Status().ID
	}
	for i, observed := range observations {
		e.t.Logf("observer %d saw %d changes", i, len(observed))
		var last conclave.Fence
		for k, l := range observed {
			if k > 0 && sameLeader(l, observed[k-1]) {
				e.t.Errorf("observer %d saw %v twice in a row", i, l)
			}
			if l.Fence == 0 {
				continue
			}
			if l.Fence <= last {
				e.t.Errorf("observer %d saw fence %v after %v", i, l.Fence, last)
			}
			last = l.Fence
			if known, ok := nodes[l.Fence]; ok && known != l.Node {
				e.t.Errorf("observer %d saw %v lead under fence %v, and it was %v", i, l.Node, l.Fence, known)
			}
			nodes[l.Fence] = l.Node
		}
	}
}

func sameLeader(a, b conclave.Leader) bool {
	return a.Fence == b.Fence && a.Session == b.Session && a.Node == b.Node && string(a.Value) == string(b.Value)
}
