package conclave_test

import (
	"context"
	"testing"

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
