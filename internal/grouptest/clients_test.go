package grouptest

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// The member that a client is connected to dies: its holds, its places in queues and its
// watches survive that, with another member.
func TestClient_MemberDies(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	i := memberOf(g, c)
	held, queued := c.FencedLock("held"), c.FencedLock("queued")
	fence := MustLock(t, held)
	other := g.Nodes[(i+1)%3].FencedLock("queued")
	MustLock(t, other)
	grants := make(chan error, 1)
	go func() {
		_, err := queued.Lock(t.Context())
		grants <- err
	}()
	AwaitWaiters(t, other, 1)
	g.Kill(i)
	if f, err := held.Fence(); f != fence || err != nil {
		t.Errorf("the hold has fence %v, %v; want %v", f, err, fence)
	}
	MustUnlock(t, other)
	Must(t, <-grants)
	if f, err := held.Fence(); f != fence || err != nil {
		t.Errorf("the hold has fence %v, %v; want %v", f, err, fence)
	}
	MustUnlock(t, held)
	MustUnlock(t, queued)
	_, err := c.KV().Put(Bounded(t), "k", []byte("v"))
	Must(t, err)
}

// Each increment by clients takes effect once, while members are killed and restarted under
// them.
func TestClient_ExactlyOnceAcrossMembers(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	const clients = 4
	rounds := often(40)
	total := 0 // under the lock that is being tested
	progress := make(chan struct{})
	var wg sync.WaitGroup
	ctx := Bounded(t)
	for i := range clients {
		c := Dial(t, &conclave.ClientConfig{Name: fmt.Sprint("client-", i), SessionTTL: time.Minute}, g.Nodes...)
		wg.Go(func() {
			l := c.FencedLock("counter")
			for range rounds {
				_, err := l.Lock(ctx)
				if err == nil {
					if total++; total%15 == 0 {
						select {
						case progress <- struct{}{}:
						case <-ctx.Done():
						}
					}
					_, err = c.KV().Put(ctx, fmt.Sprint("count/", total), nil)
					err = errors.Join(err, l.Unlock(ctx))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { wg.Wait(); close(progress) }()
	i := 0
	for range progress {
		g.Kill(i % 3)
		g.Start(i % 3)
		i++
	}
	if total != clients*rounds {
		t.Errorf("%d increments, want %d", total, clients*rounds)
	}
	keys, err := g.Nodes[0].KV().Keys(Bounded(t), "count/", "")
	if err != nil || len(keys) != total {
		t.Errorf("%d keys, %v; want %d", len(keys), err, total)
	}
}

// A watch of a client continues with another member where it was: each change once, in order.
func TestClient_WatchContinues(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	index, err := c.KV().Index(Bounded(t))
	Must(t, err)
	const changes = 60
	seen := make(chan string, changes)
	go func() {
		for e, err := range c.KV().Watch(t.Context(), "k/", index) {
			if err != nil {
				if t.Context().Err() == nil {
					t.Error(err)
				}
				return
			}
			seen <- e.Entry.Key
		}
	}()
	for i := range changes {
		if i%20 == 10 {
			killed := memberOf(g, c)
			g.Kill(killed)
			g.Start(killed)
		}
		_, err := g.Nodes[0].KV().Put(Bounded(t), fmt.Sprint("k/", i), nil)
		Must(t, err)
	}
	for i := range changes {
		select {
		case key := <-seen:
			if want := fmt.Sprint("k/", i); key != want {
				t.Fatalf("got %q, want %q", key, want)
			}
		case <-time.After(patience):
			t.Fatalf("change %d does not arrive", i)
		}
	}
}

// memberOf returns the member that a client is connected to.
func memberOf(g *Group, c *conclave.Client) int {
	g.T.Helper()
	status, err := c.Status(Bounded(g.T))
	Must(g.T, err)
	return slices.IndexFunc(g.Nodes, func(n *conclave.Node) bool { return n != nil && n.Status().ID == status.ID })
}

// Members are closed gracefully one after the other, as in a rolling upgrade. A client keeps
// what it holds, and none of its calls fails.
func TestClient_RollingRestart(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	lock := c.FencedLock("x")
	fence := MustLock(t, lock)
	for range 4 {
		i := memberOf(g, c)
		Must(t, g.Nodes[i].Close(Bounded(t)))
		if l, err := c.Explain(Bounded(t), "x"); err != nil || l.Fence != fence {
			t.Fatalf("%+v, %v; want fence %v", l, err, fence)
		}
		g.Start(i)
		_, err := c.KV().Put(Bounded(t), "k", nil)
		Must(t, err)
	}
	if f, err := lock.Fence(); f != fence || err != nil {
		t.Errorf("fence %v, %v; want %v", f, err, fence)
	}
	MustUnlock(t, lock)
}

// What a member does for a client: leadership, membership, backups. Refusals are those of a
// node.
func TestClient_Administers(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	c := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	next := g.Others(g.Leader())[0]
	g.MustTransfer(c, next)
	if status, err := c.Status(Bounded(t)); err != nil || len(status.Members) != 3 {
		t.Errorf("%+v, %v", status, err)
	}
	WantError(t, c.TransferLeadership(Bounded(t), 12345), conclave.ErrInvalid)
	WantError(t, c.RemoveMember(Bounded(t), 12345), conclave.ErrInvalid)
	var backup bytes.Buffer
	Must(t, c.Backup(Bounded(t), &backup))
	Must(t, conclave.Restore(t.Context(), filepath.Join(t.TempDir(), "restored"), &backup))
	removed := g.Others(memberOf(g, c))[0]
	Must(t, c.RemoveMember(Bounded(t), g.Nodes[removed].Status().ID))
	for _, check := range []string{"gossip", conclave.ProcessCheck} {
		_, err := c.NewSession(Bounded(t), &conclave.SessionConfig{Checks: []string{check}})
		WantError(t, err, conclave.ErrInvalid)
	}
	WantError(t, c.CloseSession(Bounded(t), conclave.SessionID{1}), conclave.ErrSessionNotFound)
	Must(t, c.Close(Bounded(t)))
	_, err := c.FencedLock("x").Lock(t.Context())
	WantError(t, err, conclave.ErrClosed)
	_, err = c.Status(t.Context())
	WantError(t, err, conclave.ErrClosed)
}
