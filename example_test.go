package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

// What README.md shows stands here and in the other example files, so that it
// compiles and keeps its word.

func Example() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil) // nil: a group of one, in memory
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)

	lock := node.FencedLock("invoices")
	fence, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("holding invoices under fence", fence)
	if err := lock.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: holding invoices under fence 1
}

// One of three processes; the other two differ in Dir and Bind.
func ExampleOpen() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, &conclave.Config{
		Dir:    "/var/lib/app/conclave",
		Bind:   "127.0.0.1:7001",
		Join:   []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"},
		Expect: 3,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)
}

func ExampleFencedLock_TryLock() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	mine, yours := node.FencedLock("invoices"), node.FencedLock("invoices")
	if _, err := mine.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := yours.TryLock(ctx)
	if errors.Is(err, conclave.ErrLocked) {
		fmt.Println("somebody else has it")
	}
	// Output: somebody else has it
}

func ExampleReentrant() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	lock := node.FencedLock("invoices", conclave.Reentrant(2))
	first, _ := lock.Lock(ctx)
	second, _ := lock.Lock(ctx) // the same hold, so the same fence
	_, err := lock.Lock(ctx)
	fmt.Println(first == second, lock.Holds(), errors.Is(err, conclave.ErrAcquireLimitReached))
	// Output: true 2 true
}

func ExampleFencedLock_Do() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	lock := node.FencedLock("invoices")
	err := lock.Do(ctx, func(ctx context.Context) error {
		fence, err := lock.Fence()
		if err != nil {
			return err // lost already
		}
		return send(ctx, fence) // ctx ends when the lock is lost
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleFencedLock_Lost() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	lock := node.FencedLock("invoices")
	if _, err := lock.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	select {
	case <-lost(node, lock):
		_, err := lock.Lock(ctx) // refused until the Unlock that is owed
		fmt.Println(errors.Is(err, conclave.ErrLockOwnershipLost))
		err = lock.Unlock(ctx) // says so once more; now the handle is as good as new
		fmt.Println(errors.Is(err, conclave.ErrLockOwnershipLost))
	case <-ctx.Done():
	}
	// Output:
	// true
	// true
}

// lost ends the holder's session by force, as an operator would.
func lost(node *conclave.Node, lock *conclave.FencedLock) <-chan struct{} {
	ctx := context.Background()
	gone := lock.Lost()
	info, err := lock.Info(ctx)
	if err == nil {
		err = node.CloseSession(ctx, info.Session)
	}
	if err != nil {
		log.Fatal(err)
	}
	return gone
}

// ledger is a resource that a lock protects.
type ledger struct {
	mu     sync.Mutex
	guard  conclave.Guard
	amount map[string]int
}

func (l *ledger) Book(account string, amount int, f conclave.Fence) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.guard.Check("invoices", f); err != nil {
		return err // ErrStaleFence: a newer holder was here
	}
	l.amount[account] += amount
	return nil
}

func ExampleGuard() {
	l := &ledger{amount: make(map[string]int)}
	fmt.Println(l.Book("rent", 100, 7))
	fmt.Println(l.Book("rent", 100, 8)) // the next holder
	err := l.Book("rent", 100, 7)       // the former one, late
	fmt.Println(errors.Is(err, conclave.ErrStaleFence), l.amount["rent"])
	// Output:
	// <nil>
	// <nil>
	// true 200
}

func ExampleFencedLock_Locker() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	var l sync.Locker = node.FencedLock("invoices").Locker(ctx)
	l.Lock() // panics with an *Error where a sync.Mutex could not fail
	defer l.Unlock()
	// Output:
}

func ExampleNode_CloseSession() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)
	if _, err := node.FencedLock("invoices/7").Lock(ctx); err != nil {
		log.Fatal(err)
	}

	locks, err := node.Locks(ctx, "invoices/") // of the whole group
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range locks {
		fmt.Println(l.Name, "held:", l.Held, "waiters:", l.Waiters)
		if !l.Held {
			continue // in the lock-delay of its last holder
		}
		err := node.CloseSession(ctx, l.Session) // by force
		if err != nil && !errors.Is(err, conclave.ErrSessionNotFound) {
			log.Fatal(err)
		}
	}
	sessions, err := node.Sessions(ctx)
	fmt.Println(len(sessions), err)
	// Output:
	// invoices/7 held: true waiters: 0
	// 0 <nil>
}

func TestHolderDies(t *testing.T) {
	group := conclavetest.Start(t, 3)
	old, err := group.Node(0).FencedLock("invoices").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	group.Kill(0)

	fence, err := group.Node(1).FencedLock("invoices").Lock(t.Context())
	if err != nil || fence <= old {
		t.Errorf("granted %v after %v: %v", fence, old, err)
	}
}

func openOne(ctx context.Context) *conclave.Node { return openIn(ctx, "") }

func openIn(ctx context.Context, dir string) *conclave.Node {
	node, err := conclave.Open(ctx, &conclave.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	return node
}

func send(context.Context, conclave.Fence) error { return nil }
