package conclaveleader_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclaveleader"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func candidate(group conclave.Access, identity string) *conclaveleader.Lock {
	return conclaveleader.New(group, "controller", resourcelock.ResourceLockConfig{Identity: identity})
}

func record(identity string, transitions int) resourcelock.LeaderElectionRecord {
	now := meta.Time{Time: time.Now().Round(time.Microsecond)}
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: identity, LeaseDurationSeconds: 60, AcquireTime: now, RenewTime: now, LeaderTransitions: transitions,
	}
}

func TestLock_ComparesAndSwaps(t *testing.T) {
	group := conclavetest.Start(t, 3)
	ctx := t.Context()
	a, b := candidate(group.Node(0), "a"), candidate(group.Node(1), "b")
	if _, _, err := a.Get(ctx); !api.IsNotFound(err) || !errors.Is(err, conclave.ErrKeyNotFound) {
		t.Errorf("Get without a record: %v, want NotFound", err)
	}
	if err := a.Update(ctx, record("a", 0)); err == nil {
		t.Error("Update without a record succeeded")
	}
	created := record("a", 0)
	created.Strategy, created.PreferredHolder = coordination.OldestEmulationVersion, "b"
	must(t, a.Create(ctx, created))
	if err := b.Create(ctx, record("b", 0)); !api.IsAlreadyExists(err) {
		t.Errorf("Create with a record: %v, want AlreadyExists", err)
	}
	read, first, err := b.Get(ctx)
	must(t, err)
	if !read.RenewTime.Equal(&created.RenewTime) || !read.AcquireTime.Equal(&created.AcquireTime) {
		t.Errorf("read %+v, want the times of %+v", read, created)
	}
	read.RenewTime, read.AcquireTime = created.RenewTime, created.AcquireTime
	if *read != created {
		t.Errorf("read %+v, want %+v", read, created)
	}

	must(t, a.Update(ctx, record("a", 0)))
	must(t, a.Update(ctx, record("a", 0))) // without Get
	if err := b.Update(ctx, record("b", 1)); !api.IsConflict(err) {
		t.Errorf("Update of a replaced record: %v, want Conflict", err)
	}
	_, second, err := b.Get(ctx)
	must(t, err)
	if string(first) == string(second) {
		t.Error("a renewal within the same second does not show")
	}
	must(t, b.Update(ctx, record("b", 1)))
	if err := a.Update(ctx, record("a", 0)); !api.IsConflict(err) {
		t.Errorf("Update by the former leader: %v, want Conflict", err)
	}
}

func TestLock_MalformedRecord(t *testing.T) {
	group := conclavetest.Start(t, 1)
	_, err := group.Node(0).KV().Put(t.Context(), "leaderelection/controller", []byte("no JSON"))
	must(t, err)
	if _, _, err := candidate(group.Node(0), "a").Get(t.Context()); err == nil || api.IsNotFound(err) {
		t.Errorf("Get: %v", err)
	}
}

func TestLock_CancelledContext(t *testing.T) {
	group := conclavetest.Start(t, 1)
	a := candidate(group.Node(0), "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Create(ctx, record("a", 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("Create: %v, want Canceled", err)
	}
	if _, _, err := a.Get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v, want Canceled", err)
	}
}

func fenceOf(t *testing.T, l *conclaveleader.Lock) conclave.Fence {
	t.Helper()
	f, err := l.Fence()
	must(t, err)
	return f
}

func TestFence_GrowsWithEachLeader(t *testing.T) {
	group := conclavetest.Start(t, 3)
	ctx := t.Context()
	a, b := candidate(group.Node(0), "a"), candidate(group.Node(1), "b")
	refused := func(l *conclaveleader.Lock, want error) {
		t.Helper()
		if f, err := l.Fence(); !errors.Is(err, want) {
			t.Errorf("Fence of %s: %v, %v, want %v", l.Identity(), f, err, want)
		}
	}
	refused(a, conclave.ErrNotHeld)
	must(t, a.Create(ctx, record("a", 0)))
	first := fenceOf(t, a)
	must(t, a.Update(ctx, record("a", 0)))
	if f := fenceOf(t, a); f != first {
		t.Errorf("fence %v after a renewal, want %v", f, first)
	}
	_, _, err := b.Get(ctx)
	must(t, err)
	refused(b, conclave.ErrNotHeld)
	must(t, b.Update(ctx, record("b", 1)))
	second := fenceOf(t, b)
	if second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
	_, _, err = a.Get(ctx)
	must(t, err)
	refused(a, conclave.ErrNotHeld)

	must(t, b.Update(ctx, record("", 1))) // releases
	refused(b, conclave.ErrNotHeld)
	_, _, err = b.Get(ctx)
	must(t, err)
	must(t, b.Update(ctx, record("b", 2)))
	if f := fenceOf(t, b); f <= second {
		t.Errorf("fence %v of another term after %v", f, second)
	}
}

func TestFence_LeaseExpired(t *testing.T) {
	t.Parallel() // it waits for two leases
	group := conclavetest.Start(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a := candidate(group.Node(0), "a")
	short := record("a", 0)
	short.LeaseDurationSeconds = 15
	must(t, a.Create(ctx, short))
	group.Partition([]int{0})
	if err := a.Update(ctx, short); !errors.Is(err, context.DeadlineExceeded) { // at the end of the lease
		t.Errorf("Update without a quorum: %v, want DeadlineExceeded", err)
	}
	if f, err := a.Fence(); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Errorf("Fence: %v, %v, want ErrLockOwnershipLost", f, err)
	}
	if _, _, err := a.Get(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Errorf("Get: %v, want ErrLockOwnershipLost", err)
	}
	group.Heal()
	for { // the refusals end after another lease
		_, _, err := a.Get(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, conclave.ErrLockOwnershipLost) {
			t.Fatal(err)
		}
		// Each turn takes an event of the group, so that the loop does not spin.
		must(t, group.Node(1).FencedLock("turn").Do(ctx, func(context.Context, conclave.Fence) error { return nil }))
	}
	if f, err := a.Fence(); !errors.Is(err, conclave.ErrNotHeld) {
		t.Errorf("Fence: %v, %v, want ErrNotHeld", f, err)
	}
}

// Another Lock writes the same bytes, as a write whose reply was lost would have.
func TestFence_RenewalWithUnknownOutcome(t *testing.T) {
	group := conclavetest.Start(t, 1)
	ctx := t.Context()
	a, network := candidate(group.Node(0), "a"), candidate(group.Node(0), "a")
	must(t, a.Create(ctx, record("a", 0)))
	first := fenceOf(t, a)
	_, _, err := network.Get(ctx)
	must(t, err)

	done, cancel := context.WithCancel(ctx)
	cancel()
	renewal := record("a", 0)
	if err := a.Update(done, renewal); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	must(t, network.Update(ctx, renewal))
	_, _, err = a.Get(ctx)
	must(t, err)
	if f := fenceOf(t, a); f != first {
		t.Errorf("fence %v, want %v", f, first)
	}
	must(t, a.Update(ctx, record("a", 0)))
	if f := fenceOf(t, a); f != first {
		t.Errorf("fence %v, want %v", f, first)
	}
}

type recorder struct{ events []string }

func (r *recorder) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	lease := obj.(*coordination.Lease)
	r.events = append(r.events, fmt.Sprint(lease.Kind, " ", lease.Name, " ", kind, " ", reason, ": ", fmt.Sprintf(format, args...)))
}

func TestLock_RecordsEvents(t *testing.T) {
	group := conclavetest.Start(t, 1)
	candidate(group.Node(0), "a").RecordEvent("to no recorder")
	var r recorder
	l := conclaveleader.New(group.Node(0), "controller", resourcelock.ResourceLockConfig{Identity: "a", EventRecorder: &r})
	l.RecordEvent("became leader")
	if want := "Lease controller Normal LeaderElection: a became leader"; len(r.events) != 1 || r.events[0] != want {
		t.Errorf("events %q, want %q", r.events, want)
	}
	if l.Describe() != "conclave:leaderelection/controller" {
		t.Errorf("Describe: %q", l.Describe())
	}
}
