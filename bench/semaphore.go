package main

import (
	"context"
	"fmt"

	"github.com/conclave-go/conclave"
)

// semaphores is implemented by groups that have semaphores. etcd's client has none: package
// concurrency has mutexes, elections and transactions, the recipes add barriers, queues and a
// lock for readers and writers. ZooKeeper's client for Go has one recipe, the lock.
type semaphores interface {
	// semaphore returns a lock that is one permit of a semaphore, for one caller on a member.
	semaphore(member int, name string, limit int) lock
}

func permits(callers, limit int) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		s, ok := g.(semaphores)
		if !ok {
			return nil, fmt.Errorf("%T has no semaphores", g)
		}
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		return each(callers, func(int) (operation, error) {
			return cycle(s.semaphore(leader, "permits", limit)), nil
		})
	}
}

func (g *conclaveGroup) semaphore(member int, name string, limit int) lock {
	return &conclavePermit{semaphore: g.nodes[member].Semaphore(name, limit)}
}

type conclavePermit struct {
	semaphore *conclave.Semaphore
	held      *conclave.Permit
}

func (p *conclavePermit) lock(ctx context.Context) (err error) {
	p.held, err = p.semaphore.Acquire(ctx, 1)
	return err
}

func (p *conclavePermit) unlock(ctx context.Context) error { return p.held.Release(ctx) }
