package conclave_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Without a quorum, what begins with a state that a quorum confirms ends as a read does, also for a client.
func TestFollow_NoQuorum(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3)
	n := g.Nodes[0]
	c := grouptest.Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, n)
	g.Kill(1, 2)
	for name, follow := range map[string]func(context.Context) error{
		"node watches shards":         watchShards(n),
		"client watches shards":       watchShards(c),
		"node observes an election":   observeElection(n),
		"client observes an election": observeElection(c),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := follow(ctx); !errors.Is(err, conclave.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want ErrUnavailable with the error of ctx", name, err)
		}
		cancel()
	}
}

func watchShards(a grouptest.Access) func(context.Context) error {
	return func(ctx context.Context) (last error) {
		for _, err := range a.Shards("orders", 3).Watch(ctx) {
			last = err
		}
		return last
	}
}

func observeElection(a grouptest.Access) func(context.Context) error {
	return func(ctx context.Context) (last error) {
		for _, err := range a.Election("e").Observe(ctx) {
			last = err
		}
		return last
	}
}
