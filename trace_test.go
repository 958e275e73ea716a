package conclave_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// noun is something that one node holds and others wait for.
type noun struct {
	name             string
	acquire, release conclave.CallKind
	hold             func(context.Context, *conclave.Node) (release func(context.Context) error, err error)
}

func nouns() []noun {
	return []noun{
		{"lock", conclave.CallLock, conclave.CallUnlock, func(ctx context.Context, n *conclave.Node) (func(context.Context) error, error) {
			l := n.FencedLock("x")
			_, err := l.Lock(ctx)
			return l.Unlock, err
		}},
		{"lingering lock", conclave.CallLock, conclave.CallUnlock, func(ctx context.Context, n *conclave.Node) (func(context.Context) error, error) {
			l := n.FencedLock("y", conclave.Linger(time.Minute))
			_, err := l.Lock(ctx)
			return l.Unlock, err
		}},
		{"election", conclave.CallCampaign, conclave.CallResign, func(ctx context.Context, n *conclave.Node) (func(context.Context) error, error) {
			e := n.Election("x")
			_, err := e.Campaign(ctx, []byte("value"))
			return e.Resign, err
		}},
		{"semaphore", conclave.CallAcquire, conclave.CallRelease, func(ctx context.Context, n *conclave.Node) (func(context.Context) error, error) {
			p, err := n.Semaphore("x", 2).Acquire(ctx, 2)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}},
		{"job", conclave.CallStartRun, conclave.CallEndRun, holdRun},
	}
}

// holdRun has a run under way, in a goroutine of its own, until it is released. The run fails then, so its key can run again.
func holdRun(ctx context.Context, n *conclave.Node) (release func(context.Context) error, err error) {
	began, finish, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done) // also when the tracer ends the goroutine
		done <- n.Job("x").Once(ctx, "key", func(context.Context, conclave.Fence) error {
			close(began)
			<-finish
			return errBackup
		})
	}()
	select {
	case <-began:
	case err, returned := <-done:
		if !returned {
			runtime.Goexit()
		}
		return nil, err
	}
	return func(context.Context) error {
		close(finish)
		if err := <-done; err != errBackup { //nolint:errorlint // as it is
			return err
		}
		return nil
	}, nil
}

// A waiter's span has its place, while it waits, and then its grant, with the identity of the
// release on another node that caused it.
func TestTracer_GrantNamesReleaseOnAnotherNode(t *testing.T) {
	g, recorders := startTraced(t, 3)
	for _, of := range nouns() {
		t.Run(of.name, func(t *testing.T) {
			ctx := grouptest.Bounded(t)
			release, err := of.hold(ctx, g.Nodes[0])
			grouptest.Must(t, err)
			holding := recorders[0].last(t)
			if holding.op.Kind != of.acquire || len(holding.events) != 1 || holding.events[0].Kind != conclave.SpanGranted || holding.events[0].Cause != nil {
				t.Errorf("granted at once: %+v", holding)
			}
			done := make(chan error)
			go func() {
				release, err := of.hold(ctx, g.Nodes[1])
				if err == nil {
					defer func() { done <- release(ctx) }()
				} else {
					done <- err
				}
			}()
			place := <-recorders[1].queued
			want := conclave.SpanEvent{
				Kind: conclave.SpanQueued, Position: 1, Fence: holding.events[0].Fence,
				Node: g.ID(0), Session: grouptest.OwnSession(t, g.Nodes[0]),
			}
			if !reflect.DeepEqual(place, want) {
				t.Errorf("queued: %+v, want %+v", place, want)
			}
			waiting := recorders[1].last(t)
			grouptest.Must(t, release(ctx))
			releasing := recorders[0].last(t)
			grouptest.Must(t, <-done)
			waited := recorders[1].of(waiting.carrier)
			if releasing.op.Kind != of.release || releasing.op.Fence != want.Fence || len(waited.events) != 2 {
				t.Fatalf("released by %+v, waited %+v", releasing, waited)
			}
			if e := waited.events[1]; e.Kind != conclave.SpanGranted || e.Fence <= want.Fence || string(e.Cause) != releasing.carrier {
				t.Errorf("granted: %+v, after %+v", e, releasing)
			}
			if waited.ends != 1 || waited.err != nil || releasing.ends != 1 || releasing.err != nil || waited.op.Node != g.ID(1) {
				t.Errorf("released by %+v, waited %+v", releasing, waited)
			}
		})
	}
}

// Each call has one span, which states the call, and ends with the error that it returns.
func TestTracer_Calls(t *testing.T) {
	g, recorders := startTraced(t, 1)
	n, ctx := g.Nodes[0], t.Context()
	l, kv := n.FencedLock("x"), n.KV()
	var permit *conclave.Permit
	for _, row := range []struct {
		call func() error
		want conclave.Operation
		err  error
	}{
		{func() error { _, err := l.Lock(ctx); return err }, conclave.Operation{Kind: conclave.CallLock, Op: "lock", Name: "x"}, nil},
		{func() error { _, err := n.FencedLock("x").TryLock(ctx); return err },
			conclave.Operation{Kind: conclave.CallTryLock, Op: "try lock", Name: "x"}, conclave.ErrLocked},
		{func() error { return l.Unlock(ctx) }, conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Name: "x", Fence: 1}, nil},
		{func() error { return l.Unlock(ctx) }, conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Name: "x"}, conclave.ErrNotHeld},
		{func() error { _, err := n.FencedLock("").Lock(ctx); return err }, conclave.Operation{Kind: conclave.CallLock, Op: "lock"}, conclave.ErrInvalid},
		{func() (err error) { permit, err = n.Semaphore("s", 3).TryAcquire(ctx, 2); return err },
			conclave.Operation{Kind: conclave.CallTryAcquire, Op: "try acquire", Name: "s", Permits: 2}, nil},
		{func() error { return permit.Release(ctx) }, conclave.Operation{Kind: conclave.CallRelease, Op: "release", Name: "s", Fence: 2}, nil},
		{func() error { return permit.Release(ctx) }, conclave.Operation{Kind: conclave.CallRelease, Op: "release", Name: "s", Fence: 2}, conclave.ErrNotHeld},
		{func() error { _, err := kv.Put(ctx, "k", nil); return err }, conclave.Operation{Kind: conclave.CallWrite, Op: "put", Name: "k", Ops: 1}, nil},
		{func() error { _, err := kv.Txn(ctx, conclave.OpPut("k", nil), conclave.OpExpect("k", 0)); return err },
			conclave.Operation{Kind: conclave.CallWrite, Op: "txn", Ops: 2}, conclave.ErrCompareFailed},
		{func() error { return l.Do(ctx, func(context.Context, conclave.Fence) error { return nil }) },
			conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Name: "x", Fence: 3}, nil},
		{func() error {
			return n.Election("e").Run(ctx, nil, func(context.Context, conclave.Fence) error { return nil })
		}, conclave.Operation{Kind: conclave.CallResign, Op: "resign", Name: "e", Fence: 4}, nil},
		{func() error { _, err := n.Election("e").Campaign(grouptest.Expired(), nil); return err },
			conclave.Operation{Kind: conclave.CallCampaign, Op: "campaign", Name: "e"}, context.Canceled},
	} {
		row.want.Node = n.Status().ID
		err := row.call()
		s := recorders[0].last(t)
		if s.op != row.want || s.ends != 1 || !errors.Is(err, row.err) || !errors.Is(s.err, row.err) {
			t.Errorf("%s returned %v, and its span is %+v; want %+v, %v", row.want.Op, err, s, row.want, row.err)
		}
		var e *conclave.Error
		if s.err != nil && (!errors.As(s.err, &e) || e.Op != row.want.Op) {
			t.Errorf("%s: the span ends with %v", row.want.Op, s.err)
		}
	}
	if made := len(recorders[0].spans); made != 15 { // Do and Run make two calls each
		t.Errorf("%d spans", made)
	}
}

// A call that finds its hold lost has an event for that, with the fence that is worth nothing now.
func TestTracer_Lost(t *testing.T) {
	g, recorders := startTraced(t, 1)
	l := g.Nodes[0].FencedLock("x")
	fence := grouptest.MustLock(t, l)
	lost := l.Lost()
	grouptest.Must(t, g.Nodes[0].CloseSession(t.Context(), grouptest.OwnSession(t, g.Nodes[0])))
	<-lost
	for _, call := range []func() error{
		func() error { _, err := l.Lock(t.Context()); return err },
		func() error { return l.Unlock(t.Context()) },
	} {
		grouptest.WantError(t, call(), conclave.ErrLockOwnershipLost)
		s := recorders[0].last(t)
		if want := []conclave.SpanEvent{{Kind: conclave.SpanLost, Fence: fence}}; !reflect.DeepEqual(s.events, want) || !errors.Is(s.err, conclave.ErrLockOwnershipLost) {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}
