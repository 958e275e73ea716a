package conclaveprom

import (
	"context"
	"time"

	"github.com/conclave-go/conclave"
)

// shards has two nodes share a set. The works of the first one do not heed their contexts until both have had their part.
func (s *scene) shards() {
	leader := s.Leader()
	other := s.Others(leader)[0]
	ctx, stop := context.WithCancel(s.t.Context())
	heed, ended := make(chan struct{}), make(chan error, 2)
	run := func(node int, work func(context.Context)) {
		shards := s.Nodes[node].Shards("parts", 4, conclave.Grace(time.Millisecond))
		go func() {
			ended <- shards.Run(ctx, func(ctx context.Context, _ int, _ conclave.Fence) error {
				work(ctx)
				return nil
			})
		}()
	}
	s.moves(leader, func() { run(leader, func(context.Context) { <-heed }) }, "node_shards", "calls_total{join_shards,ok}")
	s.becomes("node_shards", func() bool { return s.gather[leader]()["node_shards"] == 4 })
	s.moves(leader, func() {
		run(other, func(ctx context.Context) { <-ctx.Done() })
	}, "shards_moved_total", "shards_overdue_total", "calls_total{release_shards,ok}")
	s.becomes("node_shards", func() bool { return s.gather[other]()["node_shards"] == 2 })
	s.moves(leader, func() {
		stop()
		close(heed)
		<-ended
		<-ended
	}, "-node_shards")
	s.becomes("node_shards", func() bool { return s.gather[leader]()["node_shards"]+s.gather[other]()["node_shards"] == 0 })
}
