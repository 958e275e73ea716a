package groups

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// What follows the changes of a group ends when that is deleted elsewhere, on a member and on a client, and does not report that the process is closed.
func TestDeleteGroup_WhileFollowed(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	gt.MustPut(t, create(t, g.Nodes[0], "tenant").KV(), "k", "v")
	_, err := g.Nodes[0].WithGroup("tenant").Election("x").Campaign(ctx, []byte("v"))
	gt.Must(t, err)
	c := gt.Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	begun, ended := make(chan struct{}, 8), make(chan error, 8)
	for _, of := range []*conclave.Group{g.Nodes[1].WithGroup("tenant"), c.WithGroup("tenant")} {
		go ending(of.KV().Watch(ctx, "", 0), begun, ended)
		go ending(of.KV().Follow(ctx, ""), begun, ended)
		go ending(of.KV().FollowKey(ctx, "k"), begun, ended)
		go ending(of.Election("x").Observe(ctx), begun, ended)
	}
	for range cap(begun) {
		<-begun
	}
	gt.Must(t, g.Nodes[2].DeleteGroup(ctx, "tenant", conclave.Force()))
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, conclave.ErrGroupNotFound) || errors.Is(err, conclave.ErrClosed) || ctx.Err() != nil {
			t.Error(err)
		}
	}
}

// ending reports the first item of a sequence, and the error with which it ends.
func ending[T any](items func(func(T, error) bool), begun chan<- struct{}, ended chan<- error) {
	first, last := true, error(nil)
	for _, err := range items {
		if first {
			first = false
			begun <- struct{}{}
		}
		last = err
	}
	ended <- last
}
