package migrating

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/conclave-go/conclave"
)

//snippet:etcd-lock-before

func bookWithEtcd(ctx context.Context, client *clientv3.Client, book func(ctx context.Context, revision int64) error) error {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "invoices")
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	defer mutex.Unlock(context.WithoutCancel(ctx))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done(): // the lease is lost
			cancel()
		case <-ctx.Done():
		}
	}()
	return book(ctx, mutex.Header().Revision)
}

//snippet:etcd-lock-after

func bookAfterEtcd(ctx context.Context, node *conclave.Node, book func(ctx context.Context, fence conclave.Fence) error) error {
	return node.FencedLock("invoices").Do(ctx, book) // book's ctx is cancelled when the lock is lost
}

//snippet:etcd-write-before

func writeWithEtcd(ctx context.Context, client *clientv3.Client, mutex *concurrency.Mutex, value string) (bool, error) {
	put := clientv3.OpPut("invoices/last", value)
	resp, err := client.Txn(ctx).If(mutex.IsOwner()).Then(put).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

//snippet:etcd-write-after

func writeAfterEtcd(ctx context.Context, node *conclave.Node, fence conclave.Fence, value string) error {
	_, err := node.KV().PutFenced(ctx, "invoices/last", []byte(value), fence)
	return err // ErrStaleFence: a later holder has written
}

//snippet:etcd-election-before

func leadWithEtcd(ctx context.Context, session *concurrency.Session, addr string, lead func(context.Context)) error {
	election := concurrency.NewElection(session, "scheduler")
	if err := election.Campaign(ctx, addr); err != nil {
		return err
	}
	defer election.Resign(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	lead(ctx)
	return nil // after a loss: a new session and a new campaign
}

//snippet:etcd-election-after

func leadAfterEtcd(ctx context.Context, node *conclave.Node, addr string, lead func(context.Context, conclave.Fence) error) error {
	return node.Election("scheduler").Run(ctx, []byte(addr), lead) // campaigns again after a loss
}

//snippet:end
