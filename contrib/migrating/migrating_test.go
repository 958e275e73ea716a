package migrating

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

// The code before the migration needs servers, so it is compiled and not run.
var _ = []any{
	bookWithEtcd, writeWithEtcd, leadWithEtcd,
	bookWithConsul, callWithConsul, sequencerWithConsul,
	openRedsync, bookWithRedsync, tryWithRedsync,
	func(ctx context.Context, c kubernetes.Interface) { leadWithLease(ctx, c, "a", nil) },
}

func start(t *testing.T) *conclavetest.Group {
	t.Helper()
	return conclavetest.Start(t, 3, conclavetest.Configure(func(_ int, c *conclave.Config) { c.Dir = "" }))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails the test unless another owner holds the lock.
func refused(t *testing.T, node *conclave.Node, lock string) {
	t.Helper()
	if _, err := node.FencedLock(lock).TryLock(t.Context()); !errors.Is(err, conclave.ErrLocked) {
		t.Errorf("TryLock of another owner: %v, want ErrLocked", err)
	}
}

func TestEtcd(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	var fences []conclave.Fence
	for i := range 2 {
		must(t, bookAfterEtcd(ctx, group.Node(i), func(_ context.Context, f conclave.Fence) error {
			refused(t, group.Node(2), "invoices")
			fences = append(fences, f)
			return nil
		}))
	}
	if fences[0] == 0 || fences[1] <= fences[0] {
		t.Errorf("fences %v", fences)
	}
	must(t, writeAfterEtcd(ctx, group.Node(1), fences[1], "new"))
	if err := writeAfterEtcd(ctx, group.Node(0), fences[0], "late"); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("late write: %v, want ErrStaleFence", err)
	}
	must(t, leadAfterEtcd(ctx, group.Node(0), "10.0.0.7:80", func(ctx context.Context, f conclave.Fence) error {
		l, err := group.Node(1).Election("scheduler").Leader(ctx)
		if string(l.Value) != "10.0.0.7:80" || l.Fence != f {
			t.Errorf("leader %+v, %v", l, err)
		}
		return err
	}))
}

func TestConsul(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	must(t, bookAfterConsul(ctx, group.Node(0), func(lost <-chan struct{}, f conclave.Fence) error {
		refused(t, group.Node(1), "invoices")
		select {
		case <-lost:
			t.Error("lost")
		default:
		}
		return nil
	}))
	// A session that ends by force holds its locks back for the lock-delay.
	err := bookAfterConsul(ctx, group.Node(0), func(lost <-chan struct{}, _ conclave.Fence) error {
		info, err := group.Node(1).FencedLock("invoices").Info(ctx)
		must(t, err)
		must(t, group.Node(1).CloseSession(ctx, info.Session))
		<-lost
		_, err = group.Node(1).FencedLock("invoices").TryLock(ctx)
		if !errors.Is(err, conclave.ErrLockDelay) {
			t.Errorf("TryLock: %v, want ErrLockDelay", err)
		}
		return nil
	})
	if !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Errorf("Unlock after a loss: %v, want ErrLockOwnershipLost", err)
	}
	must(t, callAfterConsul(ctx, group.Node(0), func(<-chan struct{}) error {
		info, err := group.Node(1).Semaphore("backend", 3).Info(ctx)
		if info.Available != 2 {
			t.Errorf("%d permits available, want 2", info.Available)
		}
		return err
	}))

	session, err := group.Node(0).NewSession(ctx, nil)
	must(t, err)
	text, err := sequencerAfterConsul(ctx, group.Node(0), session)
	must(t, err)
	sequencer, err := conclave.ParseSequencer(text)
	must(t, err)
	must(t, group.Node(1).CheckSequencer(ctx, sequencer))
	must(t, session.Close(ctx))
	if err := group.Node(1).CheckSequencer(ctx, sequencer); !errors.Is(err, conclave.ErrStaleSequencer) {
		t.Errorf("sequencer of a closed session: %v", err)
	}
}

func TestCurator(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	lock := group.Node(0).FencedLock("invoices", conclave.Reentrant(0))
	must(t, bookAfterCurator(ctx, lock, func(outer conclave.Fence) error {
		refused(t, group.Node(1), "invoices")
		return bookAfterCurator(ctx, lock, func(inner conclave.Fence) error {
			if inner != outer || lock.Holds() != 2 {
				t.Errorf("fences %v and %v, %d holds", outer, inner, lock.Holds())
			}
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return bookAfterCurator(short, group.Node(1).FencedLock("invoices"), func(conclave.Fence) error {
				t.Error("two owners")
				return nil
			})
		})
	}))
	if id, err := leaderAfterCurator(ctx, group.Node(1)); id != "" || err != nil {
		t.Errorf("leader %q, %v", id, err)
	}
	must(t, leadAfterCurator(ctx, group.Node(0), "a", func(ctx context.Context, _ conclave.Fence) error {
		id, err := leaderAfterCurator(ctx, group.Node(1))
		if id != "a" {
			t.Errorf("leader %q, %v", id, err)
		}
		return err
	}))
	must(t, callAfterCurator(ctx, group.Node(0), func(context.Context, conclave.Fence) error {
		if _, err := group.Node(1).Semaphore("backend", 3).TryAcquire(ctx, 2); !errors.Is(err, conclave.ErrLocked) {
			t.Errorf("four of three permits: %v", err)
		}
		return nil
	}))
}

func TestRedisson(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	must(t, bookAfterRedisson(ctx, group.Node(0).FencedLock("invoices"), func(work context.Context, f conclave.Fence) error {
		if _, bounded := work.Deadline(); !bounded || f == 0 {
			t.Errorf("fence %v, deadline %v", f, bounded)
		}
		refused(t, group.Node(1), "invoices")
		return nil
	}))
	done, err := callAfterRedisson(ctx, group.Node(0), func() error { return nil })
	if !done || err != nil {
		t.Errorf("called: %v, %v", done, err)
	}
	permit, err := group.Node(1).Semaphore("backend", 3).Acquire(ctx, 3)
	must(t, err)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if done, err := callAfterRedisson(short, group.Node(0), nil); done || err != nil {
		t.Errorf("called without a permit: %v, %v", done, err)
	}
	must(t, permit.Release(ctx))
}

func TestRedsync(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	client, err := openAfterRedsync(ctx, group.Node(0).Addr(), group.Node(1).Addr(), group.Node(2).Addr())
	must(t, err)
	defer client.Close(context.Background())
	must(t, bookAfterRedsync(ctx, client, func(ctx context.Context, _ conclave.Fence) error {
		if _, ok := conclave.FenceFromContext(ctx); !ok {
			t.Error("no fence in the context")
		}
		taken, err := tryAfterRedsync(ctx, group.Node(1).FencedLock("invoices"))
		if taken {
			t.Error("two owners")
		}
		return err
	}))
	lock := client.FencedLock("invoices")
	if taken, err := tryAfterRedsync(ctx, lock); !taken || err != nil {
		t.Errorf("free lock: %v, %v", taken, err)
	}
	must(t, lock.Unlock(ctx))
}

func TestHazelcast(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	must(t, bookAfterHazelcast(ctx, group.Node(0), func(conclave.Fence) error {
		refused(t, group.Node(1), "invoices")
		return nil
	}))
	err := bookAfterHazelcast(ctx, group.Node(0), func(conclave.Fence) error {
		info, err := group.Node(1).FencedLock("invoices").Info(ctx)
		must(t, err)
		return group.Node(1).CloseSession(ctx, info.Session)
	})
	if !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Errorf("after a loss: %v, want ErrLockOwnershipLost", err)
	}
	called := false
	must(t, callAfterHazelcast(ctx, group.Node(1), func() error { called = true; return nil }))
	permit, err := group.Node(2).Semaphore("backend", 3).Acquire(ctx, 3)
	must(t, err)
	must(t, callAfterHazelcast(ctx, group.Node(1), func() error { return errors.New("without a permit") }))
	must(t, permit.Release(ctx))
	if !called {
		t.Error("not called")
	}
}

func TestKubernetes(t *testing.T) {
	group := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	led := false
	leadWithAdapter(ctx, group.Node(0), "a", func(context.Context) { led = true; cancel() })
	if !led {
		t.Error("the adapter has not led")
	}

	var seen []string
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	must(t, leadAfterLease(t.Context(), group.Node(0), "b", func(context.Context, conclave.Fence) error {
		err := observeAfterLease(ctx, group.Node(1), func(id string) {
			if seen = append(seen, id); id == "b" {
				stop()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Observe: %v", err)
		}
		return nil
	}))
	if len(seen) == 0 || seen[len(seen)-1] != "b" {
		t.Errorf("seen %q", seen)
	}
}

// Processes with the old lock, with both and with the new one exclude each other, as long as the first
// and the last do not run at the same time.
func TestBoth(t *testing.T) {
	group := start(t)
	ctx := t.Context()
	var old sync.Mutex
	underOld := func(ctx context.Context, work func(context.Context) error) error {
		old.Lock()
		defer old.Unlock()
		return work(ctx)
	}
	underNew := func(node *conclave.Node) func(func(context.Context) error) error {
		return func(work func(context.Context) error) error {
			return node.FencedLock("invoices").Do(ctx, func(ctx context.Context, _ conclave.Fence) error { return work(ctx) })
		}
	}
	both := func(node *conclave.Node) func(func(context.Context) error) error {
		return func(work func(context.Context) error) error {
			return bookUnderBoth(ctx, underOld, node.FencedLock("invoices"), func(ctx context.Context, _ conclave.Fence) error { return work(ctx) })
		}
	}
	exclusive(t, func(work func(context.Context) error) error { return underOld(ctx, work) }, both(group.Node(0)), both(group.Node(1)))
	exclusive(t, both(group.Node(0)), both(group.Node(1)), underNew(group.Node(2)))
}

// exclusive runs work under each of the locks at the same time, repeatedly.
func exclusive(t *testing.T, locks ...func(work func(context.Context) error) error) {
	t.Helper()
	var inside sync.Mutex
	var all sync.WaitGroup
	for _, lock := range locks {
		all.Go(func() {
			for range 20 {
				err := lock(func(ctx context.Context) error {
					if !inside.TryLock() {
						return errors.New("two owners")
					}
					defer inside.Unlock()
					return ctx.Err()
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
