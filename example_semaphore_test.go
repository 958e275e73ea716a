package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleSemaphore() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	slots := node.Semaphore("backend", 3) // every user must pass 3
	permit, err := slots.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	_, err = slots.TryAcquire(ctx, 2)
	fmt.Println(errors.Is(err, conclave.ErrLocked))
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = node.Semaphore("backend", 4).Acquire(ctx, 1)
	fmt.Println(err) // it was not in use, so it had no limit
	_, err = slots.Acquire(ctx, 1)
	fmt.Println(errors.Is(err, conclave.ErrLimitMismatch))
	// Output:
	// true
	// <nil>
	// true
}

func ExampleSemaphore_Do() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	err := node.Semaphore("backend", 3).Do(ctx, 2, func(ctx context.Context, fence conclave.Fence) error {
		return send(ctx, fence) // ctx is cancelled when the permits are lost
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleSemaphore_Resize() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	slots := node.Semaphore("backend", 3)
	if err := slots.Resize(ctx, 5); err != nil { // for every user, from now on
		log.Fatal(err)
	}
	if _, err := slots.Acquire(ctx, 4); err != nil {
		log.Fatal(err)
	}
	info, err := slots.Info(ctx)
	fmt.Println(info.Limit, info.Available, len(info.Holders), err)
	// Output: 5 1 1 <nil>
}

func ExamplePermit() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	permit, err := node.Semaphore("backend", 3).Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}

	fence, err := permit.Fence() // each acquisition has a fence, like a hold of a lock
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-finished(fence):
		err = permit.Release(ctx)
	case <-permit.Lost():
		err = errors.New("another owner may have the permit")
	}
	fmt.Println(err)
	// Output: <nil>
}

func ExamplePermit_Slots() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	session, err := node.NewSession(ctx, &conclave.SessionConfig{Name: "ids-on-host-7"}) // its lock-delay is 15 s
	if err != nil {
		log.Fatal(err)
	}
	permit, err := session.Semaphore("id-workers", 1024).Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	worker := permit.Slots()[0] // 0 to 1023, and no other worker's
	newID := func(n int) (int, error) {
		_, err := permit.Fence() // refuses a worker that was paused for too long
		return n<<10 | worker, err
	}
	fmt.Println(newID(1))
	// Output: 1024 <nil>
}

func finished(conclave.Fence) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
