package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

type conclaveGroup struct {
	modes
	nodes []*conclave.Node
}

func (g *conclaveGroup) leader(context.Context) (int, error) {
	for i, n := range g.nodes {
		if n != nil && n.Status().Leader == n.Status().ID {
			return i, nil
		}
	}
	return 0, errors.New("no leader")
}

func (g *conclaveGroup) lock(_ context.Context, member int, name string, linger bool) (lock, error) {
	if linger {
		return conclaveLock{g.nodes[member].FencedLock(name, conclave.Linger(time.Second))}, nil
	}
	return conclaveLock{g.nodes[member].FencedLock(name)}, nil
}

type conclaveLock struct{ *conclave.FencedLock }

func (l conclaveLock) lock(ctx context.Context) error {
	_, err := l.Lock(ctx)
	return err
}

func (l conclaveLock) unlock(ctx context.Context) error { return l.Unlock(ctx) }

func (g *conclaveGroup) put(ctx context.Context, member int, key string, value []byte) error {
	_, err := g.nodes[member].KV().Put(ctx, key, value)
	return err
}

func (g *conclaveGroup) get(ctx context.Context, member int, key string) error {
	_, err := g.nodes[member].KV().Get(ctx, key)
	return err
}

func (g *conclaveGroup) watch(ctx context.Context, member int, key string, seen func(string)) error {
	e, err := g.nodes[member].KV().Get(ctx, key)
	if err != nil {
		return err
	}
	go func() {
		for event, err := range g.nodes[member].KV().Watch(ctx, key, e.ModifyIndex) {
			if err != nil {
				return // ctx has ended, or the group is closed
			}
			seen(string(event.Entry.Value))
		}
	}()
	return nil
}

func (g *conclaveGroup) sessions(ctx context.Context, member, n int) error {
	for range n {
		if _, err := g.nodes[member].NewSession(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func (g *conclaveGroup) kill(member int) {
	_ = g.nodes[member].Close(cluster.WithCrash(context.Background()))
	g.nodes[member] = nil
}

func (g *conclaveGroup) close() {
	var wg sync.WaitGroup
	for _, n := range g.nodes {
		if n != nil {
			wg.Go(func() { _ = n.Close(cluster.WithCrash(context.Background())) })
		}
	}
	wg.Wait()
}
