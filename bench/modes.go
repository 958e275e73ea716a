package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/conclave-go/conclave"
)

// bimodal is implemented by groups whose locks are taken exclusively or shared. ZooKeeper's
// client for Go has none.
type bimodal interface {
	// bimodal returns handles to these locks for one caller on a member, which holds one at a time.
	bimodal(member int, names []string) ([]bimodalLock, error)
	writeUnder(ctx context.Context, l bimodalLock) error
	readUnder(ctx context.Context, l bimodalLock) error
	// verify returns an error unless both modes have occurred since it was called last.
	verify() error
}

type bimodalLock interface {
	lock // exclusively
	rlock(ctx context.Context) error
	runlock(ctx context.Context) error
}

// modes counts holds in both modes: a figure of readers and writers that never wrote would be none.
type modes struct{ exclusive, shared atomic.Int64 }

func (m *modes) verify() error {
	if exclusive, shared := m.exclusive.Swap(0), m.shared.Swap(0); exclusive == 0 || shared == 0 {
		return fmt.Errorf("%d exclusive holds and %d shared ones: want both", exclusive, shared)
	}
	return nil
}

// verify returns an error if a group has not used both modes of a workload in them.
func (w workload) verify(g group) error {
	if b, ok := g.(bimodal); ok && w.both {
		return b.verify()
	}
	return nil
}

// bothModes has each caller take one of the locks again and again, a random one each time, in
// percent of the times exclusively. The callers of all groups make the same choices.
func bothModes(callers, locks, percent int, at place) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		b, ok := g.(bimodal)
		if !ok {
			return nil, fmt.Errorf("%T has no locks with two modes", g)
		}
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		names := newSlice[string](locks)
		for i := range names {
			names[i] = fmt.Sprint("rw-", i)
		}
		return each(callers, func(i int) (operation, error) {
			all, err := b.bimodal(at(leader, i), names)
			choices := rand.New(rand.NewPCG(uint64(i), 0))
			return func(ctx context.Context) error {
				l := all[choices.IntN(locks)]
				if choices.IntN(100) < percent {
					return b.writeUnder(ctx, l)
				}
				return b.readUnder(ctx, l)
			}, err
		})
	}
}

func (m *modes) writeUnder(ctx context.Context, l bimodalLock) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	m.exclusive.Add(1)
	return l.unlock(context.WithoutCancel(ctx))
}

func (m *modes) readUnder(ctx context.Context, l bimodalLock) error {
	if err := l.rlock(ctx); err != nil {
		return err
	}
	m.shared.Add(1)
	return l.runlock(context.WithoutCancel(ctx))
}

func (g *conclaveGroup) bimodal(member int, names []string) (all []bimodalLock, err error) {
	for _, name := range names {
		all = append(all, conclaveRWLock{g.nodes[member].RWLock(name)})
	}
	return all, nil
}

type conclaveRWLock struct{ *conclave.RWLock }

func (l conclaveRWLock) lock(ctx context.Context) error {
	_, err := l.Lock(ctx)
	return err
}

func (l conclaveRWLock) rlock(ctx context.Context) error {
	_, err := l.RLock(ctx)
	return err
}

func (l conclaveRWLock) unlock(ctx context.Context) error  { return l.Unlock(ctx) }
func (l conclaveRWLock) runlock(ctx context.Context) error { return l.RUnlock(ctx) }

// bimodal makes a session for the caller, as lock does.
func (g *etcdGroup) bimodal(member int, names []string) (all []bimodalLock, err error) {
	s, err := concurrency.NewSession(g.clients[member], concurrency.WithTTL(10))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		all = append(all, etcdRWMutex{recipe.NewRWMutex(s, "/"+name)})
	}
	return all, nil
}

// etcdRWMutex has no contexts: a call ends when the lock is granted, or its client is closed.
type etcdRWMutex struct{ *recipe.RWMutex }

func (l etcdRWMutex) lock(context.Context) error    { return l.Lock() }
func (l etcdRWMutex) unlock(context.Context) error  { return l.Unlock() }
func (l etcdRWMutex) rlock(context.Context) error   { return l.RLock() }
func (l etcdRWMutex) runlock(context.Context) error { return l.RUnlock() }
