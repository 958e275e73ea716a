package conclaveprom

import (
	"context"
	"errors"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
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
	s.moves(leader, func() { run(leader, func(context.Context) { <-heed }) }, "node_shards", "calls_total{join_shards,ok}", "shards")
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

// shardsWithoutOwner has the session of a worker end, whose shards are in a lock-delay then.
func (s *scene) shardsWithoutOwner() {
	leader := s.Leader()
	session := grouptest.MustSession(s.t, s.Nodes[leader], &conclave.SessionConfig{LockDelay: time.Minute})
	began, ended := make(chan struct{}, 3), make(chan error, 1)
	go func() {
		ended <- session.Shards("delayed", 3).Run(s.t.Context(), func(ctx context.Context, _ int, _ conclave.Fence) error {
			began <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	for range 3 {
		<-began
	}
	s.becomes("shards", func() bool { return s.gather[leader]()["shards"] == 3 })
	s.moves(leader, func() {
		grouptest.Must(s.t, s.Nodes[leader].CloseSession(s.t.Context(), session.ID()))
	}, "shards_without_owner", "shard_seconds_without_owner_total")
	if err := <-ended; !errors.Is(err, conclave.ErrSessionExpired) {
		s.t.Errorf("the run ended with %v", err)
	}
	if now := s.gather[leader](); now["shards_without_owner"] != 3 || now["shards"] != 3 {
		s.t.Errorf("%v of %v shards have no owner, want 3 of 3", now["shards_without_owner"], now["shards"])
	}
}
