package conclave

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// Leaders are cut off, ended by force and made to resign, fifty times, while
// members are cut off. Each fence has one leader; observers on every member see
// them in order, none that was not, and come to the last.
func TestElectionsUnderPartitions(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	var wires [3]cable
	g := group(t, 3, func(i int, c *Config, _ *cluster.Seams) {
		c.Dial = wires[i].dial
		c.Listener = listener{c.Listener, &wires[i]}
	})
	e := &elections{
		t: t, g: g, ctx: within(t, 3*time.Minute), led: make(chan leading),
		leaders: make(map[Fence]int),
	}
	watched := e.observeAll()
	retire := e.campaignAll()

	for round := range rounds {
		led := e.next()
		cut := []int{led.member, g.leader(), (led.member + 1) % 3}[round%3]
		if round%4 == 3 {
			close(led.resign)
			continue
		}
		wires[cut].unplug()
		e.end(led, (cut+1)%3)
		wires[cut].plug()
	}
	e.next()
	retire()

	last, err := g.nodes[0].Election("e").Campaign(e.ctx, []byte("last"))
	if err != nil {
		t.Fatal(err)
	}
	watched(last)
}

// elections knows who has led, from the leaders themselves.
type elections struct {
	t   *testing.T
	g   *testGroup
	ctx context.Context
	led chan leading // whoever begins to lead says so here

	mu      sync.Mutex
	leaders map[Fence]int // guarded by mu
}

type leading struct {
	member int
	fence  Fence
	resign chan struct{} // closed: the leader is to go
}

// next waits for the next leader.
func (e *elections) next() leading {
	e.t.Helper()
	select {
	case led := <-e.led:
		return led
	case <-e.ctx.Done():
		e.t.Fatal("nobody leads")
	}
	return leading{}
}

// campaignAll lets every member campaign, again after each term, until retire is
// called.
func (e *elections) campaignAll() (retire func()) {
	ctx, cancel := context.WithCancel(e.ctx)
	var candidates sync.WaitGroup
	for i, n := range e.g.nodes {
		candidates.Go(func() {
			for ctx.Err() == nil {
				err := n.Election("e").Run(ctx, []byte(n.cfg.Name), func(ctx context.Context, f Fence) error {
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

// leads is a term in office.
func (e *elections) leads(ctx context.Context, member int, f Fence) {
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

// end ends a leader's session by force, on behalf of another member.
func (e *elections) end(led leading, by int) {
	e.t.Helper()
	n := e.g.nodes[by]
	l, err := n.Election("e").Leader(e.ctx)
	if err == nil && l.Fence == led.fence {
		err = n.CloseSession(e.ctx, l.Session)
	}
	if err != nil && !errors.Is(err, ErrNoLeader) && !errors.Is(err, ErrSessionNotFound) {
		e.t.Fatal(err)
	}
}

// observeAll observes on every member. check ends that when all have come to the
// last leader, and looks at what they saw.
func (e *elections) observeAll() (check func(last Fence)) {
	ctx, stop := context.WithCancel(e.ctx)
	var observers sync.WaitGroup
	stories := make([][]Leader, len(e.g.nodes))
	arrived := make(chan struct{}, 1)
	var mu sync.Mutex
	for i, n := range e.g.nodes {
		observers.Go(func() {
			for l, err := range n.Election("e").Observe(ctx) {
				if err != nil {
					if ctx.Err() == nil {
						e.t.Error(err)
					}
					return
				}
				mu.Lock()
				stories[i] = append(stories[i], l)
				mu.Unlock()
				select {
				case arrived <- struct{}{}:
				default:
				}
			}
		})
	}
	at := func(last Fence) bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(stories, func(s []Leader) bool { return len(s) == 0 || s[len(s)-1].Fence != last })
	}
	return func(last Fence) {
		for !at(last) {
			select {
			case <-arrived:
			case <-e.ctx.Done():
				e.t.Fatal("not every observer has come to the last leader")
			}
		}
		stop()
		observers.Wait()
		e.compare(stories)
	}
}

// compare holds the observers' stories against each other and against what the
// leaders said.
func (e *elections) compare(stories [][]Leader) {
	nodes := make(map[Fence]MemberID)
	for f, member := range e.leaders {
		nodes[f] = e.g.nodes[member].id
	}
	for i, story := range stories {
		e.t.Logf("observer %d saw %d changes", i, len(story))
		var last Fence
		for k, l := range story {
			if k > 0 && l.same(story[k-1]) {
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
