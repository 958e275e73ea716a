package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/conclave-go/conclave"
)

func ExampleShards_Run() {
	ctx, stop := context.WithCancel(context.Background())
	node := openOne(ctx)
	defer node.Close(context.Background())

	worked := make(chan int)
	consume := func(ctx context.Context, shard int, fence conclave.Fence) error {
		select {
		case worked <- shard:
		case <-ctx.Done():
		}
		return nil
	}
	go func() {
		for range 12 {
			<-worked
		}
		stop()
	}()
	orders := node.Shards("orders", 12) // every process must pass 12
	err := orders.Run(ctx, func(ctx context.Context, shard int, fence conclave.Fence) error {
		for ctx.Err() == nil { // until the shard moves or is lost, or the program ends
			if err := consume(ctx, shard, fence); err != nil {
				return err
			}
		}
		return nil // nothing works on the shard any more
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output: true
}

// Shards stay with the name of a process that restarts.
func ExampleSettle() {
	ctx, terminated := context.WithCancel(context.Background()) // by signal.NotifyContext, in a program
	node := openOne(ctx)

	work := func(ctx context.Context, shard int, fence conclave.Fence) error {
		terminated() // by the operator, say
		<-ctx.Done()
		return nil
	}
	orders := node.Shards("orders", 1, conclave.Settle(time.Minute)) // longer than a restart takes
	ended := make(chan error, 1)
	go func() { ended <- orders.Run(context.Background(), work) }() // not ctx, or Run would give the shards away

	<-ctx.Done()                     // SIGTERM
	node.Close(context.Background()) // from here on the shards wait for this process's name
	fmt.Println(<-ended)             // the works have returned
	// Output: conclave: run "orders": node is closed
}

func ExampleShards_Watch() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())
	orders := node.Shards("orders", 12)
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = orders.Run(running, func(ctx context.Context, shard int, fence conclave.Fence) error {
			<-ctx.Done()
			return nil
		})
	}()

	const wanted = 7
	var route conclave.ShardOwner
	for owner, err := range orders.Watch(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if owner.Shard == wanted && owner.Fence != 0 {
			route = owner
			break
		}
	}
	now, err := orders.Owner(ctx, wanted, conclave.Stale()) // what this member knows, without a round trip
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(now.Fence == route.Fence, now.Name != "")

	// In the owner, with each request that a router sends for the shard:
	serves := func(own, sent conclave.Fence) error {
		if sent > own {
			return conclave.ErrStaleFence // the shard has a later owner: this process has not learned of it yet
		}
		return nil
	}
	fmt.Println(serves(route.Fence, now.Fence))
	// Output:
	// true true
	// <nil>
}
