package conclavehttp_test

import (
	"context"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// runShards has a worker work on all shards of a set until the test ends, and returns when it works on all of them.
func runShards(t *testing.T, shards *conclave.Shards, count int) (ended <-chan struct{}) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	begun, done := make(chan int, count), make(chan struct{})
	go func() {
		defer close(done)
		_ = shards.Run(ctx, func(ctx context.Context, shard int, _ conclave.Fence) error {
			begun <- shard
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	for range count {
		select {
		case <-begun:
		case <-done:
			t.Fatal("Run has returned")
		}
	}
	return done
}

// A set of shards is shown with who has which, and for whom shards wait; hostile names are text.
func TestConsole_Shards(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	want(t, listing(serve(t, n, nil).page("show", "shards")), "None.") // what a console has read it shows for a while
	mine, err := n.NewSession(t.Context(), &conclave.SessionConfig{Name: "mine"})
	grouptest.Must(t, err)
	const hostile = "<script>alert(1)</script>"
	theirs, err := n.NewSession(t.Context(), &conclave.SessionConfig{Name: hostile})
	grouptest.Must(t, err)
	runShards(t, mine.Shards("orders", 4), 4)
	ended := runShards(t, theirs.Shards(hostile, 3), 3)

	site := serve(t, n, nil)
	body := listing(site.page("show", "shards"))
	want(t, body, ">orders<", "0–3", ">mine<", "0–2", "&lt;script&gt;")
	wantNot(t, body, hostile, "without an owner")
	body = listing(site.page("show", "shards", "of", mine.ID().String()))
	want(t, body, ">orders<", "0–3")
	wantNot(t, body, "&lt;script&gt;")
	want(t, listing(site.page("show", "shards", "prefix", "orders")), ">orders<")

	grouptest.Must(t, theirs.Close(t.Context()))
	<-ended
	want(t, listing(serve(t, n, nil).page("show", "shards")), "has ended", "0–2 wait", "for its return")
}
