package scale

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkGroupsFailover measures from the end of the process of a member that leads 256 further groups, which no call uses, until another
// member leads each of them.
func BenchmarkGroupsFailover(b *testing.B) {
	const groups = 256
	g := grouptest.Start(b, 3)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	var names []string
	for i := range groups {
		names = append(names, fmt.Sprint("tenant-", i))
		if _, err := g.Nodes[0].CreateGroup(ctx, names[i], conclave.GroupConfig{}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		b.StopTimer()
		victim := g.Leader()
		leadAll(ctx, b, g, names, victim)
		id := g.ID(victim)
		b.StartTimer()
		g.Kill(victim)
		awaitLeaders(ctx, b, g.Nodes[g.Others(victim)[0]], names, id)
		b.StopTimer()
		g.Start(victim)
		b.StartTimer()
	}
}

// leadAll has one member lead all groups.
func leadAll(ctx context.Context, b *testing.B, g *grouptest.Group, names []string, member int) {
	id := g.ID(member)
	var transfers sync.WaitGroup
	few := make(chan struct{}, 32)
	for _, name := range names {
		few <- struct{}{}
		transfers.Go(func() {
			defer func() { <-few }()
			for {
				if info, ok := g.Nodes[member].GroupInfo(name); ok && info.Leader == id {
					return
				}
				if err := g.Nodes[member].WithGroup(name).TransferLeadership(ctx, id); err != nil && ctx.Err() != nil {
					b.Error(name, err)
					return
				}
			}
		})
	}
	transfers.Wait()
}

// awaitLeaders waits until the node knows leaders of all groups, other than that member.
func awaitLeaders(ctx context.Context, b *testing.B, node *conclave.Node, names []string, without conclave.MemberID) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for _, name := range names {
		for {
			if info, ok := node.GroupInfo(name); ok && info.Leader != 0 && info.Leader != without {
				break
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				b.Fatal(name, ctx.Err())
			}
		}
	}
}
