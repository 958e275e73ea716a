package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

func ExampleMaxHold() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	lock := node.FencedLock("nightly", conclave.MaxHold(10*time.Minute))
	err := lock.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
		return lock.Extend(ctx, time.Hour) // the work takes longer
	})
	fmt.Println("in time:", err)

	err = lock.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
		_ = lock.Extend(ctx, 50*time.Millisecond)
		<-ctx.Done() // too late: another owner may hold the lock soon
		fmt.Println(errors.Is(context.Cause(ctx), conclave.ErrHoldExpired))
		return nil
	})
	fmt.Println(errors.Is(err, conclave.ErrLockOwnershipLost))
	// Output:
	// in time: <nil>
	// true
	// true
}
