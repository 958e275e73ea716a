package virtualtime

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// quietAfterClient is more than it takes until a group that a client has used is quiet: its session ends, it leaves, and its registration expires.
const quietAfterClient = 4*time.Minute + quietAfterUse

// clientOf returns a client of all members.
func (g *membership) clientOf(edit func(*conclave.ClientConfig)) *conclave.Client {
	g.T.Helper()
	cfg := &conclave.ClientConfig{Dial: g.Net.Dialer(outsider)}
	if edit != nil {
		edit(cfg)
	}
	return grouptest.Dial(g.T, cfg, g.Nodes[:outsider]...)
}

// useAtOnce has a client use a group, which must not wait for longer than an election takes.
func useAtOnce(t testing.TB, c *conclave.Client, group string) conclave.Fence {
	t.Helper()
	began := time.Now()
	fence := useOnce(grouptest.Within(t, time.Minute), t, c.WithGroup(group))
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a client has waited %v for the group %s", took, group)
	}
	return fence
}

// A group that a client has used becomes quiet while the client lives, and serves it at once, each time. What the client holds or watches stays.
func TestGroups_QuietAfterClient(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		g.tenants(0, "used", "read", "written", "held", "watched")
		c := g.clientOf(nil)
		fence := useAtOnce(t, c, "used")
		_, _ = c.WithGroup("read").KV().Get(t.Context(), "k")
		grouptest.MustPut(t, c.WithGroup("written").KV(), "k", "v")
		held := c.WithGroup("held").FencedLock("l")
		holding := grouptest.MustLock(t, held)
		ctx, cancel := context.WithCancel(t.Context())
		changes := make(chan string, 9)
		go func() {
			defer close(changes)
			for e, err := range c.WithGroup("watched").KV().Watch(ctx, "", 0) {
				if err != nil {
					break
				}
				changes <- e.Entry.Key
			}
		}()
		for range often(3) {
			pass(quietAfterClient)
			g.wantQuiet(3, 0, 1, 2)
			if f, err := held.Fence(); f != holding || err != nil {
				t.Errorf("fence %v, %v; want %v", f, err, holding)
			}
			next := useAtOnce(t, c, "used")
			if next <= fence {
				t.Errorf("fence %v follows %v", next, fence)
			}
			fence = next
			if e := grouptest.MustGet(t, c.WithGroup("written").KV(), "k"); string(e.Value) != "v" {
				t.Errorf("%q", e.Value)
			}
		}
		grouptest.MustPut(t, g.Nodes[0].WithGroup("watched").KV(), "late", "v")
		if key := <-changes; key != "late" {
			t.Errorf("a watch has %q", key)
		}
		cancel()
		for range changes { // until the watch has ended
		}
		grouptest.MustUnlock(t, held)
		pass(quietAfterClient)
		g.wantQuiet(5, 0, 1, 2)
		grouptest.Must(t, c.Close(grouptest.Within(t, time.Minute)))
		g.wantQuiet(5, 0, 1, 2) // it has nothing there to end
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// A client that uses a group again and again, each time shortly before it would leave it or after, by calls of any kind, never fails.
func TestGroups_QuietClientReturns(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		c := g.clientOf(nil)
		a := c.WithGroup("a")
		l := a.FencedLock("l")
		for i, n := 0, often(20); i < n; i++ {
			switch i % 4 {
			case 0:
				grouptest.MustPut(t, a.KV(), "k", "v")
			case 1:
				_, err := a.KV().List(t.Context(), "")
				grouptest.Must(t, err)
				pass(time.Second)
				grouptest.MustPut(t, a.KV(), "k", "v")
			case 2:
				grouptest.MustLock(t, l)
				grouptest.MustUnlock(t, l)
			case 3:
				grouptest.Must(t, g.Nodes[0].WithGroup("a").KV().Delete(t.Context(), "other"))
				grouptest.Must(t, c.TransferLeadership(grouptest.Within(t, time.Minute), g.ID(i/4%3)))
				grouptest.Must(t, a.TransferLeadership(grouptest.Within(t, time.Minute), g.ID(i/4%3)))
			}
			pass(100*time.Second + time.Duration(i)*110*time.Second/time.Duration(n))
		}
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// The members that a client knew move when it has left the group, the leader among them crashes, and so does the client's member: the next use finds the group.
func TestGroups_QuietClientMembersMove(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		c := g.clientOf(nil)
		reader := g.clientOf(func(cfg *conclave.ClientConfig) { cfg.ReadOnly = true })
		fence := useAtOnce(t, c, "a")
		_, err := reader.WithGroup("a").FencedLock("l").Info(t.Context())
		grouptest.Must(t, err)
		pass(quietAfterClient)
		g.wantQuiet(1, 0, 1, 2)
		for i := range 3 {
			g.Kill(i)
			g.Configs[i].Bind = "127.3.0." + string(rune('1'+i)) + ":7000"
			g.Start(i)
			pass(20 * time.Second)
		}
		pass(quietAfterClient)
		g.wantQuiet(1, 0, 1, 2)
		if f := useAtOnce(t, c, "a"); f <= fence {
			t.Errorf("fence %v follows %v", f, fence)
		}
		_, err = reader.WithGroup("a").FencedLock("l").Info(t.Context())
		grouptest.Must(t, err)
		pass(quietAfterClient)
		g.transferIn("a", 1)
		pass(quietAfter)
		g.wantQuiet(1, 0, 1, 2)
		g.Kill(1)
		pass(election)
		useAtOnce(t, c, "a")
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// A group is deleted, and another one of its name created, when a client has left it: calls by its handle have no effect, and a handle that is asked for after the first of
// them is of the new group.
func TestGroups_QuietClientGroupDeleted(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, 24*time.Hour)
		g.tenants(0, "a", "b", "c")
		c := g.clientOf(nil)
		reader := g.clientOf(func(cfg *conclave.ClientConfig) { cfg.ReadOnly = true })
		groups := map[string]*conclave.Group{}
		for _, name := range []string{"a", "b"} {
			groups[name] = c.WithGroup(name)
			useAtOnce(t, c, name)
		}
		read := reader.WithGroup("b")
		_, err := read.KV().List(ctx, "")
		grouptest.Must(t, err)
		pass(quietAfterClient)
		for _, name := range []string{"a", "b"} {
			grouptest.Must(t, g.Nodes[0].DeleteGroup(ctx, name, conclave.Force()))
		}
		g.tenants(0, "a", "b")
		_, err = groups["a"].KV().Put(ctx, "k", nil)
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
		_, err = groups["a"].KV().Get(ctx, "k")
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
		useAtOnce(t, c, "a")
		grouptest.MustPut(t, c.WithGroup("c").KV(), "k", "v")
		_, err = reader.WithGroup("c").KV().List(ctx, "")
		grouptest.Must(t, err)
		pass(quietAfterClient)
		_, err = groups["b"].KV().Get(ctx, "k")
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
		grouptest.MustPut(t, c.WithGroup("b").KV(), "k", "v")
		_, err = read.KV().Get(ctx, "k")
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
		_, err = reader.WithGroup("b").KV().List(ctx, "")
		grouptest.Must(t, err)
		_, err = groups["b"].KV().Get(ctx, "k")
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// Calls begin at the instants at which a client decides whether it leaves: none fails.
func TestGroups_ClientReturnsAsItLeaves(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		c := g.clientOf(nil)
		a := c.WithGroup("a")
		r := g.clientOf(func(cfg *conclave.ClientConfig) { cfg.ReadOnly = true }).WithGroup("a")
		for i := range often(12) {
			grouptest.MustPut(t, a.KV(), "k", "v")
			_, err := r.KV().List(t.Context(), "")
			grouptest.Must(t, err)
			pass(2*time.Minute + time.Duration(i%4)*20*time.Second)
			var calls sync.WaitGroup
			for range 4 {
				calls.Go(func() {
					if _, err := a.KV().Put(t.Context(), "k", nil); err != nil {
						t.Error(err)
					}
				})
				calls.Go(func() {
					if _, err := r.KV().List(t.Context(), ""); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
		}
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// A client learns of the deletion of a group that it has left by a call, or deletes it itself: a handle that is asked for then is of the next group of that name.
func TestGroups_LeftGroupDeleted(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, 24*time.Hour)
		g.tenants(0, "a", "b")
		c := g.clientOf(nil)
		old := []*conclave.Group{c.WithGroup("a"), c.WithGroup("b")}
		useAtOnce(t, c, "a")
		useAtOnce(t, c, "b")
		pass(quietAfterClient)
		grouptest.Must(t, g.Nodes[0].DeleteGroup(ctx, "a", conclave.Force()))
		_, err := old[0].KV().Put(ctx, "k", nil)
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
		grouptest.Must(t, c.DeleteGroup(ctx, "b", conclave.Force()))
		g.tenants(0, "a", "b")
		for i, name := range []string{"a", "b"} {
			grouptest.MustPut(t, c.WithGroup(name).KV(), "k", "v")
			_, err := old[i].KV().Get(ctx, "k")
			grouptest.WantError(t, err, conclave.ErrGroupNotFound)
		}
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// A watch begins when the client has ended its renewals and is about to leave: it stays registered, so a later call has its outcome though its member crashes.
func TestGroups_WatchBeginsBeforeClientLeaves(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		for i, n := 0, often(10); i < n; i++ {
			off := 119*time.Second + time.Duration(i)*27*time.Second/time.Duration(n)
			var others atomic.Bool
			c := g.clientOf(func(cfg *conclave.ClientConfig) {
				dial := cfg.Dial
				cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					if !others.Load() && addr != g.Configs[2].Bind {
						return nil, errors.New("not reachable yet")
					}
					return dial(ctx, addr)
				}
			})
			a := c.WithGroup("a")
			put := grouptest.MustPut(t, a.KV(), "k", "v")
			pass(off)
			ctx, cancel := context.WithCancel(t.Context())
			var watch sync.WaitGroup
			watch.Go(func() {
				for _, err := range a.KV().Watch(ctx, "none", put.ModifyIndex) {
					grouptest.WantError(t, err, context.Canceled)
				}
			})
			pass(100 * time.Second)
			others.Store(true)
			g.Kill(2)
			grouptest.MustPut(t, a.KV(), "k", off.String())
			cancel()
			watch.Wait()
			grouptest.Must(t, c.Close(t.Context()))
			g.Start(2)
			pass(30 * time.Second)
		}
	}, grouptest.Newcomers(1), rareHeartbeats)
}
