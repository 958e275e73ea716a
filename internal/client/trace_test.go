package client

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// traced is a call with a trace, and what its tracer has seen.
type traced struct {
	Trace
	seen []string
}

func newTraced(id string) *traced {
	c := new(traced)
	c.ID = []byte(id)
	c.Queued = func(r *wire.Reply) {
		c.seen = append(c.seen, fmt.Sprintf("queued at %d behind %d", r.GetPosition(), r.GetHolder().GetFence()))
	}
	return c
}

func (c *traced) acquire(ctx context.Context, l *Lock, wait bool) error {
	fence, err := l.Acquire(ctx, wait, nil, &c.Trace)
	if err == nil {
		c.seen = append(c.seen, fmt.Sprintf("granted %d because of %q", fence, c.Cause))
	}
	return err
}

func (c *traced) want(t *testing.T, seen ...string) {
	t.Helper()
	if !slices.Equal(c.seen, seen) {
		t.Errorf("the tracer has seen %q, want %q", c.seen, seen)
	}
}

func raise(t testing.TB, c *Client, level uint32) {
	t.Helper()
	raise := &wire.RaiseLevel{Level: level}
	if _, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: raise}}); err != nil {
		t.Fatal(err)
	}
}

// A waiter learns its place while it waits, and which release its grant is due to. A request
// that is granted at once does not.
func TestTrace_Lock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		raise(t, c, wire.LevelTrace)
		lease := mustOpen(t, c, time.Hour)
		held, waiting := newLock(c, lease, "x"), newLock(c, lease, "x")
		first, second := newTraced("first"), newTraced("second")
		if err := first.acquire(t.Context(), held, true); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- second.acquire(t.Context(), waiting, true) }()
		synctest.Wait()
		second.want(t, "queued at 1 behind 1")
		if err := held.Release(t.Context(), &newTraced("release").Trace); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		first.want(t, `granted 1 because of ""`)
		second.want(t, "queued at 1 behind 1", `granted 2 because of "release"`)
		if got := string(g.last().GetUnlock().GetTrace()); got != "release" {
			t.Errorf("the release has the trace %q", got)
		}
		c.StopRenewing()
	})
}

// A call whose context is done has seen where it was queued.
func TestTrace_Abandoned(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, time.Hour)
	held := newLock(c, lease, "x")
	mustAcquire(t, held)
	ctx, cancel := context.WithCancel(t.Context())
	waiter := newTraced("waiter")
	noted := waiter.Queued
	waiter.Queued = func(r *wire.Reply) { noted(r); cancel() }
	wantKind(t, waiter.acquire(ctx, newLock(c, lease, "x"), true), Interrupted)
	waiter.want(t, "queued at 1 behind 1")
	g.settle()
	if v := g.lock("x"); v.Waiters != 0 {
		t.Errorf("%d wait", v.Waiters)
	}
}

// A trace is submitted only by a call that has one, and only once the group is at the level for it.
func TestTrace_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, time.Hour)
	l := newLock(c, lease, "x")
	for level := uint32(1); level <= wire.LevelTrace; level++ {
		raise(t, c, level)
		mustAcquire(t, l)
		if err := l.Release(t.Context(), &newTraced("release").Trace); err != nil {
			t.Fatal(err)
		}
		if sent := g.last().GetUnlock().GetTrace() != nil; sent != (level >= wire.LevelTrace) {
			t.Errorf("at level %d the trace is sent: %t", level, sent)
		}
		mustAcquire(t, l)
		mustRelease(t, l)
		if g.last().GetUnlock().GetTrace() != nil {
			t.Errorf("at level %d a call without a trace sends one", level)
		}
	}
}

func TestTrace_Permits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		raise(t, c, wire.LevelTrace)
		request := PermitRequest{Lease: mustOpen(t, c, time.Hour), Name: "s", Limit: 1, Permits: 1, Wait: true}
		held, err := c.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		waiter, done := newTraced("waiter"), make(chan error)
		request.Trace = &waiter.Trace
		go func() {
			_, err := c.Acquire(t.Context(), request)
			done <- err
		}()
		synctest.Wait()
		if err := held.Release(t.Context(), &newTraced("release").Trace); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		waiter.want(t, "queued at 1 behind 1")
		if got := g.last().GetRelease().GetTrace(); string(got) != "release" || string(waiter.Cause) != "release" {
			t.Errorf("the release has the trace %q, and the grant %q", got, waiter.Cause)
		}
		c.StopRenewing()
	})
}
