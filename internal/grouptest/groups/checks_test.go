package groups

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// A check belongs to one group: sessions of that depend on it, those of another group cannot.
func TestCheck_OfFurtherGroup(t *testing.T) {
	t.Parallel()
	n := start(t, 1).Nodes[0]
	ctx := gt.Bounded(t)
	tenant := create(t, n, "tenant")
	check, err := tenant.RegisterCheck(ctx, "disk", 0)
	gt.Must(t, err)
	client, err := tenant.RegisterClientCheck(ctx, "web", time.Hour)
	gt.Must(t, err)
	for _, name := range []string{"disk", "web"} {
		cfg := &conclave.SessionConfig{Checks: []string{name}, LockDelay: conclave.NoLockDelay}
		_, err = n.CreateSession(ctx, cfg)
		gt.WantError(t, err, conclave.ErrInvalid)
		id, err := tenant.CreateSession(ctx, cfg)
		gt.Must(t, err)
		_, err = tenant.KV().Acquire(ctx, "k", nil, id)
		gt.Must(t, err)
		_, err = n.SessionInfo(ctx, id)
		gt.WantError(t, err, conclave.ErrSessionNotFound)
		if name == "disk" {
			gt.Must(t, check.Fail(ctx))
		} else {
			gt.Must(t, client.Deregister(ctx))
		}
		gt.WantError(t, tenant.RenewSession(ctx, id), conclave.ErrSessionNotFound)
	}
	for c, err := range n.Checks(ctx) {
		if gt.Must(t, err); c.Name == "disk" || c.Name == "web" {
			t.Errorf("the default group has %+v", c)
		}
	}
}

// What only a member does is refused from a client's groups.
func TestClient_NoMember(t *testing.T) {
	t.Parallel()
	n := start(t, 1).Nodes[0]
	ctx := gt.Bounded(t)
	create(t, n, "tenant")
	c := gt.Dial(t, &conclave.ClientConfig{}, n)
	for _, g := range []*conclave.Group{c.Group, c.WithGroup("tenant")} {
		_, err := g.CreateSession(ctx, nil)
		gt.WantError(t, err, conclave.ErrInvalid)
		_, err = g.RegisterCheck(ctx, "disk", 0)
		gt.WantError(t, err, conclave.ErrInvalid)
		_, err = g.RegisterClientCheck(ctx, "disk", 0)
		gt.WantError(t, err, conclave.ErrInvalid)
		_, err = g.AwaitChange(ctx, 0)
		gt.WantError(t, err, conclave.ErrInvalid)
	}
}

// A node knows its groups without asking.
func TestGroupInfo(t *testing.T) {
	t.Parallel()
	n := start(t, 1).Nodes[0]
	if info, ok := n.GroupInfo("tenant"); ok {
		t.Errorf("before the creation: %+v", info)
	}
	create(t, n, "tenant")
	own := n.Status()
	for i, name := range []string{own.Group, "tenant"} {
		info, ok := n.GroupInfo(name)
		if !ok || info.Name != name || info.Number != uint32(i) || info.Leader != own.ID || info.Term == 0 || info.Applied == 0 ||
			len(info.Voters) != 1 || info.LastContact != 0 || (info.CreateIndex == 0) != (i == 0) {
			t.Errorf("%q: %+v, %v", name, info, ok)
		}
	}
	ctx := gt.Bounded(t)
	gt.Must(t, n.DeleteGroup(ctx, "tenant"))
	if info, ok := n.GroupInfo("tenant"); ok {
		t.Errorf("after the deletion: %+v", info)
	}
}
