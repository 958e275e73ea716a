package groups

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// Each kind of call to a group that does not exist returns ErrGroupNotFound, without waiting for its context.
func TestGroup_NotFoundByEachCall(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	ctx := gt.Bounded(t)
	c := gt.Dial(t, &conclave.ClientConfig{}, g.Nodes[0])
	t.Run("node", func(t *testing.T) {
		wantNotFound(t, ctx, g.Nodes[0].WithGroup("none"), func() error { return g.Nodes[0].DeleteGroup(ctx, "none") })
	})
	t.Run("member", func(t *testing.T) { // what a client cannot do
		none := g.Nodes[0].WithGroup("none")
		_, err := none.CreateSession(ctx, nil)
		gt.WantError(t, err, conclave.ErrGroupNotFound)
		_, err = none.RegisterCheck(ctx, "c", 0)
		gt.WantError(t, err, conclave.ErrGroupNotFound)
		_, err = none.RegisterClientCheck(ctx, "c", 0)
		gt.WantError(t, err, conclave.ErrGroupNotFound)
		_, err = none.AwaitChange(ctx, 0)
		gt.WantError(t, err, conclave.ErrGroupNotFound)
	})
	t.Run("client", func(t *testing.T) {
		wantNotFound(t, ctx, c.WithGroup("none"), func() error { return c.DeleteGroup(ctx, "none") })
	})
}

// wantNotFound makes each kind of call on a group that does not exist.
func wantNotFound(t *testing.T, ctx context.Context, none *conclave.Group, remove func() error) {
	t.Helper()
	for name, call := range map[string]func() error{
		"session":             func() error { _, err := none.NewSession(ctx, nil); return err },
		"session without TTL": func() error { _, err := none.NewSession(ctx, gt.Lasting()); return err },
		"attach":              func() error { _, err := none.AttachSession(ctx, conclave.SessionID{1}); return err },
		"renew":               func() error { return none.RenewSession(ctx, conclave.SessionID{1}) },
		"close session":       func() error { return none.CloseSession(ctx, conclave.SessionID{1}) },
		"lock":                func() error { _, err := none.FencedLock("x").Lock(ctx); return err },
		"share":               func() error { _, err := none.RWLock("x").RLock(ctx); return err },
		"set":                 func() error { _, err := none.LockSet([]string{"x", "y"}).Lock(ctx); return err },
		"permits":             func() error { _, err := none.Semaphore("x", 1).Acquire(ctx, 1); return err },
		"resize":              func() error { return none.Semaphore("x", 1).Resize(ctx, 2) },
		"election":            func() error { _, err := none.Election("x").Campaign(ctx, nil); return err },
		"leader":              func() error { _, err := none.Election("x").Leader(ctx); return err },
		"put":                 func() error { _, err := none.KV().Put(ctx, "k", nil); return err },
		"get":                 func() error { _, err := none.KV().Get(ctx, "k"); return err },
		"stale get":           func() error { _, err := none.KV().Get(ctx, "k", conclave.Stale()); return err },
		"transfer":            func() error { return none.TransferLeadership(ctx, 0) },
		"locks":               func() error { _, err := gt.Collect(none.Locks(ctx, "")); return err },
		"explain":             func() error { _, err := none.Explain(ctx, "x"); return err },
		"config":              func() error { _, err := none.GroupConfig(ctx); return err },
		"delete":              remove,
		"watch": func() error {
			for _, err := range none.KV().Watch(ctx, "", 0) {
				return err
			}
			return nil
		},
		"observe": func() error {
			for _, err := range none.Election("x").Observe(ctx) {
				return err
			}
			return nil
		},
		"job": func() error {
			return none.Job("x").Once(ctx, "k", nil)
		},
	} {
		began := time.Now()
		gt.WantError(t, call(), conclave.ErrGroupNotFound)
		if t.Failed() || time.Since(began) > 30*time.Second {
			t.Fatalf("%s: after %v", name, time.Since(began))
		}
	}
}

// That the group is deleted is no refusal of an operation of a Txn under way.
func TestDeleteGroup_DuringTxn(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	ctx := gt.Bounded(t)
	create(t, g.Nodes[0], "tenant")
	kv := g.Nodes[0].WithGroup("tenant").KV()
	var begun, all sync.WaitGroup
	for range 16 {
		begun.Add(1)
		all.Go(func() {
			_, err := kv.Txn(ctx, conclave.OpPut("a", nil), conclave.OpPut("b", nil))
			for begun.Done(); err == nil; {
				_, err = kv.Txn(ctx, conclave.OpPut("a", nil), conclave.OpPut("b", nil))
			}
			var refused *conclave.TxnError
			if errors.As(err, &refused) {
				t.Errorf("%v: of operation %d", err, refused.Operation)
			}
			gt.WantError(t, err, conclave.ErrGroupNotFound)
		})
	}
	begun.Wait()
	gt.Must(t, g.Nodes[0].DeleteGroup(ctx, "tenant", conclave.Force()))
	all.Wait()
}
