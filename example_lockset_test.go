package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleLockSet() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	accounts := node.LockSet([]string{"account/17", "account/4"}, conclave.Shared("rates"))
	err := accounts.Do(ctx, func(ctx context.Context, fence conclave.Fence) error {
		return send(ctx, fence) // both accounts are ours, and none changes the rates
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleLockSet_TryLock() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	if _, err := node.FencedLock("account/4").Lock(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := node.LockSet([]string{"account/17", "account/4"}).TryLock(ctx)
	var taken *conclave.TakenError
	if errors.As(err, &taken) {
		fmt.Println("held by another owner:", taken.Names[0].Name)
	}
	// Output: held by another owner: account/4
}

func ExampleLockSet_FenceOf() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	reading, err := node.RWLock("rates").RLock(ctx) // by another owner
	if err != nil {
		log.Fatal(err)
	}
	set := node.LockSet([]string{"account/17"}, conclave.Shared("rates"))
	fence, err := set.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	account, _ := set.FenceOf("account/17")
	rates, _ := set.FenceOf("rates")
	fmt.Println(account == fence, rates == reading)
	// Output: true true
}
