package migrating

import (
	"context"
	"errors"
	"time"

	"github.com/conclave-go/conclave"
)

//snippet:curator-lock-after

func bookAfterCurator(ctx context.Context, lock *conclave.FencedLock, book func(conclave.Fence) error) error {
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	fence, err := lock.Lock(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // not acquired
	}
	if err != nil {
		return err
	}
	return errors.Join(book(fence), lock.Unlock(context.WithoutCancel(ctx)))
}

//snippet:curator-leader-after

func leadAfterCurator(ctx context.Context, node *conclave.Node, id string, lead func(context.Context, conclave.Fence) error) error {
	return node.Election("scheduler").Run(ctx, []byte(id), lead)
}

func leaderAfterCurator(ctx context.Context, node *conclave.Node) (string, error) {
	leader, err := node.Election("scheduler").Leader(ctx)
	if errors.Is(err, conclave.ErrNoLeader) {
		return "", nil
	}
	return string(leader.Value), err
}

//snippet:curator-semaphore-after

func callAfterCurator(ctx context.Context, node *conclave.Node, call func(context.Context, conclave.Fence) error) error {
	return node.Semaphore("backend", 3).Do(ctx, 2, call) // two permits, or none
}

//snippet:end
