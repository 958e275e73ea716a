package migrating

import (
	"context"
	"errors"
	"time"

	"github.com/conclave-go/conclave"
)

//snippet:redisson-lock-after

func bookAfterRedisson(ctx context.Context, lock *conclave.FencedLock, book func(context.Context, conclave.Fence) error) error {
	wait, cancel := context.WithTimeout(ctx, 100*time.Second)
	defer cancel()
	fence, err := lock.Lock(wait)
	if err != nil {
		return err
	}
	work, cancel := context.WithTimeout(ctx, 10*time.Second) // in place of leaseTime: the work ends before the release
	defer cancel()
	return errors.Join(book(work, fence), lock.Unlock(context.WithoutCancel(ctx)))
}

//snippet:redisson-semaphore-after

func callAfterRedisson(ctx context.Context, node *conclave.Node, call func() error) (bool, error) {
	wait, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	permit, err := node.Semaphore("backend", 3).Acquire(wait, 1)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(call(), permit.Release(context.WithoutCancel(ctx)))
}

//snippet:end
