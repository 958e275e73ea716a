package groups

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// start starts a group of members.
func start(t *testing.T, n int, opts ...gt.Option) *gt.Group {
	t.Helper()
	return gt.Start(t, n, opts...)
}

func create(t *testing.T, n *conclave.Node, name string) *conclave.Group {
	t.Helper()
	g, err := n.CreateGroup(gt.Bounded(t), name, conclave.GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// transfer has a member lead a further group. A leader gives a transfer up after an election timeout.
func transfer(t *testing.T, g *gt.Group, name string, to int) {
	t.Helper()
	leads := func() bool {
		return slices.ContainsFunc(g.Nodes[to].Metrics().Groups, func(m conclave.GroupMetrics) bool { return m.Name == name && m.Leads })
	}
	for ctx := gt.Bounded(t); !leads(); gt.Pass(time.Millisecond) {
		if err := g.Nodes[to].WithGroup(name).TransferLeadership(ctx, g.ID(to)); err != nil && !errors.Is(err, conclave.ErrInvalid) {
			t.Fatal(err)
		}
	}
}

// numbers lists the further groups by name.
func numbers(t *testing.T, n *conclave.Node) map[string]uint32 {
	t.Helper()
	list, err := gt.Collect(n.Groups(gt.Bounded(t)))
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]uint32)
	for _, g := range list {
		by[g.Name] = g.Number
	}
	return by
}

// A group that does not exist has handles whose calls say so, until it is created, by whichever member.
func TestGroup_NotFound(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	late := g.Nodes[1].WithGroup("late")
	l := late.FencedLock("x")
	_, err := l.Lock(ctx)
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	gt.WantError(t, g.Nodes[1].DeleteGroup(ctx, "late"), conclave.ErrGroupNotFound)
	_, err = late.KV().Get(ctx, "k")
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	create(t, g.Nodes[2], "late")
	gt.MustLock(t, l)
}

// A group is deleted when it holds nothing, or by force, and then its handles say so. Fences go on in another one of the name.
func TestDeleteGroup(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	tenant := create(t, g.Nodes[0], "tenant")
	l := tenant.FencedLock("x")
	for range 5 {
		gt.MustLock(t, l)
		gt.MustUnlock(t, l)
	}
	last := gt.MustLock(t, l)
	gt.WantError(t, g.Nodes[1].DeleteGroup(ctx, "tenant"), conclave.ErrLocked)
	lost := l.Lost()
	if err := g.Nodes[1].DeleteGroup(ctx, "tenant", conclave.Force()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	case <-ctx.Done():
		t.Fatal("the holder is not notified")
	}
	if _, err := l.Fence(); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Error(err)
	}
	_, err := tenant.FencedLock("y").Lock(ctx)
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	if names := numbers(t, g.Nodes[0]); len(names) != 1 {
		t.Errorf("groups %v", names)
	}
	create(t, g.Nodes[2], "tenant")
	if f := gt.MustLock(t, g.Nodes[0].WithGroup("tenant").FencedLock("x")); f <= last {
		t.Errorf("fence %v after %v", f, last)
	}
	if names := numbers(t, g.Nodes[1]); names["tenant"] != 2 {
		t.Errorf("groups %v", names)
	}
}

// All members restart, and each group is as it was. What was deleted while a member was down is gone there as well.
func TestGroup_Restart(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	for _, name := range []string{"a", "b", "c"} {
		tenant := create(t, g.Nodes[0], name)
		gt.MustPut(t, tenant.KV(), "k", name)
	}
	g.KillAll()
	g.Start(g.All()...)
	for _, name := range []string{"a", "b", "c"} {
		for _, i := range g.All() {
			if e := gt.MustGet(t, g.Nodes[i].WithGroup(name).KV(), "k"); string(e.Value) != name {
				t.Errorf("member %d, group %s: %q", i, name, e.Value)
			}
		}
	}
	g.Kill(2)
	if err := g.Nodes[0].DeleteGroup(ctx, "b", conclave.Force()); err != nil {
		t.Fatal(err)
	}
	create(t, g.Nodes[0], "d")
	g.Start(2)
	gt.MustPut(t, g.Nodes[2].WithGroup("d").KV(), "k", "d")
	_, err := g.Nodes[2].WithGroup("b").KV().Get(ctx, "k")
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	if names := fmt.Sprint(numbers(t, g.Nodes[2])); names != "map[a:1 c:3 conclave:0 d:4]" {
		t.Error(names)
	}
}

// A member that is partitioned while a group is deleted, and another one of its name created, uses the new one afterwards.
func TestDeleteGroup_CreatedAgainWhilePartitioned(t *testing.T) {
	t.Parallel()
	g := start(t, 3, gt.MemoryNetwork)
	ctx := gt.Bounded(t)
	create(t, g.Nodes[0], "x")
	old := g.Nodes[2].WithGroup("x")
	for i := range 3 {
		gt.MustPut(t, g.Nodes[i].WithGroup("x").KV(), "k", "old")
	}
	g.Disconnect(2)
	by := g.LeaderWithout(2)
	gt.Must(t, g.Nodes[by].DeleteGroup(ctx, "x", conclave.Force()))
	gt.MustPut(t, create(t, g.Nodes[by], "x").KV(), "k", "new")
	g.Net.Rejoin(2)
	for {
		e, err := g.Nodes[2].WithGroup("x").KV().Get(ctx, "k")
		if err == nil && string(e.Value) == "new" {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%q, %v", e.Value, err)
		}
		gt.Pass(10 * time.Millisecond)
	}
	_, err := old.KV().Get(ctx, "k")
	gt.WantError(t, err, conclave.ErrGroupNotFound)
	g.Close(2)
}

// A call that has created a group, and ends before this process can use it, does not report that it had no effect.
func TestCreateGroup_ContextEnds(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	for i := range 40 {
		name := fmt.Sprint("g", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond/2)
		_, err := g.Nodes[i%3].CreateGroup(ctx, name, conclave.GroupConfig{})
		cancel()
		if _, exists := numbers(t, g.Nodes[0])[name]; exists && err != nil && !errors.Is(err, conclave.ErrUnknown) {
			t.Errorf("%s exists: %v", name, err)
		}
	}
}

// A node leaves while it holds a lock of a further group. No other member is granted it while the node takes it for held, however late it
// learns of its removal.
func TestLeave_HoldsInFurtherGroup(t *testing.T) {
	t.Parallel()
	g := start(t, 3, gt.MemoryNetwork, gt.LongElections)
	create(t, g.Nodes[0], "x")
	ctx := gt.Bounded(t)
	other := g.Leader()
	leaver := (other + 1) % 3
	transfer(t, g, "x", (other+2)%3) // the leaver is a follower in both, and leaders stay
	s, err := g.Nodes[leaver].WithGroup("x").NewSession(ctx, &conclave.SessionConfig{TTL: time.Minute, NoChecks: true, LockDelay: conclave.NoLockDelay})
	gt.Must(t, err)
	l := s.FencedLock("l")
	gt.MustLock(t, l)
	waiting := g.Nodes[other].WithGroup("x").FencedLock("l")
	granted := make(chan error, 1)
	go func() {
		_, err := waiting.Lock(ctx)
		if held, heldErr := l.Fence(); err == nil && heldErr == nil {
			err = fmt.Errorf("granted while the leaving node holds it with fence %v", held)
		}
		granted <- err
	}()
	gt.AwaitWaiters(t, waiting, 1)
	for _, i := range g.Others(leaver) {
		g.Net.Delay(i, leaver, 60*time.Millisecond)
	}
	n := g.Nodes[leaver]
	g.Nodes[leaver] = nil
	left := make(chan error, 1)
	go func() { left <- n.Leave(ctx) }()
	gt.Must(t, <-granted)
	gt.Must(t, <-left)
}

// Groups are deleted by one member and created again by another one at once. The handle that CreateGroup returns is to the new group, and
// DeleteGroup deletes the one that is listed then.
func TestCreateGroup_BehindDeletionElsewhere(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	var all sync.WaitGroup
	for i := range 4 {
		name := fmt.Sprint("g", i)
		create(t, g.Nodes[0], name)
		all.Go(func() {
			ctx := gt.Bounded(t)
			for round := range 8 {
				if err := g.Nodes[round%3].DeleteGroup(ctx, name, conclave.Force()); err != nil {
					t.Error("delete:", err)
				}
				h, err := g.Nodes[(round+1)%3].CreateGroup(ctx, name, conclave.GroupConfig{})
				if err != nil {
					t.Error("create:", err)
					return
				}
				if _, err := h.KV().Put(ctx, "k", nil); err != nil {
					t.Errorf("round %d of %s: %v", round, name, err)
				}
			}
		})
	}
	all.Wait()
	g.Close(1)
}

// Members create, use and delete few groups at the same time, and give up now and then. Each group is usable afterwards on each member, and
// all close.
func TestGroup_UsedWhileCreatedAndDeleted(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	var all sync.WaitGroup
	for i := range 3 {
		for w := range 3 {
			n, r := g.Nodes[i], rand.New(rand.NewPCG(uint64(i), uint64(w)))
			all.Go(func() {
				for range 25 {
					ctx, stop := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(2000))*time.Millisecond)
					switch name := fmt.Sprint("g", r.IntN(3)); r.IntN(4) {
					case 0:
						_ = n.DeleteGroup(ctx, name, conclave.Force())
					case 1:
						_, _ = n.CreateGroup(ctx, name, conclave.GroupConfig{})
					default:
						l := n.WithGroup(name).FencedLock("l")
						if _, err := l.Lock(ctx); err == nil {
							_ = l.Unlock(ctx)
						}
					}
					stop()
				}
			})
		}
	}
	all.Wait()
	for k := range 3 {
		for i := range 3 {
			wantUsable(t, g.Nodes[i], fmt.Sprint("g", k))
		}
	}
	for i := range 3 {
		g.Close(i)
	}
}

// wantUsable creates a group and writes to it. A deletion may still be under way whose caller has given up.
func wantUsable(t *testing.T, n *conclave.Node, name string) {
	t.Helper()
	for ctx := gt.Bounded(t); ; gt.Pass(time.Millisecond) {
		g, err := n.CreateGroup(ctx, name, conclave.GroupConfig{})
		if err == nil {
			_, err = g.KV().Put(ctx, "k", nil)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, conclave.ErrGroupNotFound) || ctx.Err() != nil {
			t.Fatalf("group %s: %v", name, err)
		}
	}
}
