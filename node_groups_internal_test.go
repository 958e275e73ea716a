package conclave

import (
	"context"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
)

// What a node keeps for watchers is bounded for all further groups together, and apart from the default group.
func TestNodeGroups_ChangesKeptTogether(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	const perGroup = 30 // MiB
	value := make([]byte, 1<<20)
	write := func(c *client.Client) {
		for i := range uint64(perGroup) {
			c.Changed([]fact.KeyChange{{Index: i + 1, Entry: &fact.Entry{Key: "k", Value: value}}}, nil)
		}
	}
	kept := func(c *client.Client) (n int) {
		for after := range uint64(perGroup) {
			err := c.FollowKeys(t.Context(), "", after, func(fact.KeyChange) bool { n++; return after+uint64(n) < perGroup })
			if err == nil {
				return n
			}
			n = 0
		}
		return 0
	}
	write(n.client)
	var all []*furtherGroup
	sum := 0
	for i := range 20 {
		all = append(all, n.groups.newGroup(fmt.Sprint(i)))
		write(all[i].client)
	}
	for _, f := range all {
		m := kept(f.client)
		if m == 0 {
			t.Errorf("group %s keeps nothing", f.name)
		}
		sum += m
		f.client.Stopped(nil, true)
		f.end()
	}
	if sum > maxGroupChanges>>20 || sum < maxGroupChanges>>21 {
		t.Errorf("20 groups keep %d MiB for watchers", sum)
	}
	if m := kept(n.client); m != perGroup {
		t.Errorf("the default group keeps %d MiB", m)
	}
}
