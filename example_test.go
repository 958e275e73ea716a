package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// The example files hold every snippet of README.md and docs/GUIDE.md, so the
// snippets compile and their output is checked.

func Example() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil) // nil: a group of one, in memory
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(context.Background())

	lock := node.FencedLock("invoices")
	fence, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("holding invoices with fence", fence)
	if err := lock.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: holding invoices with fence 1
}

// One of three processes. The other two differ in Dir and Bind.
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
	defer node.Close(context.Background())
}

func ExampleFencedLock_TryLock() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	mine, yours := node.FencedLock("invoices"), node.FencedLock("invoices")
	if _, err := mine.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := yours.TryLock(ctx)
	if errors.Is(err, conclave.ErrLocked) {
		fmt.Println("held by another owner")
	}
	// Output: held by another owner
}

func ExampleReentrant() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	lock := node.FencedLock("invoices", conclave.Reentrant(2))
	first, _ := lock.Lock(ctx)
	second, _ := lock.Lock(ctx) // the same hold, so the same fence
	_, err := lock.Lock(ctx)
	fmt.Println(first == second, lock.Holds(), errors.Is(err, conclave.ErrAcquireLimitReached))
	// Output: true 2 true
}

func ExampleLinger() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	lock := node.FencedLock("shard-7", conclave.Linger(time.Second))
	first, _ := lock.Lock(ctx)
	fmt.Println(lock.Unlock(ctx)) // the node keeps the lock
	second, _ := lock.Lock(ctx)   // without the group, if the second has not passed
	fmt.Println(second > first)
	// Output:
	// <nil>
	// true
}

func ExampleFencedLock_Do() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	lock := node.FencedLock("invoices")
	err := lock.Do(ctx, func(ctx context.Context, fence conclave.Fence) error {
		return send(ctx, fence) // ctx is cancelled when the lock is lost
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleFencedLock_Lost() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	lock := node.FencedLock("invoices")
	if _, err := lock.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	select {
	case <-lost(node, lock):
		_, err := lock.Lock(ctx) // refused until Unlock is called
		fmt.Println(errors.Is(err, conclave.ErrLockOwnershipLost))
		err = lock.Unlock(ctx) // reports the loss once; the handle is usable again
		fmt.Println(errors.Is(err, conclave.ErrLockOwnershipLost))
	case <-ctx.Done():
	}
	// Output:
	// true
	// true
}

// lost closes the holder's session by force, as an operator would.
func lost(node *conclave.Node, lock *conclave.FencedLock) <-chan struct{} {
	ctx := context.Background()
	done := lock.Lost()
	info, err := lock.Info(ctx)
	if err == nil {
		err = node.CloseSession(ctx, info.Session)
	}
	if err != nil {
		log.Fatal(err)
	}
	return done
}

// ledger is a resource protected by a lock.
type ledger struct {
	mu     sync.Mutex
	guard  conclave.Guard
	amount map[string]int
}

func (l *ledger) Book(account string, amount int, f conclave.Fence) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.guard.Check("invoices", f); err != nil {
		return err // ErrStaleFence: a later holder has written
	}
	l.amount[account] += amount
	return nil
}

func ExampleGuard() {
	l := &ledger{amount: make(map[string]int)}
	fmt.Println(l.Book("rent", 100, 7))
	fmt.Println(l.Book("rent", 100, 8)) // the next holder
	err := l.Book("rent", 100, 7)       // the previous holder, late
	fmt.Println(errors.Is(err, conclave.ErrStaleFence), l.amount["rent"])
	// Output:
	// <nil>
	// <nil>
	// true 200
}

func ExampleContextWithFence() {
	fence, err := conclave.ParseFence("7") // in a server: from the request
	if err != nil {
		log.Fatal(err)
	}
	ctx := conclave.ContextWithFence(context.Background(), fence)
	fmt.Println(conclave.FenceFromContext(ctx))
	// Output: 7 true
}

func ExampleFencedLock_Locker() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	var l sync.Locker = node.FencedLock("invoices").Locker(ctx)
	l.Lock() // panics with an *Error where a sync.Mutex could not fail
	defer l.Unlock()
	// Output:
}

func ExampleNode_CloseSession() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	if _, err := node.FencedLock("invoices/7").Lock(ctx); err != nil {
		log.Fatal(err)
	}

	for l, err := range node.Locks(ctx, "invoices/") { // in the whole group
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Name, "held:", l.Held, "waiters:", l.Waiters)
		if !l.Held {
			continue // in lock-delay
		}
		err := node.CloseSession(ctx, l.Session) // by force
		if err != nil && !errors.Is(err, conclave.ErrSessionNotFound) {
			log.Fatal(err)
		}
	}
	sessions := 0
	for _, err := range node.Sessions(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		sessions++
	}
	fmt.Println(sessions)
	// Output:
	// invoices/7 held: true waiters: 0
	// 0
}

// packageComment is the program of the package comment.
func packageComment(ctx context.Context) error {
	node, err := conclave.Open(ctx, &conclave.Config{
		Dir:    "/var/lib/app/conclave",
		Bind:   "127.0.0.1:7001",
		Join:   []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"},
		Expect: 3,
	})
	if err != nil {
		return err
	}
	defer node.Close(context.Background())

	lock := node.FencedLock("invoices")
	fence, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return send(ctx, fence)
}

var _ = packageComment

func openOne(ctx context.Context) *conclave.Node { return openIn(ctx, "") }

func openIn(ctx context.Context, dir string) *conclave.Node {
	node, err := conclave.Open(ctx, &conclave.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	return node
}

func send(context.Context, conclave.Fence) error { return nil }
