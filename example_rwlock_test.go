package conclave_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/conclave-go/conclave"
)

func ExampleRWLock() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	lock := node.RWLock("prices")
	err := lock.RDo(ctx, func(ctx context.Context, fence conclave.Fence) error {
		return send(ctx, fence) // others read as well, and none writes
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleRWLock_Downgrade() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	lock := node.RWLock("prices")
	written, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	read, err := lock.Downgrade(ctx) // no writer comes in between
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(read > written, lock.RUnlock(ctx))
	// Output: true <nil>
}

func ExampleRWLock_RLock() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	cached := node.RWLock("prices", conclave.Linger(time.Minute))
	first, _ := cached.RLock(ctx)
	fmt.Println(cached.RUnlock(ctx)) // the node keeps the lock shared, as others may
	second, _ := cached.RLock(ctx)   // without the group, unless a writer came
	fmt.Println(first == second)
	// Output:
	// <nil>
	// true
}
