package conclaveleader_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclaveleader"
)

func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	node, err := conclave.Open(ctx, nil) // a group of one; a program names its other members
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(context.Background())

	lock := conclaveleader.New(node, "controller", resourcelock.ResourceLockConfig{Identity: "pod-1"})
	done := make(chan struct{})
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { // ctx is cancelled when the lease is not renewed
				defer close(done)
				fence, err := lock.Fence()
				fmt.Println(lock.Identity(), "leads, with a fence:", fence > 0, err)
				stop()
			},
			OnStoppedLeading: func() {},
		},
	})
	<-done
	// Output: pod-1 leads, with a fence: true <nil>
}
