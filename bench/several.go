package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/conclave-go/conclave"
)

// plural is implemented by groups of which a caller takes several locks together.
type plural interface {
	// plural returns what takes some of these locks together for one caller on a member, by their numbers in ascending
	// order, and releases them.
	plural(member int, names []string) (func(ctx context.Context, chosen []int) error, error)
}

// severalAtOnce has each caller take n of the locks together again and again, random ones each time. The callers of all
// groups make the same choices.
func severalAtOnce(callers, locks, n int, at place) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		p, ok := g.(plural)
		if !ok {
			return nil, fmt.Errorf("%T takes no locks together", g)
		}
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		names := newSlice[string](locks)
		for i := range names {
			names[i] = fmt.Sprintf("set-%d", i)
		}
		return each(callers, func(i int) (operation, error) {
			hold, err := p.plural(at(leader, i), names)
			choices := rand.New(rand.NewPCG(uint64(i), 0))
			return func(ctx context.Context) error {
				chosen := choices.Perm(locks)[:n]
				slices.Sort(chosen)
				return hold(ctx, chosen)
			}, err
		})
	}
}

// plural takes the locks as a set.
func (g *conclaveGroup) plural(member int, names []string) (func(context.Context, []int) error, error) {
	return func(ctx context.Context, chosen []int) error {
		return hold(ctx, g.nodes[member].LockSet(pick(names, chosen)))
	}, nil
}

func hold(ctx context.Context, set *conclave.LockSet) error {
	if _, err := set.Lock(ctx); err != nil {
		return err
	}
	return set.Unlock(context.WithoutCancel(ctx))
}

func pick[T any](all []T, chosen []int) (picked []T) {
	for _, i := range chosen {
		picked = append(picked, all[i])
	}
	return picked
}

// plural takes the locks one by one: in one order, so that callers do not wait for each other in a cycle. It makes a session for the
// caller, as lock does.
func (g *etcdGroup) plural(member int, names []string) (func(context.Context, []int) error, error) {
	s, err := concurrency.NewSession(g.clients[member], concurrency.WithTTL(10))
	if err != nil {
		return nil, err
	}
	var mutexes []*concurrency.Mutex
	for _, name := range names {
		mutexes = append(mutexes, concurrency.NewMutex(s, "/"+name))
	}
	return func(ctx context.Context, chosen []int) error { return holdEach(ctx, pick(mutexes, chosen)) }, nil
}

func holdEach(ctx context.Context, mutexes []*concurrency.Mutex) (err error) {
	for _, m := range mutexes {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Unlock(context.WithoutCancel(ctx))) }()
	}
	return nil
}
