package conclave_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// detailed is an error whose type can be compared, and what it holds cannot.
type detailed struct{ detail any }

func (detailed) Error() string { return "failed" }

// Errors of works that cannot be compared do not end Run before the other works have returned.
func TestShards_ErrorsWithoutComparison(t *testing.T) {
	s := grouptest.Alone(t).Shards("orders", 4)
	fails := make(chan struct{})
	late := func(ctx context.Context) error { <-ctx.Done(); return detailed{[]string{"late"}} }
	w := runShardsThat(t, s, does{0: func(context.Context) error { <-fails; return detailed{[]string{"first"}} }, 1: late, 2: late, 3: late})
	next(t, w.began, 4)
	close(fails)
	next(t, w.ended, 4)
	if err := <-w.Err; err == nil {
		t.Error("no error")
	}
	wantGivenAway(t, s)
}

// blocking is an error whose method Is blocks.
type blocking struct{ entered, leave chan struct{} }

func (blocking) Error() string { return "failed" }

func (b blocking) Is(error) bool {
	b.entered <- struct{}{}
	<-b.leave
	return true
}

// While a method of a work's error blocks, the other shards move.
func TestShards_ErrorBlocks(t *testing.T) {
	n := grouptest.Alone(t)
	s := n.Shards("orders", 4, conclave.Grace(time.Hour))
	b := blocking{make(chan struct{}, 10), make(chan struct{})}
	w := runShardsThat(t, s, does{
		3: func(ctx context.Context) error { <-ctx.Done(); return b },
		2: func(ctx context.Context) error { <-ctx.Done(); <-b.entered; return ctx.Err() },
	})
	next(t, w.began, 4)
	other := runShards(t, s)
	if _, came := next(t, other.began, 1)[2]; !came {
		t.Error("another shard than 2 has moved")
	}
	close(b.leave)
	if _, came := next(t, other.began, 1)[3]; !came {
		t.Error("another shard than 3 has moved")
	}
	w.stop()
	other.stop()
}

// The errors of works are joined, each one once.
func TestShards_ErrorsJoined(t *testing.T) {
	s := grouptest.Alone(t).Shards("orders", 4)
	first, late, fails := errors.New("first"), errors.New("late"), make(chan struct{})
	fail := func(ctx context.Context) error { <-ctx.Done(); return late }
	w := runShardsThat(t, s, does{0: func(context.Context) error { <-fails; return first }, 1: fail, 2: fail, 3: fail})
	next(t, w.began, 4)
	close(fails)
	if err := <-w.Err; !errors.Is(err, first) || err.Error() != "first\nlate" {
		t.Errorf("%q", err)
	}
}
