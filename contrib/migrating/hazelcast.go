package migrating

import (
	"context"
	"errors"

	"github.com/conclave-go/conclave"
)

//snippet:hazelcast-lock-after

func bookAfterHazelcast(ctx context.Context, node *conclave.Node, book func(conclave.Fence) error) error {
	lock := node.FencedLock("invoices", conclave.Reentrant(2)) // lock-acquire-limit 2
	fence, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	err = book(fence)
	if unlock := lock.Unlock(context.WithoutCancel(ctx)); errors.Is(unlock, conclave.ErrLockOwnershipLost) {
		return errors.Join(err, unlock) // another owner may have been granted the lock meanwhile
	}
	return err
}

//snippet:hazelcast-semaphore-after

func callAfterHazelcast(ctx context.Context, node *conclave.Node, call func() error) error {
	permit, err := node.Semaphore("backend", 3).TryAcquire(ctx, 1)
	if errors.Is(err, conclave.ErrLocked) {
		return nil // none is available
	}
	if err != nil {
		return err
	}
	return errors.Join(call(), permit.Release(context.WithoutCancel(ctx)))
}

//snippet:end
