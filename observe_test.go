package conclave

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// observed is what an observer yields, in a channel.
func observed(t *testing.T, ctx context.Context, e *Election) <-chan Leader {
	t.Helper()
	leaders := make(chan Leader, 1000)
	go func() {
		defer close(leaders)
		for l, err := range e.Observe(ctx) {
			if err != nil {
				if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				return
			}
			leaders <- l
		}
	}()
	return leaders
}

func wantNext(t *testing.T, leaders <-chan Leader, value string, f Fence, n *Node) {
	t.Helper()
	l, ok := <-leaders
	if !ok || string(l.Value) != value || l.Fence != f || n != nil && l.Node != n.id {
		t.Fatalf("%+v leads with %q (%v); want %q with fence %v", l, l.Value, ok, value, f)
	}
}

// An observer sees who leads, and each change of that, on whatever node it is.
func TestElectionObserved(t *testing.T) {
	g := group(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, two, watcher := g.nodes[0].Election("e"), g.nodes[1].Election("e"), g.nodes[2].Election("e")
	leaders := observed(t, ctx, watcher)
	wantNext(t, leaders, "", 0, nil)
	_, err := watcher.Leader(ctx)
	wantError(t, err, ErrNoLeader)

	f := mustLead(t, one, "first")
	wantNext(t, leaders, "first", f, g.nodes[0])
	l, err := watcher.Leader(ctx)
	if err != nil || string(l.Value) != "first" || l.Fence != f || l.Node != g.nodes[0].id {
		t.Fatal(l, err)
	}
	mustLead(t, g.nodes[0].Election("another"), "x")
	if err := one.Proclaim(ctx, []byte("changed")); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "changed", f, g.nodes[0])
	if err := one.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "", 0, nil)
	f = mustLead(t, two, "second")
	wantNext(t, leaders, "second", f, g.nodes[1])
	if err := two.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "", 0, nil)

	late := observed(t, ctx, watcher)
	wantNext(t, late, "", 0, nil)
	f = mustLead(t, two, "third")
	wantNext(t, late, "third", f, g.nodes[1])
	wantNext(t, leaders, "third", f, g.nodes[1])
	cancel()
	for l := range leaders {
		t.Fatalf("%+v came last", l)
	}
}

// An observer whose node was sent the whole state comes to the last leader, and
// never goes back.
func TestElectionObservedAcrossSnapshot(t *testing.T) {
	var wires [3]cable
	g := group(t, 3, func(i int, c *Config, h *cluster.Seams) {
		shortLog(i, c, h)
		c.SessionTTL = time.Minute
		c.Dial = wires[i].dial
		c.Listener = listener{c.Listener, &wires[i]}
	})
	away := (g.leader() + 1) % 3
	other := g.nodes[(away+1)%3]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := other.Election("e")
	leaders := observed(t, ctx, g.nodes[away].Election("e"))
	wantNext(t, leaders, "", 0, nil)
	f := mustLead(t, e, "before")
	wantNext(t, leaders, "before", f, other)
	wires[away].unplug()
	for i := range 60 {
		if err := e.Proclaim(ctx, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	wires[away].plug()
	wantNext(t, leaders, "59", f, other)
	g.wantInstalled(away, 1)
	if err := e.Proclaim(ctx, []byte("after")); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "after", f, other)
}

// An observer that is slower than the changes misses some, and comes to the last.
func TestElectionObserverTooSlow(t *testing.T) {
	n := alone(t)
	n.feeds.leaders.mu.Lock()
	n.feeds.leaders.maxItems = 10
	n.feeds.leaders.mu.Unlock()
	e := n.Election("e")
	f := mustLead(t, e, "-1")
	count, at := 0, -2
	for l, err := range e.Observe(within(t, 30*time.Second)) {
		if err != nil {
			t.Fatal(err)
		}
		var value int
		if _, err := fmt.Sscan(string(l.Value), &value); err != nil || l.Fence != f || value <= at {
			t.Fatalf("%q came after %d", l.Value, at)
		}
		if at = value; at == 299 {
			break
		}
		if count++; count == 1 {
			for i := range 300 {
				if err := e.Proclaim(t.Context(), fmt.Append(nil, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A node that is closed, and a name that is none, end an observer.
func TestElectionObserverEnds(t *testing.T) {
	n := alone(t)
	for _, err := range n.Election("").Observe(t.Context()) {
		wantError(t, err, ErrInvalid)
	}
	_, err := n.Election("").Leader(t.Context())
	wantError(t, err, ErrInvalid)
	first, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		seen := 0
		for _, err := range n.Election("e").Observe(t.Context()) {
			if err != nil {
				ended <- err
			} else if seen++; seen == 1 {
				close(first)
			}
		}
	}()
	select {
	case <-first:
	case err := <-ended:
		t.Fatal(err)
	}
	n.Close(t.Context())
	wantError(t, <-ended, ErrClosed)
}
