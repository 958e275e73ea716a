package clients

import (
	"context"
	"errors"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wait"
)

// A connection whose member stops leaves frames in the loop's queue that it awaits no more, and
// the end of the connection behind them. The loop may serve them all before it stops.
func TestClient_StopWithFramesQueued(t *testing.T) {
	queue := make(chan func(*core.Core), 256)
	ended, end := context.WithCancel(t.Context())
	end()
	s := New(Config{Queue: queue, Lifetime: ended, Stopped: func() error { return errors.New("the member has stopped") }})
	c := &conn{handled: wait.NewSignal()}
	served := 0
	// Both cases of its select are ready, so about half of the frames are queued.
	for len(queue) < 3 {
		if err := s.fromClient(c, func() { served++ }); err == nil {
			t.Fatal("a frame was awaited that the loop has not handled")
		}
	}
	for len(queue) > 0 {
		(<-queue)(nil) // it must not block
	}
	if served != 3 {
		t.Errorf("%d of 3 frames served", served)
	}
}
