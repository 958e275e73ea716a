package main

import (
	"context"
	"fmt"

	"github.com/conclave-go/conclave"
)

// furtherGroups is implemented by groups that have further ones on the same members, as no peer has.
type furtherGroups interface {
	// further creates a further group, and returns it as its leader has it.
	further(ctx context.Context, name string) (*conclave.Group, error)
}

func (g *conclaveGroup) further(ctx context.Context, name string) (*conclave.Group, error) {
	if _, err := g.nodes[0].CreateGroup(ctx, name, conclave.GroupConfig{}); err != nil {
		return nil, err
	}
	for { // nothing signals the first leader
		for of, err := range g.nodes[0].Groups(ctx) {
			if err != nil {
				return nil, err
			}
			for _, n := range g.nodes {
				if of.Name == name && of.Leader == n.Status().ID {
					return n.WithGroup(name), nil
				}
			}
		}
	}
}

func furtherOf(ctx context.Context, g group, names ...string) (list []*conclave.Group, err error) {
	f, ok := g.(furtherGroups)
	if !ok {
		return nil, fmt.Errorf("%T has no further groups", g)
	}
	for _, name := range names {
		of, err := f.further(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, of)
	}
	return list, nil
}

// ownInGroups is own with the callers spread over further groups.
func ownInGroups(callers, groups int) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		var names []string
		for i := range groups {
			names = append(names, fmt.Sprint("group-", i))
		}
		list, err := furtherOf(ctx, g, names...)
		if err != nil {
			return nil, err
		}
		return each(callers, func(i int) (operation, error) {
			return cycle(conclaveLock{list[i%groups].FencedLock(fmt.Sprint("own-", i))}), nil
		})
	}
}

// besideWrites is own in a further group, beside writers of values of that size in another one.
func besideWrites(callers, writers, size int) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		list, err := furtherOf(ctx, g, "a", "b")
		if err != nil {
			return nil, err
		}
		for i := range writers {
			go func() {
				value := make([]byte, size)
				for n := byte(0); ctx.Err() == nil; n++ {
					value[0] = n // what changes nothing would not be written
					_, _ = list[1].KV().Put(ctx, fmt.Sprint("beside-", i), value)
				}
			}()
		}
		return each(callers, func(i int) (operation, error) {
			return cycle(conclaveLock{list[0].FencedLock(fmt.Sprint("own-", i))}), nil
		})
	}
}
