package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Without a quorum a client that only reads shows what its member has of a further group, also one that has started since, and that no group
// has registered yet.
func TestClient_ReadOnlyGroupWithoutQuorum(t *testing.T) {
	for name, restarted := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMembershipBubble(t, outsider+1, func(g *membership) { g.readGroupWithoutQuorum(restarted) }, grouptest.Newcomers(1))
		})
	}
}

func (g *membership) readGroupWithoutQuorum(restarted bool) {
	t := g.T
	g.tenants(0, "a", "deleted")
	grouptest.Must(t, g.Nodes[0].DeleteGroup(grouptest.Within(t, time.Minute), "deleted"))
	a := g.Nodes[0].WithGroup("a")
	grouptest.MustPut(t, a.KV(), "k", "v")
	grouptest.MustLock(t, g.Nodes[1].WithGroup("a").FencedLock("held"))
	for i := range 5 { // what is known to be committed comes to the disk with later entries
		grouptest.MustPut(t, a.KV(), "later", fmt.Sprint(i))
		grouptest.MustPut(t, g.Nodes[0].KV(), "later", fmt.Sprint(i))
		pass(time.Second)
	}
	addr := g.Nodes[0].Addr()
	g.Kill(1, 2)
	if restarted {
		g.Kill(0)
		defer g.openInBackground(0)()
	}
	pass(10 * time.Second)
	c := grouptest.Dial(t, &conclave.ClientConfig{ReadOnly: true, Addresses: []string{addr}, Dial: g.Net.Dialer(outsider)})
	e, err := c.WithGroup("a").KV().Get(grouptest.Within(t, 5*time.Second), "k", conclave.Stale())
	if err != nil || string(e.Value) != "v" {
		t.Errorf("%+v, %v", e, err)
	}
	locks, err := grouptest.Collect(c.WithGroup("a").Locks(grouptest.Within(t, 5*time.Second), "", conclave.Stale()))
	if err != nil || len(locks) != 1 || locks[0].Name != "held" {
		t.Errorf("stale locks: %+v, %v", locks, err)
	}
	_, err = c.WithGroup("a").KV().Get(grouptest.Within(t, 5*time.Second), "k")
	grouptest.WantError(t, err, conclave.ErrUnavailable)
	_, err = c.WithGroup("deleted").KV().Get(grouptest.Within(t, 5*time.Second), "k", conclave.Stale())
	grouptest.WantError(t, err, conclave.ErrUnavailable)
}

// openInBackground has a member start that cannot open, until stop is called.
func (g *membership) openInBackground(i int) (stop func()) {
	ctx, cancel := context.WithCancel(g.T.Context())
	opened := make(chan error, 1)
	go func() {
		_, err := g.OpenWith(ctx, i)
		opened <- err
	}()
	return func() {
		cancel()
		grouptest.WantError(g.T, <-opened, conclave.ErrUnavailable)
	}
}

// A client that has left a group, as it did not use that, reads what its member has without a quorum to register it again.
func TestGroups_StaleReadOfGroupThatWasLeft(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		c := g.clientOf(nil)
		grouptest.MustPut(t, c.WithGroup("a").KV(), "k", "v")
		pass(quietAfterClient)
		g.wantQuiet(1, 0, 1, 2)
		g.Kill(1, 2)
		for _, a := range []*conclave.Group{c.WithGroup("a"), g.Nodes[0].WithGroup("a")} {
			e, err := a.KV().Get(grouptest.Within(t, 20*time.Second), "k", conclave.Stale())
			if err != nil || string(e.Value) != "v" {
				t.Errorf("%+v, %v", e, err)
			}
		}
		_, err := c.WithGroup("a").KV().Put(grouptest.Within(t, time.Second), "k", []byte("w"))
		grouptest.WantError(t, err, conclave.ErrUnavailable)
		g.Start(1)
		grouptest.MustPut(t, c.WithGroup("a").KV(), "k", "w")
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// A client that only reads has found a group by a stale read at a member that lags, when the group was deleted, and another one of its name created. Its handle does
// not belong to the deleted one: it reaches the other once a member of that is reachable, or the member that lagged has learned of it.
func TestClient_StaleReadOfDeletedGroup(t *testing.T) {
	for name, opts := range map[string][]conclave.ReadOption{"linearizable": nil, "stale": {conclave.Stale()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMembershipBubble(t, outsider+1, func(g *membership) { g.readDeletedGroup(opts) }, grouptest.Newcomers(1))
		})
	}
}

func (g *membership) readDeletedGroup(opts []conclave.ReadOption) {
	t := g.T
	ctx := grouptest.Within(t, time.Hour)
	g.tenants(0, "a")
	grouptest.MustPut(t, g.Nodes[0].WithGroup("a").KV(), "k", "old")
	pass(10 * time.Second)
	leader := g.Leader()
	lagging, other := (leader+1)%outsider, (leader+2)%outsider
	g.Net.Partition(lagging, leader)
	g.Net.Partition(lagging, other)
	pass(10 * time.Second)
	grouptest.Must(t, g.Nodes[leader].DeleteGroup(ctx, "a", conclave.Force()))
	g.tenants(leader, "a")
	grouptest.MustPut(t, g.Nodes[leader].WithGroup("a").KV(), "k", "new")
	var others atomic.Bool
	c := g.clientOf(func(cfg *conclave.ClientConfig) {
		dial := cfg.Dial
		cfg.ReadOnly = true
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if !others.Load() && addr != g.Configs[lagging].Bind {
				return nil, errors.New("not reachable yet")
			}
			return dial(ctx, addr)
		}
	})
	a := c.WithGroup("a")
	for range 2 {
		if e, err := a.KV().Get(ctx, "k", conclave.Stale()); err != nil || string(e.Value) != "old" {
			t.Fatalf("%q, %v: no member lags", e.Value, err)
		}
	}
	others.Store(true)
	g.Net.Heal(lagging, leader)
	g.Net.Heal(lagging, other)
	if opts != nil {
		pass(10 * time.Second)
	}
	for range 2 {
		if e, err := a.KV().Get(ctx, "k", opts...); err != nil || string(e.Value) != "new" {
			t.Errorf("%q, %v; want that of the later group", e.Value, err)
		}
	}
}
