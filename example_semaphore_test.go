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
	defer node.Close(ctx)

	slots := node.Semaphore("backend", 3) // all have to say 3
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
	fmt.Println(err) // it is not in use, so it has no limit yet
	_, err = slots.Acquire(ctx, 1)
	fmt.Println(errors.Is(err, conclave.ErrLimitMismatch))
	// Output:
	// true
	// <nil>
	// true
}

func ExampleSemaphore_Resize() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	slots := node.Semaphore("backend", 3)
	if err := slots.Resize(ctx, 5); err != nil { // for all users, from now on
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
	defer node.Close(ctx)
	permit, err := node.Semaphore("backend", 3).Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}

	fence, err := permit.Fence() // an acquisition has a fence, as a hold of a lock has
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-finished(fence):
		err = permit.Release(ctx)
	case <-permit.Lost():
		err = errors.New("another owner may have it")
	}
	fmt.Println(err)
	// Output: <nil>
}

func finished(conclave.Fence) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
