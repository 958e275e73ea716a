package main

import (
	"context"
	"fmt"

	"github.com/conclave-go/conclave"
)

// furtherGroups is implemented by groups that have further ones on the same members, as no peer has.
type furtherGroups interface {
	// further creates further groups, and returns each as its leader has it.
	further(ctx context.Context, names []string) ([]*conclave.Group, error)
}

func (g *conclaveGroup) further(ctx context.Context, names []string) ([]*conclave.Group, error) {
	for _, name := range names {
		if _, err := g.nodes[0].CreateGroup(ctx, name, conclave.GroupConfig{}); err != nil {
			return nil, err
		}
	}
	for { // nothing signals the first leaders
		leaders := make(map[string]conclave.MemberID)
		for of, err := range g.nodes[0].Groups(ctx) {
			if err != nil {
				return nil, err
			}
			leaders[of.Name] = of.Leader
		}
		if list := g.led(names, leaders); len(list) == len(names) {
			return list, nil
		}
	}
}

// led returns those of the groups that a node of this process leads, as that node has them.
func (g *conclaveGroup) led(names []string, leaders map[string]conclave.MemberID) (list []*conclave.Group) {
	for _, name := range names {
		for _, n := range g.nodes {
			if leaders[name] == n.Status().ID {
				list = append(list, n.WithGroup(name))
			}
		}
	}
	return list
}

func furtherOf(ctx context.Context, g group, names ...string) ([]*conclave.Group, error) {
	f, ok := g.(furtherGroups)
	if !ok {
		return nil, fmt.Errorf("%T has no further groups", g)
	}
	return f.further(ctx, names)
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
