package migrating

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclaveleader"
)

//snippet:kubernetes-before

func leadWithLease(ctx context.Context, clients kubernetes.Interface, id string, lead func(context.Context)) {
	elect(ctx, &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "scheduler"},
		Client:     clients.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: id},
	}, lead)
}

func elect(ctx context.Context, lock resourcelock.Interface, lead func(context.Context)) {
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true, // lead must have returned before ctx is cancelled
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead, // in a goroutine of its own
			OnStoppedLeading: func() {},
		},
	})
}

//snippet:kubernetes-adapter

func leadWithAdapter(ctx context.Context, node *conclave.Node, id string, lead func(context.Context)) {
	elect(ctx, conclaveleader.New(node, "scheduler", resourcelock.ResourceLockConfig{Identity: id}), lead)
}

//snippet:kubernetes-after

func leadAfterLease(ctx context.Context, node *conclave.Node, id string, lead func(context.Context, conclave.Fence) error) error {
	return node.Election("scheduler").Run(ctx, []byte(id), lead)
}

//snippet:kubernetes-observe-after

func observeAfterLease(ctx context.Context, node *conclave.Node, show func(id string)) error {
	for leader, err := range node.Election("scheduler").Observe(ctx) {
		if err != nil {
			return err // the last element
		}
		show(string(leader.Value)) // "" while no candidate leads
	}
	return nil
}

//snippet:end
