package conclavegocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclavegocron"
)

func ExampleNewLocker() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil) // a group of one; a program names its other members
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	locker := conclavegocron.NewLocker(node, conclavegocron.HoldFor(5*time.Second))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Shutdown()

	ran := make(chan struct{})
	task := locker.Task("invoices", func(ctx context.Context) error {
		fence, _ := conclave.FenceFromContext(ctx)
		fmt.Println("running with fence", fence) // ctx is cancelled when the lock is lost
		close(ran)
		return nil
	})
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(task), gocron.WithName("invoices"))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	<-ran
	// Output: running with fence 1
}

func ExampleNewElector() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil) // a group of one; a program names its other members
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	elector := conclavegocron.NewElector(node, "cron leader")
	electing, resign := context.WithCancel(ctx)
	defer resign()
	done := make(chan error)
	go func() { done <- elector.Run(electing) }()

	ran := make(chan struct{}, 1)
	task := elector.Task(func(ctx context.Context) error {
		select {
		case ran <- struct{}{}:
		default:
		}
		return nil
	})
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(task)); err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	<-ran
	fmt.Println("the leader runs the job")
	if err := scheduler.Shutdown(); err != nil { // first, so that no run outlives the leadership
		fmt.Println(err)
	}
	resign()
	fmt.Println(<-done)
	// Output:
	// the leader runs the job
	// context canceled
}
