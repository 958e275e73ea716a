package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/conclave-go/conclave"
)

func ExampleElection() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(ctx)

	election := node.Election("scheduler")
	if _, err := election.Campaign(ctx, []byte("10.0.0.7:80")); err != nil { // waits to lead
		log.Fatal(err)
	}
	leader, err := election.Leader(ctx) // any member may ask
	fmt.Printf("%s %v\n", leader.Value, err)
	if err := election.Proclaim(ctx, []byte("10.0.0.7:81")); err != nil {
		log.Fatal(err)
	}
	if err := election.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = election.Leader(ctx)
	fmt.Println(errors.Is(err, conclave.ErrNoLeader))
	// Output:
	// 10.0.0.7:80 <nil>
	// true
}

func ExampleElection_Run() {
	ctx, stop := context.WithCancel(context.Background())
	node := openOne(ctx)
	defer node.Close(ctx)

	err := node.Election("scheduler").Run(ctx, []byte("10.0.0.7:80"), func(ctx context.Context, f conclave.Fence) error {
		fmt.Println("leading with fence", f)
		stop()       // in your program the scheduler runs here,
		<-ctx.Done() // until the lead is lost or the program ends
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// leading with fence 1
	// true
}

func ExampleElection_Observe() {
	ctx, stop := context.WithCancel(context.Background())
	node := openOne(ctx)
	defer node.Close(ctx)
	election := node.Election("scheduler")
	if _, err := election.Campaign(ctx, []byte("10.0.0.7:80")); err != nil {
		log.Fatal(err)
	}

	err := observe(ctx, node, func(l conclave.Leader) {
		if l.Fence == 0 {
			fmt.Println("nobody leads")
			stop()
			return
		}
		fmt.Printf("%s leads\n", l.Value)
		if err := election.Resign(ctx); err != nil {
			log.Fatal(err)
		}
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// 10.0.0.7:80 leads
	// nobody leads
	// true
}

func observe(ctx context.Context, node *conclave.Node, show func(conclave.Leader)) error {
	for leader, err := range node.Election("scheduler").Observe(ctx) {
		if err != nil {
			return err // the last there is: ctx has ended, or the node was closed
		}
		show(leader) // its Fence is 0 while nobody leads
	}
	return nil
}
