package grouptest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave"
)

// observed sends what Observe yields.
func observed(t *testing.T, ctx context.Context, e *conclave.Election) <-chan conclave.Leader {
	t.Helper()
	leaders := make(chan conclave.Leader, 1000)
	go func() {
		defer close(leaders)
		for l, err := range e.Observe(ctx) {
			if err != nil {
				if !errors.Is(err, context.Canceled) && !errors.Is(err, conclave.ErrClosed) {
					t.Error(err)
				}
				return
			}
			leaders <- l
		}
	}()
	return leaders
}

func wantNext(t *testing.T, leaders <-chan conclave.Leader, value string, f conclave.Fence, n *conclave.Node) {
	t.Helper()
	l, ok := <-leaders
	if !ok || string(l.Value) != value || l.Fence != f || n != nil && l.Node != n.Status().ID {
		t.Fatalf("%+v leads with %q (%v); want %q with fence %v", l, l.Value, ok, value, f)
	}
}

// Observe yields the leader and each change, on any node.
func TestObserve_EachChange(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, two, watcher := g.Nodes[0].Election("e"), g.Nodes[1].Election("e"), g.Nodes[2].Election("e")
	leaders := observed(t, ctx, watcher)
	wantNext(t, leaders, "", 0, nil)
	_, err := watcher.Leader(ctx)
	WantError(t, err, conclave.ErrNoLeader)

	f := MustCampaign(t, one, "first")
	wantNext(t, leaders, "first", f, g.Nodes[0])
	l, err := watcher.Leader(ctx)
	if err != nil || string(l.Value) != "first" || l.Fence != f || l.Node != g.Nodes[0].Status().ID {
		t.Fatal(l, err)
	}
	MustCampaign(t, g.Nodes[0].Election("another"), "x")
	if err := one.Proclaim(ctx, []byte("changed")); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "changed", f, g.Nodes[0])
	if err := one.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "", 0, nil)
	f = MustCampaign(t, two, "second")
	wantNext(t, leaders, "second", f, g.Nodes[1])
	if err := two.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "", 0, nil)

	late := observed(t, ctx, watcher)
	wantNext(t, late, "", 0, nil)
	f = MustCampaign(t, two, "third")
	wantNext(t, late, "third", f, g.Nodes[1])
	wantNext(t, leaders, "third", f, g.Nodes[1])
	cancel()
	for l := range leaders {
		t.Fatalf("%+v came last", l)
	}
}

// Observe on a member that installed a snapshot yields the last leader, and no earlier
// one after it.
func TestObserve_AcrossSnapshot(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork)
	away := (g.Leader() + 1) % 3
	other := g.Nodes[(away+1)%3]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := other.Election("e")
	leaders := observed(t, ctx, g.Nodes[away].Election("e"))
	wantNext(t, leaders, "", 0, nil)
	f := MustCampaign(t, e, "before")
	wantNext(t, leaders, "before", f, other)
	g.Disconnect(away)
	for i := range 60 {
		if err := e.Proclaim(ctx, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	g.Net.Rejoin(away)
	wantNext(t, leaders, "59", f, other)
	g.WantInstalled(away, 1)
	if err := e.Proclaim(ctx, []byte("after")); err != nil {
		t.Fatal(err)
	}
	wantNext(t, leaders, "after", f, other)
}
