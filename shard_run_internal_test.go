package conclave

import (
	"context"
	"testing"

	"github.com/conclave-go/conclave/internal/client"
)

// When the node is closed, Run may learn of that by the end of what it follows before it learns of the end of the session. It gives
// nothing away then: the shards are lost with the session, and wait for the next process of the name.
func TestShardRun_FollowEndsAtClose(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	s := n.Shards("orders", 2)
	w, err := s.join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newShardRun(t.Context(), s, w, nil)
	r.followEnded(&client.Fault{Kind: client.Closed})
	if r.ending != nil {
		t.Errorf("the run ends with %v and %v", r.ending.cause, r.ending.err)
	}
	r.followEnded(&client.Fault{Kind: client.Unavailable})
	if r.ending == nil {
		t.Error("the run goes on when the set cannot be followed")
	}
	r.routines.Wait()
}
