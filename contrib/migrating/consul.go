package migrating

import (
	"context"
	"errors"

	"github.com/hashicorp/consul/api"

	"github.com/conclave-go/conclave"
)

//snippet:consul-lock-before

func bookWithConsul(client *api.Client, stop <-chan struct{}, book func(lost <-chan struct{}) error) error {
	lock, err := client.LockOpts(&api.LockOptions{
		Key:            "invoices",
		SessionTTL:     "15s",
		MonitorRetries: 5, // default 0: one failed read counts as a loss
	})
	if err != nil {
		return err
	}
	lost, err := lock.Lock(stop)
	if err != nil {
		return err
	}
	if lost == nil {
		return errors.New("stopped before the lock was acquired") // an outcome that is no error
	}
	defer lock.Unlock()
	return book(lost)
}

//snippet:consul-lock-after

func bookAfterConsul(ctx context.Context, node *conclave.Node, book func(lost <-chan struct{}, fence conclave.Fence) error) error {
	session, err := node.NewSession(ctx, nil) // lock-delay 15 s, check "gossip"
	if err != nil {
		return err
	}
	defer session.Close(context.WithoutCancel(ctx))
	lock := session.FencedLock("invoices")
	fence, err := lock.Lock(ctx)
	if err != nil {
		return err // the lock is not held
	}
	return errors.Join(book(lock.Lost(), fence), lock.Unlock(context.WithoutCancel(ctx)))
}

//snippet:consul-semaphore-before

func callWithConsul(client *api.Client, stop <-chan struct{}, call func(lost <-chan struct{}) error) error {
	slots, err := client.SemaphorePrefix("backend", 3)
	if err != nil {
		return err
	}
	lost, err := slots.Acquire(stop)
	if err != nil {
		return err
	}
	if lost == nil {
		return errors.New("stopped before a slot was acquired")
	}
	defer slots.Release()
	return call(lost)
}

//snippet:consul-semaphore-after

func callAfterConsul(ctx context.Context, node *conclave.Node, call func(lost <-chan struct{}) error) error {
	permit, err := node.Semaphore("backend", 3).Acquire(ctx, 1)
	if err != nil {
		return err
	}
	return errors.Join(call(permit.Lost()), permit.Release(context.WithoutCancel(ctx)))
}

//snippet:consul-key-before

func sequencerWithConsul(client *api.Client, session string) (key string, lockIndex uint64, err error) {
	pair := &api.KVPair{Key: "printers/1", Value: []byte("anna"), Session: session}
	held, _, err := client.KV().Acquire(pair, nil)
	if err != nil || !held {
		return "", 0, errors.Join(errors.New("not acquired"), err)
	}
	pair, _, err = client.KV().Get("printers/1", &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		return "", 0, err
	}
	if pair == nil || pair.Session != session {
		return "", 0, errors.New("lost already")
	}
	return pair.Key, pair.LockIndex, nil // with the session: the sequencer
}

//snippet:consul-key-after

func sequencerAfterConsul(ctx context.Context, node *conclave.Node, session *conclave.Session) (string, error) {
	held, err := node.KV().Acquire(ctx, "printers/1", []byte("anna"), session.ID())
	if err != nil {
		return "", err // ErrLocked, or ErrLockDelay
	}
	return held.Sequencer().String(), nil // for Node.CheckSequencer
}

//snippet:end
