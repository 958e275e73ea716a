package conclavetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Without the group, or without a majority, there is no leader.
func TestLeaderOf_None(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := Start(t, 3)
	if leader, err := leaderOf(ctx, "tenant", g.Nodes()); !errors.Is(err, conclave.ErrGroupNotFound) {
		t.Errorf("%v, %v; want %v", leader, err, conclave.ErrGroupNotFound)
	}
	if _, err := g.Node(0).CreateGroup(ctx, "tenant", conclave.GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	g.Kill(1, 2)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if leader, err := leaderOf(short, "tenant", g.Nodes()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v; want %v", leader, err, context.DeadlineExceeded)
	}
	if leader, err := leaderOf(ctx, "tenant", nil); leader != nil || err == nil {
		t.Errorf("%v, %v of no nodes", leader, err)
	}
}
