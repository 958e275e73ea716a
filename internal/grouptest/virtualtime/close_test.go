package virtualtime

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A partition cuts the graceful shutdown short while gossip still shows a quorum.
func TestClose_PartitionedJustBefore(t *testing.T) {
	t.Parallel()
	close := func(t *testing.T, ctx context.Context) (err error) {
		grouptest.InBubble(t, 3, func(g *grouptest.Group) {
			i := (g.Leader() + 1) % 3
			g.Net.Isolate(i)
			n := g.Nodes[i]
			g.Nodes[i] = nil
			err = n.Close(ctx)
		})
		return err
	}
	t.Run("context not done", func(t *testing.T) {
		if err := close(t, context.Background()); err != nil {
			t.Errorf("the context was not done, and Close returned %v", err)
		}
	})
	t.Run("context done before", func(t *testing.T) {
		err := close(t, grouptest.Expired())
		grouptest.WantError(t, err, context.Canceled)
		grouptest.WantError(t, err, conclave.ErrUnknown)
	})
}

// A node that closes right after its first lock releases it, though gossip has not seen the
// other members yet.
func TestClose_BeforeGossip(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		grouptest.InBubble(t, 3, func(g *grouptest.Group) {
			closing := (g.Leader() + i) % 3
			grouptest.MustLock(g.T, g.Nodes[closing].FencedLock("x"))
			n := g.Nodes[closing]
			g.Nodes[closing] = nil
			grouptest.Must(g.T, n.Close(g.T.Context()))
			began := time.Now()
			grouptest.MustLock(g.T, g.Nodes[(closing+1)%3].FencedLock("x"))
			wantBetween(g.T, "the lock was granted", time.Now(), began, began.Add(2*election))
		}, grouptest.WithoutGossip)
	}
}

type closing func(g *grouptest.Group, n *conclave.Node) error

type concurrentClose struct {
	name          string
	first, second closing
	elections     float64 // until the graceful part ends; negative: nothing ends it
	errs          [2]error
	crash         bool // the first call closes no session: it is as if the process had crashed
}

// Calls of Close, and one of Leave, that come while another one is under way share its
// shutdown. Whichever has the least time for it decides when the graceful part ends.
func TestClose_Concurrent(t *testing.T) {
	t.Parallel()
	closeWith := func(ctx context.Context) closing {
		return func(_ *grouptest.Group, n *conclave.Node) error { return n.Close(ctx) }
	}
	closeWithin := func(d time.Duration) closing {
		return func(g *grouptest.Group, n *conclave.Node) error { return n.Close(grouptest.Within(g.T, d)) }
	}
	leave := func(g *grouptest.Group, n *conclave.Node) error { return n.Leave(context.Background()) }
	kill := func(_ *grouptest.Group, n *conclave.Node) error { grouptest.Kill(n); return nil }
	for _, c := range []concurrentClose{
		{"both with time", closeWith(context.Background()), closeWithin(time.Minute), 3, [2]error{}, false},
		{"second with a context that is done", closeWith(context.Background()), closeWith(grouptest.Expired()), 1, [2]error{nil, conclave.ErrUnknown}, false},
		{"second with little time", closeWith(context.Background()), closeWithin(election / 2), 0.5, [2]error{nil, conclave.ErrUnknown}, false},
		{"first with a context that is done", closeWith(grouptest.Expired()), closeWith(context.Background()), 1, [2]error{conclave.ErrUnknown, nil}, false},
		{"second kills", closeWith(context.Background()), kill, 0, [2]error{}, false},
		{"first kills", kill, closeWith(context.Background()), 0, [2]error{}, true},
		{"Leave, then Close with a context that is done", leave, closeWith(grouptest.Expired()), 2, [2]error{conclave.ErrUnknown, conclave.ErrUnknown}, false},
		{"Close, then Leave", closeWith(context.Background()), leave, 3, [2]error{nil, conclave.ErrClosed}, false},
		{"Leave, then Leave", leave, leave, -1, [2]error{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, 3, c.run)
		})
	}
}

// run has a node be closed by two calls while it is partitioned from the others.
func (c concurrentClose) run(g *grouptest.Group) {
	i := (g.Leader() + 1) % 3
	n := g.Nodes[i]
	lock := n.FencedLock("x")
	grouptest.MustLock(g.T, lock)
	pass(5 * election)
	lost := lock.Lost()
	g.Net.Isolate(i)
	began := time.Now()
	first := make(chan error, 1)
	go func() { first <- c.first(g, n) }()
	pass(time.Millisecond)
	if c.elections < 0 { // nothing ends the first Leave
		grouptest.WantError(g.T, c.second(g, n), conclave.ErrClosed)
		grouptest.Kill(n)
		<-first
		return
	}
	select {
	case <-lost:
	default:
		if !c.crash { // else gossip ends before the leases do, which may take half a second
			g.T.Error("the holder still trusts its lock while its session is closed")
		}
	}
	err := c.second(g, n)
	wantOrNil(g.T, <-first, c.errs[0])
	wantOrNil(g.T, err, c.errs[1])
	<-n.Done()
	graceful := time.Duration(c.elections * float64(election))
	wantBetween(g.T, "the node had ended", time.Now(), began.Add(graceful*9/10), began.Add(graceful+2*time.Second))
}

// wantOrNil checks that an error wraps want, or is nil if want is.
func wantOrNil(t testing.TB, err, want error) {
	t.Helper()
	if want != nil {
		grouptest.WantError(t, err, want)
	} else if err != nil {
		t.Errorf("%v; want no error", err)
	}
}

// The calls of a client's Close share a shutdown as those of a node do.
func TestClose_ClientConcurrent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ctx  context.Context // of the second
		want time.Duration
	}{{"both with time", context.Background(), 3 * time.Second}, {"second with a context that is done", grouptest.Expired(), time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
				client := dialOutsider(g, ttl)
				lock := client.FencedLock("x")
				grouptest.MustLock(g.T, lock)
				lost := lock.Lost()
				g.Net.Isolate(outsider)
				began := time.Now()
				first := make(chan error, 1)
				go func() { first <- client.Close(context.Background()) }()
				pass(time.Millisecond)
				select {
				case <-lost:
				default:
					g.T.Error("the holder still trusts its lock while its session is closed")
				}
				if err := client.Close(c.ctx); (err != nil) != (c.ctx.Err() != nil) {
					g.T.Errorf("the second call returned %v", err)
				}
				wantOrNil(g.T, <-first, nil)
				wantBetween(g.T, "the client had ended", time.Now(), began.Add(c.want), began.Add(c.want+100*time.Millisecond))
			}, grouptest.Newcomers(1))
		})
	}
}
