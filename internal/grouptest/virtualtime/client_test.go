package virtualtime

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// outsider is the place in the network of a client.
const outsider = 3

// dialOutsider opens a client in a bubble with the place of a newcomer that is never started.
func dialOutsider(g *grouptest.Group, ttl time.Duration) *conclave.Client {
	cfg := &conclave.ClientConfig{Name: "client", SessionTTL: ttl, Dial: g.Net.Dialer(outsider)}
	return grouptest.Dial(g.T, cfg, g.Nodes[:outsider]...)
}

// A client that is partitioned from every member has noticed the loss by its own clock before
// another owner is granted what it holds, and not much earlier than needed.
func TestClient_EarlyLoss(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
				c := dialOutsider(g, ttl)
				lock := c.FencedLock("x")
				grouptest.MustLock(g.T, lock)
				waiter := grouptest.MustSession(g.T, g.Nodes[0], &conclave.SessionConfig{TTL: longTTL, NoChecks: true}).FencedLock("x")
				granted := make(chan time.Time, 1)
				go func() {
					if _, err := waiter.Lock(g.T.Context()); err == nil {
						granted <- time.Now()
					}
				}()
				grouptest.AwaitWaiters(g.T, waiter, 1)
				lost := make(chan time.Time, 1)
				go func() {
					<-lock.Lost()
					lost <- time.Now()
				}()
				pass(3 * ttl)
				g.Net.Isolate(outsider)
				earlyLoss{ttl: ttl}.wantLostFirst(g, time.Now(), lost, granted)
				g.Net.Rejoin(outsider)
				_, err := lock.Lock(grouptest.Within(g.T, time.Minute))
				grouptest.WantError(g.T, err, conclave.ErrLockOwnershipLost)
			}, grouptest.Newcomers(1))
		})
	}
}

// A client whose member is partitioned from it, or from the others, goes on with another
// member in time to keep its session.
func TestClient_PartitionedFromItsMember(t *testing.T) {
	skipIfShort(t)
	for _, fault := range []string{"client from member", "member from group", "member from all"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
				c := dialOutsider(g, 10*time.Second)
				lock := c.FencedLock("x")
				fence := grouptest.MustLock(g.T, lock)
				for range 3 {
					i := memberOf(g, c)
					if fault != "client from member" {
						for _, other := range g.Others(i) {
							if other != outsider || fault == "member from all" {
								g.Net.Partition(i, other)
							}
						}
						if fault == "member from all" {
							g.Net.Partition(i, outsider)
						}
					} else {
						g.Net.Partition(i, outsider)
					}
					pass(30 * time.Second)
					if f, err := lock.Fence(); f != fence || err != nil {
						g.T.Fatalf("fence %v, %v; want %v", f, err, fence)
					}
					_, err := c.KV().Put(grouptest.Within(g.T, time.Minute), "k", nil)
					grouptest.Must(g.T, err)
					g.Net.Rejoin(i)
					pass(5 * time.Second)
				}
				grouptest.MustUnlock(g.T, lock)
			}, grouptest.Newcomers(1))
		})
	}
}

// memberOf returns the member that a client is connected to.
func memberOf(g *grouptest.Group, c *conclave.Client) int {
	g.T.Helper()
	s, err := c.Status(grouptest.Within(g.T, time.Minute))
	grouptest.Must(g.T, err)
	for i, n := range g.Nodes[:outsider] {
		if n.Status().ID == s.ID {
			return i
		}
	}
	g.T.Fatalf("no member has ID %v", s.ID)
	return 0
}

// The registration of a client that was suspended for longer than the group keeps it expires.
// The client goes on under another one, with the loss of what it held.
func TestClient_RegistrationExpires(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		c := dialOutsider(g, 10*time.Second)
		lock := c.FencedLock("x")
		grouptest.MustLock(g.T, lock)
		before := c.ID()
		g.Net.Isolate(outsider)
		pass(3 * time.Minute)
		g.Net.Rejoin(outsider)
		_, err := lock.Lock(grouptest.Within(g.T, time.Minute))
		grouptest.WantError(g.T, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(g.T, lock.Unlock(g.T.Context()), conclave.ErrLockOwnershipLost)
		fence := grouptest.MustLock(g.T, lock)
		if info, err := lock.Info(g.T.Context()); err != nil || info.Fence != fence || info.Node != c.ID() {
			g.T.Errorf("%+v, %v; want fence %v of %v", info, err, fence, c.ID())
		}
		if c.ID() == before {
			g.T.Errorf("the client still has ID %v", before)
		}
		if err := c.Close(context.Background()); err != nil {
			g.T.Error(err)
		}
	}, grouptest.Newcomers(1))
}

// Dial goes on with another member if the one that it has reached is partitioned from the group.
func TestDial_MemberPartitionedFromGroup(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		pass(10 * time.Second) // to the feature level of clients
		g.Net.Partition(0, 1)
		g.Net.Partition(0, 2)
		pass(10 * time.Second)
		for range 6 { // begins with any of the addresses
			began := time.Now()
			c := dialOutsider(g, 10*time.Second)
			if took := time.Since(began); took > 10*time.Second {
				g.T.Errorf("took %v", took)
			}
			grouptest.Must(g.T, c.Close(context.Background()))
		}
	}, grouptest.Newcomers(1))
}

// Close releases what a client holds also while it looks for another member.
func TestClient_CloseBetweenMembers(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		c := dialOutsider(g, time.Minute)
		grouptest.MustLock(g.T, c.FencedLock("x"))
		i := memberOf(g, c)
		g.Kill(i)
		pass(10 * time.Millisecond)
		grouptest.Must(g.T, c.Close(grouptest.Within(g.T, time.Minute)))
		_, err := g.Nodes[(i+1)%outsider].FencedLock("x").Lock(grouptest.Within(g.T, 10*time.Second))
		grouptest.Must(g.T, err)
	}, grouptest.Newcomers(1))
}

// The member of a client installs a snapshot that stands for the grant that the client waits
// for. The client attaches again, and learns of it.
func TestClient_SnapshotSkipsGrant(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		c := dialOutsider(g, time.Minute)
		i := memberOf(g, c)
		if i == g.Leader() {
			next := g.Others(i)[0]
			grouptest.Must(g.T, g.Nodes[i].TransferLeadership(grouptest.Within(g.T, time.Minute), g.ID(next)))
			pass(2 * time.Second)
		}
		other := g.Nodes[g.Leader()]
		held := grouptest.MustLock(g.T, c.FencedLock("held"))
		blocking := other.FencedLock("x")
		grouptest.MustLock(g.T, blocking)
		queued := c.FencedLock("x")
		granted := make(chan error, 1)
		go func() {
			_, err := queued.Lock(g.T.Context())
			granted <- err
		}()
		grouptest.AwaitWaiters(g.T, blocking, 1)
		before := g.Installed(i)
		for _, j := range g.Others(i) {
			if j != outsider {
				g.Net.Partition(i, j)
			}
		}
		grouptest.MustUnlock(g.T, blocking)
		grouptest.Busy(g.T, other, 200)
		for _, j := range g.Others(i) {
			g.Net.Heal(i, j)
		}
		select {
		case err := <-granted:
			grouptest.Must(g.T, err)
		case <-time.After(time.Minute):
			g.T.Fatal("the grant does not arrive")
		}
		pass(5 * time.Second)
		if got := g.Installed(i); got == before {
			g.T.Errorf("member %d has installed no snapshot", i)
		}
		if f, err := c.FencedLock("held").Fence(); err == nil || f != 0 {
			g.T.Errorf("another handle holds %v, %v", f, err)
		}
		if info, err := c.FencedLock("held").Info(g.T.Context()); err != nil || info.Fence != held {
			g.T.Errorf("%+v, %v; want fence %v", info, err, held)
		}
	}, grouptest.Newcomers(1), grouptest.ShortLog)
}
