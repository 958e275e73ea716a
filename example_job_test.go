package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/conclave-go/conclave"
)

func ExampleJob_Once() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	invoices := node.Job("invoices")
	for range 2 { // on each process, say, when the same timer fires
		err := invoices.Once(ctx, "2026-11-25T02:00Z", func(ctx context.Context, fence conclave.Fence) error {
			fmt.Println("writing invoices")
			return send(ctx, fence)
		})
		var done *conclave.JobDoneError
		switch {
		case errors.As(err, &done):
			fmt.Println("nothing to do, as the run is", done.Run.Result)
		case err != nil:
			log.Fatal(err) // it may run again, here or on another process
		}
	}
	// Output:
	// writing invoices
	// nothing to do, as the run is done
}

func ExampleJob_Every() {
	ctx, stop := context.WithCancel(context.Background())
	node := openOne(ctx)
	defer node.Close(context.Background())

	sweeps := 0
	err := node.Job("sweep").Every(ctx, 10*time.Millisecond, func(context.Context, conclave.Fence) error {
		if sweeps++; sweeps == 3 {
			stop() // when the program ends
		}
		return nil
	})
	fmt.Println(sweeps, errors.Is(err, context.Canceled))
	// Output: 3 true
}

func ExampleJob_Info() {
	ctx := context.Background()
	node := openOne(ctx)
	defer node.Close(context.Background())

	reports := node.Job("report", conclave.Attempts(2))
	_ = reports.Once(ctx, "monday", func(context.Context, conclave.Fence) error { return nil })
	_ = reports.Once(ctx, "tuesday", func(context.Context, conclave.Fence) error { return errors.New("no data") })
	info, err := reports.Info(ctx) // from any member
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range info.Runs {
		fmt.Println(run.Key, run.Result, run.Error)
	}
	// Output:
	// tuesday failed no data
	// monday done
}
