package groups

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// A client creates groups, uses them beside the members, and deletes them.
func TestClient_Groups(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	c := gt.Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	late := c.WithGroup("tenant")
	_, err := late.FencedLock("x").Lock(ctx)
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	tenant, err := c.CreateGroup(ctx, "tenant", conclave.GroupConfig{})
	gt.Must(t, err)
	if late != tenant {
		t.Error("two handles to one group")
	}
	l := tenant.FencedLock("x")
	first := gt.MustLock(t, l)
	gt.MustLock(t, c.FencedLock("x")) // of the default group
	for _, n := range g.Nodes {
		other := n.WithGroup("tenant").FencedLock("x")
		_, err := other.TryLock(ctx)
		gt.WantError(t, err, conclave.ErrLocked)
	}
	list, err := gt.Collect(c.Groups(ctx))
	if err != nil || len(list) != 2 || list[1].Name != "tenant" || list[1].Number != 1 || len(list[1].Voters) == 0 {
		t.Errorf("groups %+v, %v", list, err)
	}
	gt.WantError(t, c.DeleteGroup(ctx, "tenant"), conclave.ErrLocked)
	lost := l.Lost()
	gt.Must(t, c.DeleteGroup(ctx, "tenant", conclave.Force()))
	<-lost
	_, err = tenant.FencedLock("y").Lock(ctx)
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	gt.WantError(t, c.DeleteGroup(ctx, "tenant"), conclave.ErrGroupNotFound)
	again, err := c.CreateGroup(ctx, "tenant", conclave.GroupConfig{})
	gt.Must(t, err)
	if f := gt.MustLock(t, again.FencedLock("x")); f <= first {
		t.Errorf("fence %v after %v of the deleted group", f, first)
	}
	_, err = tenant.FencedLock("y").Lock(ctx) // it belongs to the deleted one
	gt.WantError(t, err, conclave.ErrGroupNotFound)
}

// A member deletes the group that a client uses: its holds are lost, and what waits, watches and observes ends.
func TestClient_GroupDeletedElsewhere(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	create(t, g.Nodes[0], "tenant")
	c := gt.Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	tenant := c.WithGroup("tenant")
	l := tenant.FencedLock("x")
	gt.MustLock(t, l)
	ended := make(chan error, 3)
	go func() {
		_, err := tenant.FencedLock("x").Lock(ctx)
		ended <- err
	}()
	go func() {
		for _, err := range tenant.KV().Follow(ctx, "") {
			if err != nil {
				ended <- err
			}
		}
	}()
	go func() {
		for _, err := range tenant.Election("e").Observe(ctx) {
			if err != nil {
				ended <- err
			}
		}
	}()
	gt.AwaitWaiters(t, l, 1)
	lost := l.Lost()
	gt.Must(t, g.Nodes[1].DeleteGroup(ctx, "tenant", conclave.Force()))
	<-lost
	for range 3 {
		if err := <-ended; !errors.Is(err, conclave.ErrGroupNotFound) || ctx.Err() != nil {
			t.Error(err)
		}
	}
	_, err := l.Lock(ctx)
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	create(t, g.Nodes[2], "tenant")
	gt.MustLock(t, c.WithGroup("tenant").FencedLock("x"))
}

// A process deletes a group while others of its calls read there: none of them reports that the process is closed.
func TestDeleteGroup_WhileItReads(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	for _, p := range []interface {
		CreateGroup(ctx context.Context, name string, cfg conclave.GroupConfig) (*conclave.Group, error)
		DeleteGroup(ctx context.Context, name string, opts ...conclave.DeleteGroupOption) error
	}{g.Nodes[0], gt.Dial(t, &conclave.ClientConfig{}, g.Nodes...)} {
		tenant, err := p.CreateGroup(ctx, "tenant", conclave.GroupConfig{})
		gt.Must(t, err)
		const readers = 16
		reading, ended := make(chan struct{}, readers), make(chan error, readers)
		for range readers {
			go func() {
				_, err := tenant.KV().Get(ctx, "k")
				for reading <- struct{}{}; errors.Is(err, conclave.ErrKeyNotFound); {
					_, err = tenant.KV().Get(ctx, "k")
				}
				ended <- err
			}()
		}
		for range readers {
			<-reading
		}
		gt.Must(t, p.DeleteGroup(ctx, "tenant", conclave.Force()))
		for range readers {
			if err := <-ended; !errors.Is(err, conclave.ErrGroupNotFound) || errors.Is(err, conclave.ErrClosed) || ctx.Err() != nil {
				t.Errorf("%T: %v", p, err)
			}
		}
	}
}

// The holds of a client in a further group survive the members that it is connected to, one after the other.
func TestClient_GroupMemberDies(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	create(t, g.Nodes[0], "tenant")
	c := gt.Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	tenant := c.WithGroup("tenant")
	held := tenant.FencedLock("held")
	fence := gt.MustLock(t, held)
	for i := range g.Nodes {
		g.Kill(i)
		if _, err := tenant.KV().Put(ctx, "k", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		g.Start(i)
	}
	if f, err := held.Fence(); f != fence || err != nil {
		t.Errorf("the hold has fence %v, %v; want %v", f, err, fence)
	}
	gt.MustUnlock(t, held)
}

// Close releases at once what a client holds in each group.
func TestClient_CloseReleasesInEachGroup(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	create(t, g.Nodes[0], "tenant")
	c := gt.Dial(t, &conclave.ClientConfig{SessionTTL: time.Hour}, g.Nodes...)
	tenant := c.WithGroup("tenant")
	gt.MustLock(t, tenant.FencedLock("x"))
	gt.MustLock(t, c.FencedLock("x"))
	gt.Must(t, c.Close(gt.Bounded(t)))
	gt.MustLock(t, g.Nodes[0].WithGroup("tenant").FencedLock("x"))
	gt.MustLock(t, g.Nodes[0].FencedLock("x"))
	_, err := tenant.FencedLock("x").Lock(t.Context())
	gt.WantError(t, err, conclave.ErrClosed)
	_, err = c.WithGroup("another").FencedLock("x").Lock(t.Context())
	gt.WantError(t, err, conclave.ErrClosed)
	_, err = c.CreateGroup(t.Context(), "another", conclave.GroupConfig{})
	gt.WantError(t, err, conclave.ErrClosed)
}

// A client that only reads has the groups to read.
func TestClient_ReadOnlyGroups(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	ctx := gt.Bounded(t)
	tenant := create(t, g.Nodes[0], "tenant")
	_, err := tenant.KV().Put(ctx, "k", []byte("v"))
	gt.Must(t, err)
	c := gt.Dial(t, &conclave.ClientConfig{ReadOnly: true}, g.Nodes...)
	e, err := c.WithGroup("tenant").KV().Get(ctx, "k")
	if err != nil || string(e.Value) != "v" {
		t.Errorf("%q, %v", e.Value, err)
	}
	_, err = c.CreateGroup(ctx, "another", conclave.GroupConfig{})
	gt.WantError(t, err, conclave.ErrInvalid)
	gt.WantError(t, c.DeleteGroup(ctx, "tenant"), conclave.ErrInvalid)
	_, err = c.WithGroup("tenant").FencedLock("x").Lock(ctx)
	gt.WantError(t, err, conclave.ErrInvalid)
}
