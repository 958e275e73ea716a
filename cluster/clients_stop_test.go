package cluster

import (
	"context"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wait"
)

// A connection whose member stops leaves frames in the loop's queue that it awaits no more, and
// the end of the connection behind them. The loop may serve them all before it stops.
func TestClient_StopWithFramesQueued(t *testing.T) {
	m := &Member{inbound: make(chan func(*core.Core), 256)}
	m.lifetime, m.end = context.WithCancelCause(t.Context())
	m.end(errClosed)
	c := &clientConn{handled: wait.NewSignal()}
	served := 0
	// Both cases of its select are ready, so about half of the frames are queued.
	for len(m.inbound) < 3 {
		if err := m.fromClient(c, func(*core.Core) { served++ }); err == nil {
			t.Fatal("a frame was awaited that the loop has not handled")
		}
	}
	m.drain() // it must not block
	if served != 3 {
		t.Errorf("%d of 3 frames served", served)
	}
}
