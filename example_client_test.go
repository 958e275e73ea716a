package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/conclave-go/conclave"
)

func ExampleDial() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	client := dialGroup(ctx, node.Addr())
	defer client.Close(context.Background())

	lock := client.FencedLock("invoices", conclave.Reentrant(0))
	fence, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = node.FencedLock("invoices").TryLock(ctx)
	fmt.Println(errors.Is(err, conclave.ErrLocked), fence > 0)
	// Output: true true
}

func dialGroup(ctx context.Context, members ...string) *conclave.Client {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := conclave.Dial(ctx, &conclave.ClientConfig{Addresses: members})
	if err != nil {
		log.Fatal(err)
	}
	return client
}
