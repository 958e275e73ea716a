package virtualtime

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A client on the move: how it finds the members that can serve it, and when it stays.

// counted is a dialer that counts the connections that were established.
func counted(g *grouptest.Group, from int) (dial func(ctx context.Context, addr string) (net.Conn, error), dials *atomic.Int64) {
	dials = new(atomic.Int64)
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := g.Net.Dial(ctx, from, addr)
		if err == nil {
			dials.Add(1)
		}
		return c, err
	}, dials
}

// wantHeld fails the test unless a lock has that fence and the client can write.
func wantHeld(g *grouptest.Group, c *conclave.Client, lock *conclave.FencedLock, fence conclave.Fence) {
	g.T.Helper()
	if f, err := lock.Fence(); f != fence || err != nil {
		g.T.Errorf("fence %v, %v; want %v", f, err, fence)
	}
	_, err := c.KV().Put(grouptest.Within(g.T, 10*time.Second), "held", nil)
	grouptest.Must(g.T, err)
}

// The member of a client is partitioned from the others. The client, whatever its TTL, writes,
// reads and watches with another one soon.
func TestClient_MemberWithoutQuorumIsLeft(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, time.Hour} {
		for _, call := range []string{"write", "read", "watch"} {
			t.Run(fmt.Sprint(ttl, " ", call), func(t *testing.T) {
				t.Parallel()
				grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) { leaveMember(g, ttl, call) }, grouptest.Newcomers(1))
			})
		}
	}
}

func leaveMember(g *grouptest.Group, ttl time.Duration, call string) {
	c := dialOutsider(g, ttl)
	if ttl < time.Hour {
		grouptest.MustLock(g.T, c.FencedLock("x"))
	}
	changed := make(chan error, 100)
	if call == "watch" {
		index, err := c.KV().Index(g.T.Context())
		grouptest.Must(g.T, err)
		go func() {
			for _, err := range c.KV().Watch(g.T.Context(), "k", index) {
				changed <- err
			}
		}()
		pass(time.Second)
	}
	for round := range 3 {
		i := memberOf(g, c)
		for _, other := range g.Others(i) {
			if other != outsider {
				g.Net.Partition(i, other)
			}
		}
		pass(time.Second) // nothing is known yet
		began := time.Now()
		switch call {
		case "write":
			_, err := c.KV().Put(grouptest.Within(g.T, time.Minute), "k", nil)
			grouptest.Must(g.T, err)
		case "read":
			_, err := c.KV().List(grouptest.Within(g.T, time.Minute), "")
			grouptest.Must(g.T, err)
		case "watch":
			_, err := g.Nodes[(i+1)%outsider].KV().Put(grouptest.Within(g.T, time.Minute), fmt.Sprint("k/", round), nil)
			grouptest.Must(g.T, err)
			select {
			case err := <-changed:
				grouptest.Must(g.T, err)
			case <-time.After(time.Minute):
				g.T.Fatal("the change does not arrive")
			}
		}
		if d := time.Since(began); d > 6*time.Second {
			g.T.Errorf("takes %v", d)
		}
		g.Net.Rejoin(i)
		pass(10 * time.Second)
	}
}

// What a member sends to the others is lost, and it still hears the leader: it does not know that
// it is of no use. A call that is not answered shows it.
func TestClient_UselessMemberIsLeft(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		c := dialOutsider(g, time.Hour)
		for range 3 {
			i := memberOf(g, c)
			if i == g.Leader() {
				grouptest.Must(g.T, g.Nodes[i].TransferLeadership(grouptest.Within(g.T, time.Minute), g.ID((i+1)%outsider)))
				pass(2 * time.Second)
			}
			for _, other := range g.Others(i) {
				if other != outsider {
					g.Net.PartitionOneWay(i, other)
				}
			}
			began := time.Now()
			_, err := c.KV().Put(grouptest.Within(g.T, time.Minute), "k", nil)
			grouptest.Must(g.T, err)
			if d := time.Since(began); d > 4*time.Second {
				g.T.Errorf("takes %v", d)
			}
			g.Net.Rejoin(i)
			pass(10 * time.Second)
		}
	}, grouptest.Newcomers(1))
}

// While the group has no quorum a client moves rarely, and reads what a member has at hand.
func TestClient_StaysWithoutQuorum(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		dial, dials := counted(g, outsider)
		c := grouptest.Dial(g.T, &conclave.ClientConfig{SessionTTL: time.Minute, Dial: dial}, g.Nodes[:outsider]...)
		grouptest.MustLock(g.T, c.FencedLock("x"))
		_, err := c.KV().Put(g.T.Context(), "k", nil)
		grouptest.Must(g.T, err)
		pass(10 * time.Second)
		g.Net.Partition(0, 1)
		g.Net.Partition(1, 2)
		g.Net.Partition(2, 0)
		before := dials.Load()
		waiting := make(chan error, 1)
		go func() {
			_, err := c.KV().Put(g.T.Context(), "k", nil)
			waiting <- err
		}()
		for range 100 {
			pass(3 * time.Second)
			_, err := c.KV().Get(grouptest.Within(g.T, 2*time.Second), "k", conclave.Stale())
			grouptest.Must(g.T, err)
		}
		if n := dials.Load() - before; n < 2 || n > 60 {
			g.T.Errorf("%d connections in 5 minutes without a quorum", n)
		}
		for i := range outsider {
			g.Net.Rejoin(i)
		}
		pass(10 * time.Second)
		select {
		case err := <-waiting:
			grouptest.Must(g.T, err)
		default:
			g.T.Error("the call is not answered")
		}
	}, grouptest.Newcomers(1))
}

// A group whose disks take longer than a client's patience is slow and not dead: the client stays
// with its member, and keeps what it holds.
func TestClient_StaysWithSlowGroup(t *testing.T) {
	var disks [outsider]*laggingDisk
	lagging := grouptest.Edit(func(i int, c *conclave.Config, s *cluster.Seams) {
		c.ElectionTimeout = time.Duration(10+i) * time.Second
		if i < outsider {
			disks[i] = &laggingDisk{FS: s.FS}
			s.FS = disks[i]
		}
	})
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		dial, dials := counted(g, outsider)
		c := grouptest.Dial(g.T, &conclave.ClientConfig{SessionTTL: 20 * time.Second, Dial: dial}, g.Nodes[:outsider]...)
		lock := c.FencedLock("x")
		fence := grouptest.MustLock(g.T, lock)
		pass(10 * time.Second)
		for _, d := range disks {
			d.set(2500 * time.Millisecond)
		}
		before := dials.Load()
		for range 10 {
			_, err := c.KV().Put(grouptest.Within(g.T, time.Minute), "k", nil)
			grouptest.Must(g.T, err)
		}
		if n := dials.Load() - before; n > 0 {
			g.T.Errorf("%d connections to other members", n)
		}
		for _, d := range disks {
			d.set(0)
		}
		wantHeld(g, c, lock, fence)
	}, grouptest.Newcomers(1), lagging)
}

// The network of a client is slower than what it writes. Its commands are sent again before the
// first have arrived, and that does not end the connection.
func TestClient_SlowNetwork(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		dial, dials := counted(g, outsider)
		c := grouptest.Dial(g.T, &conclave.ClientConfig{SessionTTL: time.Minute, Dial: dial}, g.Nodes[:outsider]...)
		before := dials.Load()
		for i := range outsider {
			g.Net.Throttle(outsider, i, 500<<10)
		}
		written, writers := make(chan error), 40
		if testing.Short() {
			writers = 16
		}
		for i := range writers {
			go func() {
				_, err := c.KV().Put(grouptest.Within(g.T, 5*time.Minute), fmt.Sprint("k/", i), make([]byte, 500<<10))
				written <- err
			}()
		}
		for range writers {
			grouptest.Must(g.T, <-written)
		}
		if n := dials.Load() - before; n > 0 {
			g.T.Errorf("%d further connections", n)
		}
	}, grouptest.Newcomers(1))
}

// A watch of keys that do not change continues after the connection was lost, however much else
// has changed meanwhile, and the connection is lost once.
func TestClient_QuietWatchContinues(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 45 MB, which takes the race detector a minute")
	}
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		dial, dials := counted(g, outsider)
		c := grouptest.Dial(g.T, &conclave.ClientConfig{SessionTTL: 10 * time.Second, Dial: dial}, g.Nodes[:outsider]...)
		index, err := c.KV().Index(g.T.Context())
		grouptest.Must(g.T, err)
		changes := make(chan string, 100)
		go func() {
			for e, err := range c.KV().Watch(g.T.Context(), "quiet/", index) {
				if err != nil {
					changes <- err.Error()
					return
				}
				changes <- e.Entry.Key
			}
		}()
		pass(time.Second)
		rounds := 1
		if *long {
			rounds = 2
		}
		for round := range rounds {
			for i := range 90 {
				value := append(make([]byte, 500<<10), byte(round), byte(i)) // an equal one is no change
				_, err := g.Nodes[0].KV().Put(grouptest.Within(g.T, time.Minute), "noise", value)
				grouptest.Must(g.T, err)
			}
			pass(3 * time.Second)
			before := dials.Load()
			g.Net.Reset(outsider)
			pass(5 * time.Second)
			if n := dials.Load() - before; n != 1 {
				g.T.Errorf("%d connections after one was lost", n)
			}
			key := fmt.Sprint("quiet/", round)
			_, err := g.Nodes[0].KV().Put(grouptest.Within(g.T, time.Minute), key, nil)
			grouptest.Must(g.T, err)
			if got := <-changes; got != key {
				g.T.Fatalf("got %q, want %q", got, key)
			}
		}
	}, grouptest.Newcomers(1), rareHeartbeats)
}
