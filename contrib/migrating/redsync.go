package migrating

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/conclave-go/conclave"
)

//snippet:redsync-open-before

func openRedsync(addresses ...string) *redsync.Redsync {
	var pools []redsyncredis.Pool
	for _, addr := range addresses { // independent servers, not replicas of each other
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
	}
	return redsync.New(pools...)
}

//snippet:redsync-open-after

func openAfterRedsync(ctx context.Context, addresses ...string) (*conclave.Client, error) {
	return conclave.Dial(ctx, &conclave.ClientConfig{Addresses: addresses}) // of members of one group
}

//snippet:redsync-lock-before

func bookWithRedsync(ctx context.Context, rs *redsync.Redsync, book func(ctx context.Context) error) error {
	mutex := rs.NewMutex("invoices", redsync.WithExpiry(8*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err // after 32 attempts
	}
	defer mutex.UnlockContext(context.WithoutCancel(ctx))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(mutex.Until()) / 2):
			}
			if ok, err := mutex.ExtendContext(ctx); !ok || err != nil {
				cancel()
				return
			}
		}
	}()
	return book(ctx) // no fence
}

//snippet:redsync-lock-after

func bookAfterRedsync(ctx context.Context, client *conclave.Client, book func(ctx context.Context, fence conclave.Fence) error) error {
	return client.FencedLock("invoices").Do(ctx, book) // the session is renewed
}

//snippet:redsync-try-before

func tryWithRedsync(ctx context.Context, mutex *redsync.Mutex) (bool, error) {
	err := mutex.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return false, nil
	}
	return err == nil, err
}

//snippet:redsync-try-after

func tryAfterRedsync(ctx context.Context, lock *conclave.FencedLock) (bool, error) {
	_, err := lock.TryLock(ctx)
	if errors.Is(err, conclave.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

//snippet:end
